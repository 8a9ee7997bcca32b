"""The settings of the test suite, with the MariaDB that the environment names as JSON."""

import json
import os

import pymysql

from tests.settings import *  # noqa: F403

# Django wants mysqlclient, which is compiled when it is installed; this client does the same in Python.
pymysql.version_info = (2, 2, 7, "final", 0)
pymysql.install_as_MySQLdb()
DATABASES = {"default": json.loads(os.environ["TEST_DATABASE"])}
