"""Blocks internal paths of Streamlit."""

from starlette.types import ASGIApp, Receive, Scope, Send

from jarvis.server.http.web.errors import refuse

_CLOSED = ("/_stcore/metrics",)
"""Streamlit's metrics, which are expensive; ``/metrics`` has the metrics of Jarvis."""


class ClosedPaths:
    """Answers requests for these paths with 404."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan" and scope["path"].rstrip("/").endswith(_CLOSED):
            message = "Not found. The metrics of this server are at /metrics."
            await refuse(scope, receive, send, 404, message)
        else:
            await self._app(scope, receive, send)
