"""Validation of URLs that traces are downloaded from (server-side request forgery protection).

The settings must allow the host and the port, and each IP address of the host is checked before
connecting. Callers connect to an IP address of ``machines_of`` and never resolve the name again,
because it could resolve to another machine by then (DNS rebinding).
"""

import re
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from jarvis.server.errors import AddressError
from jarvis.server.settings import PREFIX, settings
from jarvis.text.markdown import short_line

HTTP, SFTP, S3 = ("http", "https"), "sftp", "s3"
HOSTS_VARIABLE = f"{PREFIX}INGEST_HOSTS"
PRIVATE_HOSTS_VARIABLE = f"{PREFIX}INGEST_PRIVATE_HOSTS"

_SCHEMES = (*HTTP, SFTP, S3)
_PORTS = {"http": 80, "https": 443, SFTP: 22, S3: 443}
_HOST = re.compile(r"[a-z0-9_]([a-z0-9_-]*\.)*[a-z0-9_-]*|[0-9a-f:.]*:[0-9a-f:.]*")
"""A host name in ASCII form, or an IP address; excludes forms that resolvers read differently."""

_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_MAX_LENGTH = 4_000

_NAT64 = ip_network("64:ff9b::/96")
_METADATA_SERVICES = frozenset(map(ip_address, ("fd00:ec2::254", "100.100.100.200")))
"""Metadata services with cloud credentials, besides 169.254.169.254, which is link-local."""

Machine = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class Address:
    """An allowed URL; ``path`` and ``query`` are percent-encoded.

    ``query`` may contain a secret: use ``shown`` on pages and in logs.
    """

    scheme: str
    host: str
    port: int
    path: str
    query: str = ""
    user: str | None = None

    @property
    def host_and_port(self) -> str:
        """Return the host as in a URL, with its port unless it is the default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def shown(self) -> str:
        """Return host and path, without user and query."""
        return short_line(f"{self.host_and_port}{self.path}")

    @property
    def file_name(self) -> str:
        """Return the last part of the path, decoded."""
        return unquote(self.path).rpartition("/")[2]

    @property
    def is_folder(self) -> bool:
        """Return whether it names a folder."""
        return self.path.endswith("/")

    @property
    def url(self) -> str:
        """Return the whole URL, with the query that may be secret."""
        user = f"{self.user}@" if self.user else ""
        query = f"?{self.query}" if self.query else ""
        return f"{self.scheme}://{user}{self.host_and_port}{self.path}{query}"

    def joined(self, location: str) -> str:
        """Return the absolute URL of a redirect to ``location``."""
        return urljoin(f"{self.scheme}://{self.host_and_port}{self.path}", location)


def without_secrets(text: str) -> str:
    """Return user input, which may be no URL at all, without password and query."""
    return re.sub(r"//[^/@]*:[^/@]*@", "//", re.split(r"[?#]", text.strip(), maxsplit=1)[0])


_TYPED: ContextVar[frozenset[tuple[str, int]] | None] = ContextVar("_TYPED", default=None)
"""Hosts and ports of the URLs that the user of this machine typed; None on a server."""


@contextmanager
def typed_here(urls: Iterable[str]) -> Iterator[None]:
    """Allow the hosts of URLs of a command line, also in private networks, and all public hosts.

    The user can reach them without Jarvis; a redirect of theirs still cannot reach a private one.
    """
    parsed = (_parsed(url.strip(), _SCHEMES) for url in urls)
    token = _TYPED.set(frozenset((each.host, each.port) for each in parsed))
    try:
        yield
    finally:
        _TYPED.reset(token)


def address_of(text: str, schemes: Iterable[str] = _SCHEMES) -> Address:
    """Parse a URL whose host and port the settings allow.

    Raises:
        AddressError: it is not valid, contains a password, or is not allowed.
    """
    address = _parsed(text.strip(), tuple(schemes))
    if _TYPED.get() is not None:
        return address
    allowed = settings().ingest_hosts
    if not allowed:
        raise AddressError(
            "This server downloads no traces because no host is allowed. Ask an admin to list "
            f"hosts in {HOSTS_VARIABLE}."
        )
    if not _is_listed(address, allowed):
        raise AddressError(
            f"The host and port of {address.shown} are not allowed "
            f"(allowed: {', '.join(allowed)}). Use one of these, or ask an admin to add it to "
            f"{HOSTS_VARIABLE}."
        )
    return address


def machines_of(address: Address) -> list[Machine]:
    """Resolve the host of a URL to IP addresses, in order of preference.

    Raises:
        AddressError: it cannot be resolved, or any of the IP addresses is not allowed.
    """
    try:
        results = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise AddressError(
            f"The host {address.host} cannot be resolved: "
            f"{getattr(error, 'strerror', None) or error}. Check its name."
        ) from error
    machines = [ip_address(sockaddr[0]) for *_, sockaddr in results]
    is_typed = (address.host, address.port) in (_TYPED.get() or ())
    is_private_allowed = is_typed or _is_listed(address, settings().ingest_private_hosts)
    for machine in machines:
        _check(address, machine, is_private_allowed)
    return list(dict.fromkeys(machines))


def _parsed(text: str, schemes: tuple[str, ...]) -> Address:
    if len(text) > _MAX_LENGTH:
        raise AddressError(f"The URL is longer than {_MAX_LENGTH:,} characters. Check it.")
    if not text.isascii() or not text.isprintable() or " " in text or "\\" in text:
        raise AddressError(
            "The URL contains an invalid character. Percent-encode such characters (%XX), and "
            "write the host in its ASCII form (xn--)."
        )
    try:
        parts = urlsplit(text)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError as error:
        raise AddressError("The URL is not valid. Check it.") from error
    if parts.scheme not in schemes:
        raise AddressError(
            f"Give a URL that begins with {' or '.join(f'{name}://' for name in schemes)}."
        )
    if not _HOST.fullmatch(host):
        raise AddressError("The URL has no valid host. Check it.")
    return Address(
        parts.scheme,
        host,
        _PORTS[parts.scheme] if port is None else port,
        parts.path or "/",
        parts.query,
        _user(parts),
    )


def _user(parts: SplitResult) -> str | None:
    """Return the sftp user; reject passwords, because URLs are stored and shown."""
    if parts.password is not None or (parts.username is not None and parts.scheme != SFTP):
        raise AddressError(
            "The URL contains a user name or password, and URLs are stored and shown. Remove it: "
            "for sftp the server uses its own key, otherwise give a signed URL."
        )
    if parts.username is not None and not _USER.fullmatch(parts.username):
        raise AddressError("The user name in the URL is not valid. Check it.")
    return parts.username


def _is_listed(address: Address, allowed: Iterable[str]) -> bool:
    """Return whether an entry (``host`` or ``*.domain``, optionally ``:port``) matches the URL; an
    entry ``s3://bucket`` is a bucket, and no other matches one."""
    if address.scheme == S3:
        return f"{S3}://{address.host}" in allowed
    hosts = (entry for entry in allowed if not entry.startswith(f"{S3}://"))
    return any(_matches(address, *_split(entry)) for entry in hosts)


def _split(entry: str) -> tuple[str, int | None]:
    """Split an entry into host and port; an IPv6 address with a port is in brackets."""
    if entry.startswith("["):
        host, _, port = entry[1:].partition("]")
        port = port.removeprefix(":")
    elif entry.count(":") == 1:
        host, _, port = entry.partition(":")
    else:
        host, port = entry, ""
    return host.rstrip("."), int(port) if port.isdecimal() else None


def _matches(address: Address, host: str, port: int | None) -> bool:
    default_ports = (_PORTS[SFTP],) if address.scheme == SFTP else tuple(map(_PORTS.get, HTTP))
    if address.port not in (default_ports if port is None else (port,)):
        return False
    if host.startswith("*."):
        return address.host.endswith(host[1:]) and len(address.host) > len(host) - 1
    return address.host == host


def _check(address: Address, machine: Machine, is_private_allowed: bool) -> None:
    """Raise AddressError for an IP address that is not public, unless private ones are allowed."""
    for target in _delivery_targets(machine):
        if _is_always_forbidden(target):
            reason = f"{machine} is a reserved address"
            remedy = "Use another host."
        elif not is_private_allowed and not target.is_global:
            reason = f"{machine} is in a private network"
            remedy = f"Use another host, or ask an admin to add it to {PRIVATE_HOSTS_VARIABLE}."
        else:
            continue
        raise AddressError(f"Downloads from {address.host} are not allowed: {reason}. {remedy}")


def _is_always_forbidden(machine: Machine) -> bool:
    """Return whether no setting can allow an IP address: not unicast, or a metadata service."""
    return (
        machine.is_link_local
        or machine.is_multicast
        or machine.is_unspecified
        or (machine.is_reserved and not machine.is_loopback)
        or machine in _METADATA_SERVICES
        or (isinstance(machine, IPv6Address) and machine.is_site_local)
    )


def _delivery_targets(machine: Machine) -> tuple[Machine, ...]:
    """Return the IP addresses to which a gateway would deliver, with embedded IPv4 addresses."""
    if isinstance(machine, IPv4Address):
        return (machine,)
    if machine.ipv4_mapped is not None:
        return (machine.ipv4_mapped,)
    if machine in _NAT64:
        return (IPv4Address(int(machine) & 0xFFFFFFFF),)
    tunnels = (machine.sixtofour, *(machine.teredo or ()))
    return (machine, *(embedded for embedded in tunnels if embedded is not None))
