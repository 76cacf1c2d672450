"""A request or a websocket that is refused: a status, a sentence."""

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketClose

from jarvis.core.protocol import API

_DENIAL = "websocket.http.response"


async def refuse(
    scope: Scope,
    receive: Receive,
    send: Send,
    status: int,
    sentence: str,
    headers: dict[str, str] | None = None,
) -> None:
    """Answer with a status and a sentence; a websocket is not opened."""
    if scope["type"] == "websocket" and _DENIAL not in scope.get("extensions", {}):
        await WebSocketClose(code=1008)(scope, receive, send)
        return
    response: Response
    if scope["path"].startswith(f"{API}/"):  # programs are answered in JSON
        response = JSONResponse({"error": sentence}, status, headers)
    else:
        response = PlainTextResponse(f"{sentence}\n", status, headers)
    await response(scope, receive, send)


def header(scope: Scope, name: str) -> str | None:
    """The value of a header that must not come twice; None where it is not there."""
    found = Headers(scope=scope).getlist(name)
    return None if not found else ", ".join(found)
