"""Addresses of Streamlit that are not for visitors."""

from starlette.types import ASGIApp, Receive, Scope, Send

from jarvis.server.http.web.errors import refuse

_CLOSED = ("/_stcore/metrics",)
"""Streamlit's own figures, which cost time to compute; ``/metrics`` has ours."""


class ClosedPaths:
    """Answers as if there were nothing at these addresses."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan" and scope["path"].rstrip("/").endswith(_CLOSED):
            sentence = "There is nothing at this address. The figures of this server: /metrics."
            await refuse(scope, receive, send, 404, sentence)
        else:
            await self._app(scope, receive, send)
