"""Certificates for a server that speaks TLS and for its clients, made for one test run, and servers that use them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import redis

from tests.support.backends.redis_process import RedisServer


class Tls(NamedTuple):
    """The files of one authority: its own certificate, and one for 127.0.0.1 with its key."""

    authority: Path
    certificate: Path
    key: Path

    @property
    def client(self) -> dict[str, Any]:
        """Keyword arguments of redis-py; Redis asks its clients for certificates, too."""
        return {"ssl": True, **self._options}

    @property
    def query(self) -> str:
        """What stands after the ? of an address."""
        return urlencode(self._options)

    @property
    def _options(self) -> dict[str, str]:
        files = {"ssl_ca_certs": self.authority, "ssl_certfile": self.certificate, "ssl_keyfile": self.key}
        return {name: str(path) for name, path in files.items()}

    def server(self, port: int) -> list[str]:
        """Options of a server that speaks nothing but TLS, with replicas and the other nodes of a cluster, too."""
        files = ["--tls-ca-cert-file", self.authority, "--tls-cert-file", self.certificate, "--tls-key-file", self.key]
        only = ["--port", "0", "--tls-port", str(port), "--tls-replication", "yes"]
        return [*only, *map(str, files)]


def make_certificates(folder: Path) -> Tls:
    """A new authority, and what it has signed."""
    import trustme

    folder.mkdir(parents=True, exist_ok=True)
    made = Tls(folder / "ca.pem", folder / "cert.pem", folder / "key.pem")
    authority = trustme.CA()
    signed = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(made.authority))
    signed.cert_chain_pems[0].write_to_path(str(made.certificate))
    signed.private_key_pem.write_to_path(str(made.key))
    return made


class TlsServer(RedisServer):
    """A server that speaks nothing but TLS and knows one user, `app` with the password `s3cret`."""

    USER = ("app", "s3cret")

    def __init__(self, folder: Path, tls: Tls, *options: str) -> None:
        name, password = self.USER
        user = ["--user", name, "on", f">{password}", "~*", "&*", "+@all", "--user", "default", "off"]
        super().__init__(folder, *user, "--masteruser", name, "--masterauth", password, *options)
        self.tls = tls
        self.options += tls.server(self.port)

    @property
    def url(self) -> str:
        return f"rediss://{':'.join(self.USER)}@127.0.0.1:{self.port}/0?{self.tls.query}"

    def client(self, **options: Any) -> redis.Redis:
        name, password = self.USER
        return super().client(username=name, password=password, **self.tls.client, **options)
