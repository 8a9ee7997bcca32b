"""The settings of Sphinx.  `make site` builds the pages of this folder into build/site; a warning is an error."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import django  # noqa: E402
from django.conf import settings  # noqa: E402

# The API reference imports the package; a few of its modules need an app registry.
settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "django_jobs"],
    DJANGO_JOBS={"STORE": "memory"},
    USE_TZ=True,
)
django.setup()

from django_jobs import __version__  # noqa: E402

project = "django_jobs"
author = "the authors of django_jobs"
project_copyright = "the authors of django_jobs"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
# The test of links reads them as a code host does: anchors are made of headings.
myst_heading_anchors = 4
nitpicky = True
# Names of types in signatures are not all pages of this site.
nitpick_ignore_regex = [("py:.*", ".*")]
# Docstrings write names as `this`.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = f"django_jobs {release}"
html_theme_options = {"navigation_with_keys": True}
html_copy_source = False
