"""Where traces may be fetched from: addresses that users type are hostile input.

An address names a host that the settings allow, on a port that they allow, and every machine that
the host's name stands for is looked at before one of them is spoken to. Whoever connects takes an
address of ``machines_of`` and never asks for the name again: it could stand for another machine by
then.
"""

import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from jarvis.core.errors import JarvisError
from jarvis.server.settings import PREFIX, settings
from jarvis.text.markdown import one_line, shortened

HTTP, SFTP = ("http", "https"), "sftp"
HOSTS_VARIABLE = f"{PREFIX}INGEST_HOSTS"
PRIVATE_HOSTS_VARIABLE = f"{PREFIX}INGEST_PRIVATE_HOSTS"

_PORTS = {"http": 80, "https": 443, SFTP: 22}
_HOST = re.compile(r"[a-z0-9_]([a-z0-9_-]*\.)*[a-z0-9_-]*|[0-9a-f:.]*:[0-9a-f:.]*")
"""A name in its ASCII form, or an address; what a resolver could read in another way is none."""

_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_LONGEST = 4_000
_SHOWN_LETTERS = 200

_NAT64 = ip_network("64:ff9b::/96")
_CREDENTIALS_OF_CLOUDS = frozenset(map(ip_address, ("fd00:ec2::254", "100.100.100.200")))
"""Beside 169.254.169.254, which is link-local: machines of clouds learn their keys there."""

Machine = IPv4Address | IPv6Address


class AddressError(JarvisError):
    """Nothing is fetched from this address."""


@dataclass(frozen=True, slots=True)
class Address:
    """An address that may be asked for; ``path`` and ``query`` are as they are sent.

    ``query`` may hold a secret: ``shown`` is what stands on pages and in logs.
    """

    scheme: str
    host: str
    port: int
    path: str
    query: str = ""
    user: str | None = None

    @property
    def host_and_port(self) -> str:
        """The host as it stands in an address, with its port where that is not the usual one."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def shown(self) -> str:
        """Host and path, without user and query."""
        return shortened(one_line(f"{self.host_and_port}{self.path}"), _SHOWN_LETTERS)

    @property
    def file_name(self) -> str:
        """The last part of its path."""
        return unquote(self.path).rpartition("/")[2]

    def joined(self, location: str) -> str:
        """What a redirection from here to ``location`` leads to."""
        return urljoin(f"{self.scheme}://{self.host_and_port}{self.path}", location)


def without_secrets(text: str) -> str:
    """What was typed as an address, whatever it is, without password and query."""
    return re.sub(r"//[^/@]*:[^/@]*@", "//", re.split(r"[?#]", text.strip(), maxsplit=1)[0])


def address_of(text: str, schemes: Iterable[str] = (*HTTP, SFTP)) -> Address:
    """The address that a text is, once it is sure that the settings allow its host and port.

    Raises AddressError where it is none, holds a password, or is not allowed.
    """
    address = _parsed(text.strip(), tuple(schemes))
    allowed = settings().ingest_hosts
    if not allowed:
        raise AddressError(
            "This server fetches no traces: no host is allowed. Whoever runs it names hosts in "
            f"{HOSTS_VARIABLE}."
        )
    if not _is_listed(address, allowed):
        raise AddressError(
            f"{address.shown} is on no host and port that this server fetches from "
            f"({', '.join(allowed)}). Choose one of these, or have it added to {HOSTS_VARIABLE}."
        )
    return address


def machines_of(address: Address) -> list[Machine]:
    """The machines that the host of an address stands for, in the order of preference.

    Raises AddressError where there is none, or where any of them must not be spoken to.
    """
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise AddressError(
            f"The host {address.host} is not known: {getattr(error, 'strerror', None) or error}. "
            "Check its name."
        ) from error
    machines = [ip_address(where[0]) for *_, where in found]
    is_private_allowed = _is_listed(address, settings().ingest_private_hosts)
    for machine in machines:
        _check(address, machine, is_private_allowed)
    return list(dict.fromkeys(machines))


def _parsed(text: str, schemes: tuple[str, ...]) -> Address:
    if len(text) > _LONGEST:
        raise AddressError(f"The address is longer than {_LONGEST:,} letters. Check it.")
    if not text.isascii() or not text.isprintable() or " " in text or "\\" in text:
        raise AddressError(
            "The address holds a letter that no address has. Write such letters as %XX, and a host "
            "in its form with xn--."
        )
    try:
        parts = urlsplit(text)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError as error:
        raise AddressError("This is no address that can be read. Check it.") from error
    if parts.scheme not in schemes:
        raise AddressError(
            f"Give an address that begins with {' or '.join(f'{name}://' for name in schemes)}."
        )
    if not _HOST.fullmatch(host):
        raise AddressError("The address names no host. Check it.")
    return Address(
        parts.scheme,
        host,
        _PORTS[parts.scheme] if port is None else port,
        parts.path or "/",
        parts.query,
        _user(parts),
    )


def _user(parts: SplitResult) -> str | None:
    """Who logs in by sftp; passwords stand in no address, since addresses are kept."""
    if parts.password is not None or (parts.username is not None and parts.scheme != SFTP):
        raise AddressError(
            "The address holds a user name or password, and addresses are kept and shown. Leave it "
            "out: for sftp the server has a key of its own, for others give a signed address."
        )
    if parts.username is not None and not _USER.fullmatch(parts.username):
        raise AddressError("The user name in the address cannot be one. Check it.")
    return parts.username


def _is_listed(address: Address, allowed: Iterable[str]) -> bool:
    """Whether ``host``, ``*.domain`` or either with ``:port`` of a list is the address's."""
    return any(_is_meant(address, *_split(entry)) for entry in allowed)


def _split(entry: str) -> tuple[str, int | None]:
    """Host and port of an entry; IPv6 addresses stand in brackets where a port follows."""
    if entry.startswith("["):
        host, _, port = entry[1:].partition("]")
        port = port.removeprefix(":")
    elif entry.count(":") == 1:
        host, _, port = entry.partition(":")
    else:
        host, port = entry, ""
    return host.rstrip("."), int(port) if port.isdecimal() else None


def _is_meant(address: Address, host: str, port: int | None) -> bool:
    usual = (_PORTS[SFTP],) if address.scheme == SFTP else tuple(map(_PORTS.get, HTTP))
    if address.port not in (usual if port is None else (port,)):
        return False
    if host.startswith("*."):
        return address.host.endswith(host[1:]) and len(address.host) > len(host) - 1
    return address.host == host


def _check(address: Address, machine: Machine, is_private_allowed: bool) -> None:
    """Refuse a machine that is not on the public network, unless it may be on a private one."""
    for meant in _meant_by(machine):
        if _is_never(meant):
            reason = f"{machine} is no address of a machine that serves traces"
            remedy = "Choose another host."
        elif not is_private_allowed and not meant.is_global:
            reason = f"{machine} is an address of a private network"
            remedy = f"Choose another host, or have this one added to {PRIVATE_HOSTS_VARIABLE}."
        else:
            continue
        raise AddressError(f"Nothing is fetched from {address.host}: {reason}. {remedy}")


def _is_never(machine: Machine) -> bool:
    """Whether no setting allows it: what is no single machine, and what hands out keys."""
    return (
        machine.is_link_local
        or machine.is_multicast
        or machine.is_unspecified
        or (machine.is_reserved and not machine.is_loopback)
        or machine in _CREDENTIALS_OF_CLOUDS
        or (isinstance(machine, IPv6Address) and machine.is_site_local)
    )


def _meant_by(machine: Machine) -> tuple[Machine, ...]:
    """The address, or the IPv4 one inside, to which a gateway would deliver."""
    if isinstance(machine, IPv4Address):
        return (machine,)
    if machine.ipv4_mapped is not None:
        return (machine.ipv4_mapped,)
    if machine in _NAT64:
        return (IPv4Address(int(machine) & 0xFFFFFFFF),)
    tunnels = (machine.sixtofour, *(machine.teredo or ()))
    return (machine, *(inside for inside in tunnels if inside is not None))
