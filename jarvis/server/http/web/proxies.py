"""Forwarding headers are used only if the connection comes from a trusted proxy."""

import ipaddress
from collections.abc import Sequence
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from jarvis.server.settings import settings

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
