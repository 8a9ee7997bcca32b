"""The worker project with databases that the test names, as JSON in the environment."""

import json
import os

from tests.integration.worker_project.settings import *  # noqa: F403

INSTALLED_APPS = [*INSTALLED_APPS, "tests.integration.database_project"]  # noqa: F405
DATABASES = json.loads(os.environ["TEST_DATABASES"])
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
