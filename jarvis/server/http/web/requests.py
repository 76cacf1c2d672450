"""What is known of every request: its id, one line in the log, its part in the figures."""

import logging
import re
import secrets
from time import perf_counter

import structlog
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jarvis.core.protocol import UPLOADS
from jarvis.server.http.web.errors import header, refuse
from jarvis.server.http.web.metrics import count_request, open_session, route_of
from jarvis.server.logs import about

ID_HEADER = "X-Request-ID"
PERSON = "jarvis.person"
"""Where a request's scope has the name of who asked, once that is known."""

_SANE_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_UPLOAD = re.compile(f"({UPLOADS}/[^/]{{1,8}})[^/]*")
_SESSION = "/_stcore/stream"
_CORE = "/_stcore/"
_QUIET = ("/static/", "/healthz", "/readyz", "/metrics", "/favicon")
"""Asked all the time by browsers and watchers: a line only where it fails, or for debugging."""

log = logging.getLogger(__name__)


def name_person(scope: Scope, name: str | None) -> None:
    """Say who asked, for the line of this request and all that are written meanwhile."""
    scope[PERSON] = name
    about(person=name)


class Requests:
    """Gives every request an id, and writes down how it ended; what breaks becomes a sentence."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        structlog.contextvars.clear_contextvars()
        watched = _Watched(scope, receive, send)
        about(request=watched.id)
        try:
            if scope["type"] == "websocket" and scope["path"].endswith(_SESSION):
                with open_session():
                    await self._app(scope, receive, watched.send)
            else:
                await self._app(scope, watched.receive, watched.send)
        except Exception:
            log.exception("request failed", extra={"path": _path(scope)})
            if watched.status is not None:
                raise
            await refuse(
                scope,
                receive,
                watched.send,
                500,
                "Something went wrong in Jarvis. Try again; if it stays, tell the one who runs "
                f"this server the number of this request: {watched.id}.",
            )
        finally:
            watched.write_down()


class _Watched:
    """One request while it is answered."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        given = header(scope, ID_HEADER) or ""
        self.id = given if _SANE_ID.fullmatch(given) else secrets.token_hex(8)
        self.status: int | None = None
        self._begin = perf_counter()
        self._received_bytes = self._sent_bytes = 0

    async def receive(self) -> Message:
        message = await self._receive()
        self._received_bytes += len(message.get("body", b""))
        return message

    async def send(self, message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            self.status = message["status"]
            MutableHeaders(scope=message)[ID_HEADER] = self.id
        elif message["type"] == "websocket.accept":
            self.status = 101
        self._sent_bytes += len(message.get("body", b""))
        await self._send(message)

    def write_down(self) -> None:
        """The line and the figures."""
        scope, status = self._scope, self.status or 499  # 499: who asked has gone
        elapsed_s = perf_counter() - self._begin
        if scope["type"] == "http":
            count_request(scope, status, elapsed_s, self._received_bytes)
        client = scope.get("client")
        said = {
            "method": scope.get("method", "WEBSOCKET"),
            "path": _path(scope),
            "route": route_of(scope),
            "status": status,
            "seconds": round(elapsed_s, 3),
            "received_bytes": self._received_bytes,
            "sent_bytes": self._sent_bytes,
            "client": client[0] if client else None,
            "person": scope.get(PERSON),
        }
        log.log(_level(scope, status), "request", extra=said)


def _path(scope: Scope) -> str:
    """As it was sent, in which nothing is left that a terminal would take for more than letters;
    without what follows ``?``, where secrets may stand, and of an upload's id the beginning."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return _UPLOAD.sub(r"\1...", raw[:500].decode("ascii", "backslashreplace"))


def _level(scope: Scope, status: int) -> int:
    if status >= 500:
        return logging.ERROR
    is_quiet = scope["path"].startswith(_QUIET) and status < 400
    if scope["type"] == "http" and (is_quiet or _CORE in scope["path"]):
        return logging.DEBUG
    return logging.INFO
