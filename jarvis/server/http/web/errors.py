"""Error responses of the middleware."""

from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from jarvis.core.product import API

_DENIAL = "websocket.http.response"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Application that rejects a request or websocket with a status and a message."""

    status: int
    message: str
    headers: dict[str, str] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" and _DENIAL not in scope.get("extensions", {}):
            await WebSocketClose(code=1008)(scope, receive, send)
            return
        response: Response
        if scope["path"].startswith(f"{API}/"):
            response = JSONResponse({"error": self.message}, self.status, self.headers)
        else:
            response = PlainTextResponse(f"{self.message}\n", self.status, self.headers)
        await response(scope, receive, send)


def header(scope: Scope, name: str) -> str | None:
    """Return the value of a header, joined if it is repeated; None if it is missing."""
    values = Headers(scope=scope).getlist(name)
    return ", ".join(values) if values else None


_CLOSED = ("/_stcore/metrics",)
"""Streamlit's metrics, which are expensive; ``/metrics`` has the metrics of Jarvis."""


_NOT_FOUND = Refusal(404, "Not found. The metrics of this server are at /metrics.")


class ClosedPaths:
    """Answers requests for these paths with 404."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_closed = scope["type"] != "lifespan" and scope["path"].rstrip("/").endswith(_CLOSED)
        await (_NOT_FOUND if is_closed else self._app)(scope, receive, send)
