"""The settings of the tests, with other users and other addresses."""

import os

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.integration.own_users_project"]
AUTH_USER_MODEL = f"own_users_project.{os.environ.get('OWN_USER', 'Person')}"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ROOT_URLCONF = "tests.integration.own_users_project.urls"
ALLOWED_HOSTS = ["testserver"]
