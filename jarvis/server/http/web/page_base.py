"""Sets the base URL of Streamlit's backend in each page.

Without it, a deep link first requests ``/PAGE/_stcore/health`` and ``/PAGE/_stcore/host-config``,
which log two errors in the browser's console.
"""

import re

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SCRIPT = 'window.__streamlit={BACKEND_BASE_URL:new URL(".",location.href).href}'
"""URL relative to the page, like those of its scripts and styles."""

_PAGE = re.compile(r"/[^/]*")
"""Paths of pages have one part; other HTML is the API reference or a downloaded report."""

_TAG = b"<head>"
_HTML = "text/html"
_CONDITIONAL_HEADERS = frozenset(
    (b"accept-encoding", b"if-modified-since", b"if-none-match", b"if-range", b"range")
)
"""Request headers for compressed, partial or not-modified responses; removed from requests."""


class PageBase:
    """Adds the script to every page that a browser navigates to."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not _is_navigation(scope):
            await self._app(scope, receive, send)
            return
        headers = [pair for pair in scope["headers"] if pair[0] not in _CONDITIONAL_HEADERS]
        await self._app({**scope, "headers": headers}, receive, _Page(send).send)


def _is_navigation(scope: Scope) -> bool:
    is_page = scope["type"] == "http" and scope["method"] == "GET"
    return (
        is_page
        and _PAGE.fullmatch(scope["path"]) is not None
        and _HTML in Headers(scope=scope).get("accept", "")
    )


class _Page:
    """Buffers an HTML response and sends it with the script inserted."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None
        self._body = b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if Headers(raw=message["headers"]).get("content-type", "").startswith(_HTML):
                self._start = message
                return
        elif self._start is not None and message["type"] == "http.response.body":
            self._body += message.get("body", b"")
            if message.get("more_body", False):
                return
            self._body = self._body.replace(_TAG, _TAG + _ELEMENT, 1)
            headers = MutableHeaders(raw=self._start["headers"])
            headers["content-length"] = str(len(self._body))
            del headers["etag"], headers["last-modified"]  # they belong to the unmodified file
            await self._send(self._start)
            message = {"type": "http.response.body", "body": self._body}
        await self._send(message)


_ELEMENT = f"<script>{SCRIPT}</script>".encode()
