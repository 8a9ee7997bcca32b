"""Which addresses jobs may be posted to.  These rules keep a URL from reaching into our own network."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

from django_jobs.exceptions import JobsError
from django_jobs.formatting import sentence

#: Prefixes of IPv6 addresses that contain an IPv4 address; the rules apply to the address inside.
NAT64 = ipaddress.ip_network("64:ff9b::/96")
#: Site-local addresses, and those for documentation (RFC 9637), which Python takes for public ones.
NOT_PUBLIC = (ipaddress.ip_network("fec0::/10"), ipaddress.ip_network("3fff::/20"))


class ForbiddenAddress(JobsError, ValueError):
    """The URL may not be used for remote jobs."""


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed URL that has passed the checks that need no network."""

    host: str
    port: int
    #: path and query, as sent in the request line.
    path: str
    tls: bool
    #: named in REMOTE_HOSTS: may have a private address and may use plain http.
    trusted: bool


def parse_target(url: str, trusted_hosts: Collection[str]) -> Target:
    """Parse `url`.  Raises ForbiddenAddress if jobs can never be posted to it.

    http is only for hosts in `trusted_hosts`: jobs and credentials do not cross the Internet unencrypted.
    """
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
        host.encode("idna")
    except (ValueError, UnicodeError) as error:
        raise ForbiddenAddress(f"{url!r} is not a URL: {sentence(error)}") from error
    if parts.scheme not in {"http", "https"} or not host:
        raise ForbiddenAddress(f"{url!r} is not an https:// URL.")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise ForbiddenAddress("A URL for remote jobs holds no password and no #fragment: use CREDENTIALS.")
    if any(ord(character) <= 32 or ord(character) >= 127 for character in url):
        raise ForbiddenAddress(f"{url!r} holds a space or a character that must be %-encoded.")
    trusted = host.lower() in {name.lower() for name in trusted_hosts}
    if parts.scheme == "http" and not trusted:
        raise ForbiddenAddress(
            f"{url!r} is not https. Only hosts named in DJANGO_JOBS['API']['REMOTE_HOSTS'] may use plain http."
        )
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(host, port or (443 if parts.scheme == "https" else 80), path, parts.scheme == "https", trusted)


def is_public(text: str) -> bool:
    """Return whether this IP address is public, and any address that it contains is public as well."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
        if address in NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if any(address in network for network in NOT_PUBLIC):
            return False
        if inner is not None:
            address = inner
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def resolve(target: Target) -> list[str]:
    """Return the IP addresses of a target; all of them are allowed.

    One private address refuses them all: the name's owner controls which address the next look-up returns.
    Raises OSError if the name does not resolve.
    """
    found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not target.trusted:
        for address in addresses:
            if not is_public(address):
                raise ForbiddenAddress(
                    f"{target.host!r} resolves to {address}, which is not a public address. If this is intended, "
                    "add the host to DJANGO_JOBS['API']['REMOTE_HOSTS']."
                )
    return addresses
