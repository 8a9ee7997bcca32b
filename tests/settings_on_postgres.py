"""The settings of the test suite, with the database that the environment names as JSON."""

import json
import os

from tests.settings import *  # noqa: F403

DATABASES = {"default": json.loads(os.environ["TEST_DATABASE"])}
