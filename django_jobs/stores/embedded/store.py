"""The stores "embedded", on the server of a directory, and "memory", on one that this process and its copies share."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from uuid import uuid4

from django.core.exceptions import ImproperlyConfigured

from django_jobs.conf.store_address import EmbeddedAddress, embedded_address
from django_jobs.stores.embedded.connection import EmbeddedTransport, memory_transport
from django_jobs.stores.embedded.server import Server
from django_jobs.stores.redis import Store
from django_jobs.stores.values.options import StoreOptions

_transport = cache(memory_transport)
#: Copies the keys ARGV[3…] of the namespace ARGV[1] to the namespace ARGV[2].
_COPY = """
for i = 3, #ARGV do
  redis.call('COPY', ARGV[i], '{' .. ARGV[2] .. string.sub(ARGV[i], #ARGV[1] + 2))
end
"""


def embedded_store(setting: str, base_dir: str, options: StoreOptions) -> Store:
    """Make the store that DJANGO_JOBS["STORE"] names: "embedded", or "embedded:" with a directory and an option.

    Raises ImproperlyConfigured."""
    path, fsync = directory_of(setting, base_dir), _address(setting).fsync
    return Store(EmbeddedTransport(Server(path, fsync=fsync), f"embedded:{path}"), options)


def directory_of(setting: str, base_dir: str) -> Path:
    """Return the directory of an embedded store.  Raises ImproperlyConfigured."""
    return Path(base_dir, _address(setting).directory).absolute()


def _address(setting: str) -> EmbeddedAddress:
    address = embedded_address(setting)
    if address is None:
        raise ImproperlyConfigured(f"DJANGO_JOBS['STORE'] is {setting!r}: the only option is ?fsync=no.")
    return address


class MemoryStore(Store):
    """Jobs that end with the process, for tests.  Each store has data of its own."""

    def __init__(self, options: StoreOptions) -> None:
        super().__init__(_transport(), replace(options, namespace=f"memory-{uuid4().hex[:12]}"))

    def copy(self, other: MemoryStore) -> None:
        """Take over all jobs of another store, in place of those that are here."""
        self.delete_all()
        if keys := other._all_keys():
            names = other.keys.namespace, self.keys.namespace
            self.transport.client.eval(_COPY, 0, *names, *keys)

    def delete_all(self) -> None:
        """Delete all jobs of this store."""
        if keys := self._all_keys():
            self.transport.client.unlink(*keys)

    def _all_keys(self) -> list[bytes]:
        return list(self.transport.client.scan_iter(match=f"{{{self.keys.namespace}*", count=1000))

    def close(self) -> None:
        self.delete_all()
