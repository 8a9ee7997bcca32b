"""Which URLs may be posted to, and that nothing else is reached."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from django_jobs.remote.targets import ForbiddenAddress, is_public, parse_target, resolve


@pytest.mark.parametrize(
    "url",
    [
        "", "x", "ftp://example.com/", "file:///etc/passwd", "gopher://example.com/", "//example.com/", "https://", "https:///x",
        "http://example.com/", "https://user@example.com/", "https://user:pw@example.com/", "https://example.com/#part",
        "https://example.com/a b", "https://example.com/\r\nHost: x", "https://exämple\x00.com/", "https://example.com:99999/",
        "https://example.com:x/", "https://[::1", "javascript:alert(1)", "https://example.com/ä",
    ],
)  # fmt: skip
def test_what_is_no_plain_https_url_is_refused(url: str) -> None:
    with pytest.raises(ForbiddenAddress):
        parse_target(url, ())


def test_a_url_is_taken_apart() -> None:
    target = parse_target("https://Example.com./jobs/in?a=1", ())
    assert (target.host, target.port, target.path, target.tls, target.trusted) == (
        "example.com", 443, "/jobs/in?a=1", True, False,
    )  # fmt: skip
    assert parse_target("http://worker:8001", ["WORKER"]).path == "/"


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "100.64.0.1", "224.0.0.1",
        "255.255.255.255", "240.0.0.1", "192.0.2.1", "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1",
        "64:ff9b::a00:1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::",
        "2001:db8::1", "fec0::1", "feff::1", "3fff::1", "3fff:fff::1",
    ],
)  # fmt: skip
def test_addresses_that_are_not_of_the_public_internet_are_known(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "93.184.215.14", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8"]
)
def test_public_addresses_are_known(address: str) -> None:
    assert is_public(address)


def answers(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


def test_one_private_address_among_those_of_a_name_refuses_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    target = parse_target("https://rebinding.example/", ())
    answers(monkeypatch, "93.184.215.14", "127.0.0.1")
    with pytest.raises(ForbiddenAddress, match="REMOTE_HOSTS"):
        resolve(target)
    answers(monkeypatch, "93.184.215.14", "93.184.215.14")
    assert resolve(target) == ["93.184.215.14"]


def test_numbers_that_mean_this_machine_are_seen_through() -> None:
    for host in ("127.1", "2130706433", "0x7f000001", "localhost"):
        with pytest.raises((ForbiddenAddress, OSError)):
            resolve(parse_target(f"https://{host}/", ()))


def test_a_host_named_by_the_administrator_may_be_private(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, "10.0.0.7")
    assert resolve(parse_target("http://worker.internal:8001/", ["worker.internal"])) == ["10.0.0.7"]
