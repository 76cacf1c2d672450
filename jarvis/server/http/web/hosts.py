"""The names that this server answers to, and the pages elsewhere that it does not listen to.

A page of another site can make a browser send requests here, also under a name of its own that it
lets point to this machine; both are told apart by the headers ``Host`` and ``Origin``.
"""

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from jarvis.server.http.web.errors import header, refuse
from jarvis.server.settings import Settings

ADDRESS_VARIABLE = "STREAMLIT_SERVER_ADDRESS"
"""The address that the server listens on, by which Streamlit's own command takes it too."""

LOOPBACK = ("localhost", "127.0.0.1", "::1")
ANY = "*"


@dataclass(frozen=True, slots=True)
class HostNames:
    """Names; ``*`` is any, ``*.example.org`` is any below it."""

    names: frozenset[str]

    def include(self, host: str) -> bool:
        """Whether a host, in lower case and without its port, is one of them."""
        parents = (f"*{host[i:]}" for i, letter in enumerate(host) if letter == ".")
        return not self.names.isdisjoint((ANY, host, *parents))


def is_every_address(address: str) -> bool:
    """Whether it stands for all addresses of the machine, so names none."""
    try:
        return not address or ip_address(address).is_unspecified
    except ValueError:
        return False


def answered_names(now: Settings, bound_to: str) -> HostNames:
    """Loopback names, the address bound to, the host of ``public_url``, and ``allowed_hosts``."""
    names = {*LOOPBACK, *now.allowed_hosts}
    if not is_every_address(bound_to):
        names.add(bound_to.lower())
    if now.public_url and (public := host_of(urlsplit(now.public_url).netloc)):
        names.add(public)
    return HostNames(frozenset(names))


def host_of(netloc: str) -> str | None:
    """The host of ``host:port`` in lower case; None where it is neither name nor address."""
    try:
        parts = urlsplit(f"//{netloc}")
        _ = parts.port  # a number, or an error
    except ValueError:
        return None
    if parts.username is not None or parts.netloc != netloc or not parts.hostname:
        return None
    return parts.hostname.rstrip(".")


class AllowedHosts:
    """Refuses requests under other names, and those of pages of other sites."""

    def __init__(self, app: ASGIApp, names: HostNames, public_url: str | None) -> None:
        self._app = app
        self._names = names
        self._public = urlsplit(public_url).netloc.lower() if public_url else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        given = header(scope, "host")
        host = host_of(given or "")
        if host is None or not self._names.include(host):
            named = "without a name" if given is None else f"under the name {given[:100]!r}"
            await refuse(
                scope,
                receive,
                send,
                400,
                f"This server does not answer {named}. Use the address that you were given, or "
                "have the one who runs it allow this name (JARVIS_ALLOWED_HOSTS).",
            )
        elif self._is_foreign(scope, given):
            await refuse(
                scope,
                receive,
                send,
                403,
                "A page of another site asked for this, so it was not done. Open Jarvis under its "
                "own address (JARVIS_PUBLIC_URL, where a proxy changes it).",
            )
        else:
            await self._app(scope, receive, send)

    def _is_foreign(self, scope: Scope, host: str | None) -> bool:
        """Whether a page of another site asks; one that only shows a link or a picture to here does
        not say so, and gets no more than that."""
        origin = header(scope, "origin")
        if origin is None:  # a program; browsers always say
            return False
        asked_by = origin.lower().partition("://")[2]
        return not asked_by or asked_by not in ((host or "").lower(), self._public)
