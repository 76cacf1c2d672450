"""What a proxy says of a request is believed only where the connection comes from that proxy."""

import ipaddress
from collections.abc import Sequence
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from jarvis.server.settings import settings

_FORWARDED = ("forwarded", "x-real-ip")
_FORWARDED_PREFIX = "x-forwarded-"


class TrustedProxies:
    """Takes over the visitor's address and scheme from trusted proxies.

    From everyone else the headers that only a proxy may set are taken away, those that name the
    person first of all: whatever stands behind this need not look at the connection.
    """

    def __init__(self, app: ASGIApp) -> None:
        now = settings()
        self._app = app
        inner: Any = app  # its types and Starlette's say the same in other words
        self._from_proxy: Any = ProxyHeadersMiddleware(inner, list(now.trusted_proxies))
        self._trusted = [ipaddress.ip_network(text, strict=False) for text in now.trusted_proxies]
        self._names = {_dashed(name) for name in (now.user_header, now.groups_header)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or one websocket."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
        elif self._is_trusted(scope.get("client")):
            await self._from_proxy(scope, receive, send)
        else:
            own = {**scope, "headers": self._own(scope["headers"])}
            await self._app(own, receive, send)

    def _is_trusted(self, client: Sequence[object] | None) -> bool:
        if not client:  # a socket without an address
            return False
        try:
            address = ipaddress.ip_address(str(client[0]))
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None) or address
        return any(mapped in network for network in self._trusted)

    def _own(self, headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        return [(name, value) for name, value in headers if not self._is_a_proxys(name)]

    def _is_a_proxys(self, name: bytes) -> bool:
        text = _dashed(name.decode("latin-1"))
        return text in self._names or text in _FORWARDED or text.startswith(_FORWARDED_PREFIX)


def _dashed(name: str) -> str:
    """A header's name as all its spellings have it: some programs take underscores for dashes."""
    return name.lower().replace("_", "-")
