"""Allowed download URLs, by their text and by the IP addresses of their hosts."""

import socket
from collections.abc import Callable

import pytest

from jarvis.server.errors import AddressError
from jarvis.server.ingest.addresses import address_of, machines_of, without_secrets


@pytest.fixture
def allow(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets the hosts that are allowed, and those that may be private."""

    def to(*hosts: str, private: str = "") -> None:
        monkeypatch.setenv("JARVIS_INGEST_HOSTS", ",".join(hosts))
        monkeypatch.setenv("JARVIS_INGEST_PRIVATE_HOSTS", private)

    return to


@pytest.fixture
def stands_for(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets the IP addresses of all names."""

    def to(*machines: str) -> None:
        def found(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
            return [(0, 0, 0, "", (machine, port)) for machine in machines]

        monkeypatch.setattr(socket, "getaddrinfo", found)

    return to


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        ("https://traces.example.org/a.json", "traces.example.org"),
        ("http://TRACES.Example.org./a.json", "traces.example.org"),
        ("https://a.traces.example.org/a.json", "*.example.org"),
        ("https://traces.example.org:8443/a.json", "traces.example.org:8443"),
        ("https://a.example.org:8443/a.json", "*.example.org:8443"),
        ("sftp://me@node-7/scratch/a.json", "node-7"),
        ("sftp://node-7:2222/scratch/a.json", "node-7:2222"),
        ("https://[2606:4700::1]/a.json", "2606:4700::1"),
        ("https://[2606:4700::1]:8443/a.json", "[2606:4700::1]:8443"),
        ("s3://traces/job/a.json", "s3://traces"),
    ],
)
def test_hosts_are_allowed_by_name_domain_and_port(
    text: str, listed: str, allow: Callable[..., None]
) -> None:
    allow("other.example.org", listed)
    assert address_of(text).file_name == "a.json"


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        ("https://example.org/a.json", "*.example.org"),
        ("https://evilexample.org/a.json", "*.example.org"),
        ("https://example.org.evil.org/a.json", "example.org"),
        ("https://example.org:8443/a.json", "example.org"),
        ("https://example.org/a.json", "example.org:8443"),
        ("https://example.org:22/a.json", "example.org"),
        ("sftp://example.org:443/a.json", "example.org"),
        ("https://example.org:0/a.json", "example.org"),
        ("https://2130706433/a.json", "127.0.0.1"),
        ("s3://traces/a.json", "traces"),
        ("s3://traces2/a.json", "s3://traces"),
        ("https://s3/a.json", "s3://traces"),
        ("https://traces/a.json", "s3://traces"),
    ],
)
def test_what_is_like_an_allowed_host_is_refused(
    text: str, listed: str, allow: Callable[..., None]
) -> None:
    allow(listed)
    with pytest.raises(AddressError, match="are not allowed"):
        address_of(text)


def test_without_setting_nothing_is_allowed(allow: Callable[..., None]) -> None:
    allow()
    with pytest.raises(AddressError, match="JARVIS_INGEST_HOSTS"):
        address_of("https://example.org/a.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file:///etc/passwd", "begins with http://"),
        ("gopher://example.org/", "begins with http://"),
        ("example.org/a.json", "begins with http://"),
        ("https:///a.json", "has no valid host"),
        ("https://exa%6dple.org/", "has no valid host"),
        ("https://[fe80::1%25eth0]/", "has no valid host"),
        ("https://[::1/", "URL is not valid"),
        ("https://example.org:99999/", "URL is not valid"),
        ("https://example.org@evil.org/", "user name or password"),
        ("https://me:secret@example.org/", "user name or password"),
        ("sftp://me:secret@example.org/a.json", "user name or password"),
        ("sftp://-oProxyCommand=x@example.org/a.json", "user name in the URL"),
        ("https://example.org\\@evil.org/", "an invalid character"),
        ("https://example.org/a\r\nHost: x", "an invalid character"),
        ("https://ex\u0430mple.org/", "an invalid character"),
        ("https://example.org/" + "a" * 5_000, "longer than 4,000 characters"),
    ],
)
def test_what_is_no_plain_address_is_refused(
    text: str, message: str, allow: Callable[..., None]
) -> None:
    allow("example.org", "evil.org", "fe80::1")
    with pytest.raises(AddressError, match=message) as error:
        address_of(text)
    assert "secret" not in str(error.value)


PRIVATE = (
    *("127.0.0.1", "127.8.9.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1"),
    *("198.18.0.1", "192.0.2.1", "::1", "fd00::1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a00:1"),
    "2002:7f00:1::",
)
NEVER = (
    *("169.254.169.254", "169.254.0.1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe"),
    *("2002:a9fe:a9fe::", "fe80::1", "fe80::1%eth0", "fec0::1", "fd00:ec2::254"),
    *("100.100.100.200", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "240.0.0.1", "255.255.255.255"),
    *("::ffff:0.0.0.0", "::127.0.0.1", "::ffff:255.255.255.255", "2001:0:1::1"),
)


@pytest.mark.parametrize("machine", [*PRIVATE, *NEVER])
def test_no_host_may_stand_for_an_address_that_is_not_public(
    machine: str, allow: Callable[..., None], stands_for: Callable[..., None]
) -> None:
    allow("example.org")
    address = address_of("https://example.org/a.json")
    stands_for("93.184.215.14", machine)
    with pytest.raises(AddressError, match=r"Downloads from example\.org are not allowed"):
        machines_of(address)


@pytest.mark.parametrize("machine", ["93.184.215.14", "::ffff:93.184.215.14", "64:ff9b::5db8:d70e"])
def test_public_addresses_are_fine(
    machine: str, allow: Callable[..., None], stands_for: Callable[..., None]
) -> None:
    allow("example.org")
    stands_for(machine, machine)
    assert len(machines_of(address_of("https://example.org/a.json"))) == 1


@pytest.mark.parametrize("machine", PRIVATE)
def test_private_addresses_are_fine_for_hosts_that_may_have_them(
    machine: str, allow: Callable[..., None], stands_for: Callable[..., None]
) -> None:
    allow("example.org", "other.org", private="example.org")
    stands_for(machine)
    assert machines_of(address_of("https://example.org/a.json"))
    with pytest.raises(AddressError, match="JARVIS_INGEST_PRIVATE_HOSTS"):
        machines_of(address_of("https://other.org/a.json"))


@pytest.mark.parametrize("machine", NEVER)
def test_some_addresses_are_never_spoken_to(
    machine: str, allow: Callable[..., None], stands_for: Callable[..., None]
) -> None:
    allow("example.org", private="example.org")
    stands_for(machine)
    with pytest.raises(AddressError, match="is a reserved address"):
        machines_of(address_of("https://example.org/a.json"))


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "0177.0.0.1", "127.1", "localhost"])
def test_other_ways_to_write_this_machine_are_known(host: str, allow: Callable[..., None]) -> None:
    """As resolved by this machine, even if the settings list them."""
    allow(host)
    with pytest.raises(AddressError, match="in a private network"):
        machines_of(address_of(f"http://{host}/a.json"))


def test_a_name_that_does_not_exist_is_reported(allow: Callable[..., None]) -> None:
    allow("a..b")
    with pytest.raises(AddressError, match=r"The host a\.\.b cannot be resolved"):
        machines_of(address_of("http://a..b/a.json"))


def test_what_is_shown_holds_no_secret(allow: Callable[..., None]) -> None:
    allow("node:2222", "example.org")
    signed = address_of("https://example.org/a.json?X-Signature=secret#secret")
    assert signed.shown == "example.org/a.json"
    assert signed.query == "X-Signature=secret"
    assert address_of("sftp://me@node:2222/a.json").shown == "node:2222/a.json"


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        (" https://example.org/a.json?X-Signature=secret ", "https://example.org/a.json"),
        ("https://example.org/a.json#secret?x", "https://example.org/a.json"),
        ("https://me:secret@example.org/a.json", "https://example.org/a.json"),
        ("sftp://me@node/a@b:c.json", "sftp://me@node/a@b:c.json"),
        ("no address", "no address"),
    ],
)
def test_links_hold_no_secret_of_what_was_typed(typed: str, shown: str) -> None:
    assert without_secrets(typed) == shown
