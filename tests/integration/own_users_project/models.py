"""People who are no staff, and are asked in an unusual way."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.db import models


class Person(AbstractBaseUser):
    email = models.EmailField(unique=True)
    may = models.JSONField(default=list)

    USERNAME_FIELD = "email"
    objects: BaseUserManager[Person] = BaseUserManager()

    def has_perm(self, perm: str, subject: Any, *, strict: bool) -> bool:
        return perm.removeprefix("django_jobs.") in self.may


class Stranger(AbstractBaseUser):
    """Has no method that says what it may do."""

    email = models.EmailField(unique=True)

    USERNAME_FIELD = "email"
    objects: BaseUserManager[Stranger] = BaseUserManager()
