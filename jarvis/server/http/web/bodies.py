"""How much a request may carry."""

from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jarvis.core.protocol import UPLOADS
from jarvis.server.http.web.errors import header, refuse

MAX_BYTES = 1 << 20
"""What a form, a login or a question to the API needs by far not."""

MAX_HEADER_BYTES = 64 << 10
"""Of the headers of a request and its address together."""

COUNTED_ELSEWHERE = (UPLOADS, "/_stcore/upload_file/")
"""Where files arrive, limits of their own apply."""


class _TooLargeError(Exception):
    """More arrived than is allowed."""


class _Counted:
    """A request whose body is counted; once it is too large, no answer is given to it."""

    def __init__(self, receive: Receive, send: Send, most_bytes: int) -> None:
        self._receive, self._send, self._left_bytes = receive, send, most_bytes
        self.has_begun = False

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
        if self.has_begun or not self.is_too_large:
            self.has_begun = True
            await self._send(message)


class HeaderLimits:
    """Refuses a request with too long headers; the server alone limits incomplete ones only."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan" and _header_bytes(scope) > MAX_HEADER_BYTES:
            await refuse(
                scope,
                receive,
                send,
                431,
                f"The address and headers of the request have more than {MAX_HEADER_BYTES:,} "
                "bytes, which nothing here needs. Remove cookies of this site, then try again.",
                {"connection": "close"},
            )
        else:
            await self._app(scope, receive, send)


def _header_bytes(scope: Scope) -> int:
    address = len(scope.get("raw_path") or b"") + len(scope.get("query_string", b""))
    return address + sum(len(name) + len(value) for name, value in scope["headers"])


class BodyLimits:
    """Refuses what carries too much, before or while it arrives."""

    def __init__(self, app: ASGIApp, most_bytes: int = MAX_BYTES) -> None:
        self._app = app
        self._most_bytes = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(COUNTED_ELSEWHERE):
            await self._app(scope, receive, send)
            return
        declared = header(scope, "content-length") or "0"
        if not declared.isdecimal() or int(declared) > self._most_bytes:
            await self._refuse(scope, receive, send)
            return
        counted = _Counted(receive, send, self._most_bytes)
        with suppress(_TooLargeError):
            await self._app(scope, counted.receive, counted.send)
        if counted.is_too_large and not counted.has_begun:
            await self._refuse(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        await refuse(
            scope,
            receive,
            send,
            413,
            f"The request carries more than {self._most_bytes:,} bytes, which nothing here needs. "
            "Send traces as uploads.",
            {"connection": "close"},
        )
