"""Limits on requests: size of header and body, and the time until a request is whole."""

import asyncio
from contextlib import suppress
from typing import Any

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from jarvis.core.product import UPLOADS
from jarvis.server.http.web.errors import Refusal, header

HEADERS_S = 20.0
"""Timeout for the request line and all headers together."""


class TimedH11Protocol(H11Protocol):
    """uvicorn's protocol with a timeout for headers, which uvicorn itself does not have."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start the timer for the first request."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Update the timer; bodies have their own limits."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Run the timer while headers are incomplete; more bytes do not restart it."""
        if self.conn.their_state is not h11.IDLE:
            self._stop()
        elif self._timer is None:
            self._timer = self.loop.call_later(HEADERS_S, self.transport.close)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


MAX_BYTES = 1 << 20
"""Maximum size of a request body other than uploads; forms and API requests are much smaller."""

MAX_HEADER_BYTES = 64 << 10
"""Maximum size of the headers and the URL together."""

UPLOAD_PATHS = (UPLOADS, "/_stcore/upload_file/")
"""Paths of file uploads, which have their own limits."""


class _TooLargeError(Exception):
    """The body exceeds the limit."""


class _LimitedRequest:
    """Counts the bytes of a body; no response is started once it is too large."""

    def __init__(self, receive: Receive, send: Send, max_bytes: int) -> None:
        self._receive, self._send, self._left_bytes = receive, send, max_bytes
        self.is_response_started = False

    @property
    def is_too_large(self) -> bool:
        return self._left_bytes < 0

    async def receive(self) -> Message:
        message = await self._receive()
        self._left_bytes -= len(message.get("body", b""))
        if self.is_too_large:
            raise _TooLargeError
        return message

    async def send(self, message: Message) -> None:
        if self.is_response_started or not self.is_too_large:
            self.is_response_started = True
            await self._send(message)


_CLOSE = {"connection": "close"}
_TOO_LARGE_HEADERS = Refusal(
    431,
    f"The URL and headers of the request exceed the limit of {MAX_HEADER_BYTES:,} bytes. Delete "
    "the cookies of this site, then try again.",
    _CLOSE,
)


class HeaderLimits:
    """Rejects requests with too large headers; uvicorn limits only incomplete ones."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_too_large = scope["type"] != "lifespan" and _header_bytes(scope) > MAX_HEADER_BYTES
        await (_TOO_LARGE_HEADERS if is_too_large else self._app)(scope, receive, send)


def _header_bytes(scope: Scope) -> int:
    address = len(scope.get("raw_path") or b"") + len(scope.get("query_string", b""))
    return address + sum(len(name) + len(value) for name, value in scope["headers"])


class BodyLimits:
    """Rejects too large bodies, by their declared length or while they are received."""

    def __init__(self, app: ASGIApp, max_bytes: int = MAX_BYTES) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._refusal = Refusal(
            413,
            f"The request body exceeds the limit of {max_bytes:,} bytes. Send traces as uploads.",
            _CLOSE,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(UPLOAD_PATHS):
            await self._app(scope, receive, send)
            return
        declared = header(scope, "content-length") or "0"
        if not declared.isdecimal() or int(declared) > self._max_bytes:
            await self._refusal(scope, receive, send)
            return
        limited = _LimitedRequest(receive, send, self._max_bytes)
        with suppress(_TooLargeError):
            await self._app(scope, limited.receive, limited.send)
        if limited.is_too_large and not limited.is_response_started:
            await self._refusal(scope, receive, send)
