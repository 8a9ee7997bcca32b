"""The console, and people with each set of permissions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.support.console_data import Filler, shop_jobs

BASE = "/admin/django_jobs/dashboard/"
PERMISSIONS = (
    "view_jobs",
    "view_arguments",
    "retry_jobs",
    "enqueue_jobs",
    "delete_jobs",
    "pause_queues",
    "run_schedules",
    "manage_workers",
)


@pytest.fixture
def console_store(store: Store) -> Iterator[Store]:
    """The store, in use by the console."""
    use_store(store)
    with shop_jobs():
        yield store


@pytest.fixture
def filler(console_store: Store) -> Filler:
    return Filler(console_store)


@pytest.fixture
def person(db: None) -> Callable[..., Client]:
    """A browser of somebody of the staff with these permissions."""

    def make(*permissions: str, staff: bool = True, superuser: bool = False) -> Client:
        name = "-".join(permissions) or ("root" if superuser else "nobody")
        user = User.objects.create_user(name, is_staff=staff, is_superuser=superuser)
        for permission in permissions:
            user.user_permissions.add(Permission.objects.get(codename=permission))
        client = Client()
        client.force_login(user)
        return client

    return make


@pytest.fixture
def root(person: Callable[..., Client]) -> Client:
    return person(superuser=True)
