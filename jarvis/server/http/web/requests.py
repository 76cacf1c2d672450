"""Request ids, the access log and request metrics."""

import logging
import re
import secrets
from time import perf_counter

import structlog
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jarvis.core.product import UPLOADS
from jarvis.server.http.web.errors import Refusal, header
from jarvis.server.http.web.metrics import count_request, open_session, route_of
from jarvis.server.logs import about

ID_HEADER = "X-Request-ID"
PERSON = "jarvis.person"
"""Key of the authenticated person's name in the scope of a request."""

_SANE_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_UPLOAD = re.compile(f"({UPLOADS}/[^/]{{1,8}})[^/]*")
_SESSION = "/_stcore/stream"
_CORE = "/_stcore/"
_QUIET = ("/static/", "/healthz", "/readyz", "/metrics", "/favicon")
"""Frequent requests of browsers and monitoring, logged at DEBUG unless they fail."""

log = logging.getLogger(__name__)


def name_person(scope: Scope, name: str | None) -> None:
    """Set the person in the access log and in all log lines of this request."""
    scope[PERSON] = name
    about(person=name)


class Requests:
    """Assigns request ids, logs and counts requests, and answers unexpected errors with 500."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        structlog.contextvars.clear_contextvars()
        observed = _ObservedRequest(scope, receive, send)
        about(request=observed.id)
        try:
            if scope["type"] == "websocket" and scope["path"].endswith(_SESSION):
                with open_session():
                    await self._app(scope, receive, observed.send)
            else:
                await self._app(scope, observed.receive, observed.send)
        except Exception:
            log.exception("request failed", extra={"path": _path(scope)})
            if observed.status is not None:
                raise
            message = (
                "Internal error. Try again; if it persists, give an admin of this server the "
                f"request id: {observed.id}."
            )
            await Refusal(500, message)(scope, receive, observed.send)
        finally:
            observed.log_and_count()


class _ObservedRequest:
    """Records the status and the sizes of a request while it is answered."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        value = header(scope, ID_HEADER) or ""
        self.id = value if _SANE_ID.fullmatch(value) else secrets.token_hex(8)
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

    def log_and_count(self) -> None:
        """Log the request and update the metrics."""
        scope, status = self._scope, self.status or 499  # 499: the client disconnected
        elapsed_s = perf_counter() - self._begin
        if scope["type"] == "http":
            count_request(scope, status, elapsed_s, self._received_bytes)
        client = scope.get("client")
        fields = {
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
        log.log(_level(scope, status), "request", extra=fields)


def _path(scope: Scope) -> str:
    """Return the raw path for logs: without control characters, without the query, which may
    contain secrets, and with upload ids truncated."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return _UPLOAD.sub(r"\1...", raw[:500].decode("ascii", "backslashreplace"))


def _level(scope: Scope, status: int) -> int:
    if status >= 500:
        return logging.ERROR
    is_quiet = scope["path"].startswith(_QUIET) and status < 400
    if scope["type"] == "http" and (is_quiet or _CORE in scope["path"]):
        return logging.DEBUG
    return logging.INFO
