"""Trusted proxies, allowed host names, and rejected cross-site origins.

A page of another site can make a browser send requests here (cross-site requests), also under its
own name that resolves to this machine (DNS rebinding); ``Host`` and ``Origin`` reveal both.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from jarvis.server.http.web.errors import Refusal, header
from jarvis.server.settings import Settings, settings

ADDRESS_VARIABLE = "STREAMLIT_SERVER_ADDRESS"
"""Environment variable of the listen address, which Streamlit's command reads, too."""

LOOPBACK = ("localhost", "127.0.0.1", "::1")
ANY = "*"


@dataclass(frozen=True, slots=True)
class HostNames:
    """Host name patterns; ``*`` matches any, ``*.example.org`` any subdomain."""

    names: frozenset[str]

    def include(self, host: str) -> bool:
        """Return whether a host, in lower case and without port, matches a pattern."""
        parents = (f"*{host[i:]}" for i, letter in enumerate(host) if letter == ".")
        return not self.names.isdisjoint((ANY, host, *parents))


def is_every_address(address: str) -> bool:
    """Return whether an address means all interfaces, like ``0.0.0.0``."""
    try:
        return not address or ipaddress.ip_address(address).is_unspecified
    except ValueError:
        return False


def answered_names(now: Settings, bound_to: str) -> HostNames:
    """Return loopback names, the listen address, the host of ``public_url``, ``allowed_hosts``."""
    names = {*LOOPBACK, *now.allowed_hosts}
    if not is_every_address(bound_to):
        names.add(bound_to.lower())
    if now.public_url and (public := host_of(urlsplit(now.public_url).netloc)):
        names.add(public)
    return HostNames(frozenset(names))


def host_of(netloc: str) -> str | None:
    """Return the host of ``host:port`` in lower case; None if it is not valid."""
    try:
        parts = urlsplit(f"//{netloc}")
        _ = parts.port  # raises ValueError for an invalid port
    except ValueError:
        return None
    if parts.username is not None or parts.netloc != netloc or not parts.hostname:
        return None
    return parts.hostname.rstrip(".")


_FOREIGN = Refusal(
    403,
    "Rejected: the request comes from a page of another site. Open Jarvis at its own URL (set "
    "JARVIS_PUBLIC_URL if a proxy changes it).",
)


class AllowedHosts:
    """Rejects requests for other host names and from other origins."""

    def __init__(self, app: ASGIApp, names: HostNames, public_url: str | None) -> None:
        self._app = app
        self._names = names
        self._public = urlsplit(public_url).netloc.lower() if public_url else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        host_header = header(scope, "host")
        host = host_of(host_header or "")
        app = self._app
        if host is None or not self._names.include(host):
            shown = "without a Host header"
            if host_header is not None:
                shown = f"for host {host_header[:100]!r}"
            app = Refusal(
                400,
                f"This server does not accept requests {shown}. Use the server's own URL, or ask "
                "its admin to allow this host (JARVIS_ALLOWED_HOSTS).",
            )
        elif self._is_foreign(scope, host_header):
            app = _FOREIGN
        await app(scope, receive, send)

    def _is_foreign(self, scope: Scope, host: str | None) -> bool:
        """Return whether the request comes from a page of another site.

        Browsers send no Origin for links and images, which reveal nothing to the other site.
        """
        origin = header(scope, "origin")
        if origin is None:  # a program, a link or an image
            return False
        origin_host = origin.lower().partition("://")[2]
        return not origin_host or origin_host not in ((host or "").lower(), self._public)


_FORWARDED = ("forwarded", "x-real-ip")
_FORWARDED_PREFIX = "x-forwarded-"


class TrustedProxies:
    """Sets the client address and scheme from the headers of trusted proxies.

    Headers that only a proxy may set, including those with the user name, are removed from other
    requests, so that code behind this middleware can rely on them.
    """

    def __init__(self, app: ASGIApp) -> None:
        now = settings()
        self._app = app
        inner: Any = app  # uvicorn's ASGI types differ from Starlette's
        self._from_proxy: Any = ProxyHeadersMiddleware(inner, list(now.trusted_proxies))
        self._trusted = [ipaddress.ip_network(text, strict=False) for text in now.trusted_proxies]
        self._names = {_dashed(name) for name in (now.user_header, now.groups_header)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request or a websocket."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
        elif self._is_trusted(scope.get("client")):
            await self._from_proxy(scope, receive, send)
        else:
            headers = [pair for pair in scope["headers"] if not self._is_proxy_header(pair[0])]
            await self._app({**scope, "headers": headers}, receive, send)

    def _is_trusted(self, client: Sequence[object] | None) -> bool:
        if not client:  # a socket without an address
            return False
        try:
            address = ipaddress.ip_address(str(client[0]))
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None) or address
        return any(mapped in network for network in self._trusted)

    def _is_proxy_header(self, name: bytes) -> bool:
        text = _dashed(name.decode("latin-1"))
        return text in self._names or text in _FORWARDED or text.startswith(_FORWARDED_PREFIX)


def _dashed(name: str) -> str:
    """Return a normalized header name; some programs treat underscores as dashes."""
    return name.lower().replace("_", "-")
