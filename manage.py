#!/usr/bin/env python
"""The example shop's commands from here, after `pip install -e .`: `manage.py migrate`, `runserver`, `runworkers`.

`python manage.py test` runs the shop's own tests; `make test` those of django_jobs."""

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    # First on the path: the script's own folder stands there, and has other packages of such names.
    sys.path.insert(0, str(Path(__file__).resolve().parent / "example_project"))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
