"""Security headers of all responses, and the base URL of pages."""

import base64
import hashlib
import re
from collections.abc import Mapping

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
    """Sets the base URL of Streamlit's backend by a script in every page that a browser opens.

    Without it, a deep link first requests ``_stcore/health`` and ``_stcore/host-config`` below the
    page, which log two errors in the browser's console.
    """

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


def source_of(script: str) -> str:
    """Return the CSP source expression that allows exactly this inline script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


INLINE_SCRIPT = "'sha256-THxz9J9+wf7rhwR2YkXJoSZ13UCmYyC+3lNDv2+8ugA='"
"""The inline script of Streamlit's page, which tells search engines that it is not rendered yet."""

CONTENT_SECURITY_POLICY: Mapping[str, tuple[str, ...]] = {
    "default-src": ("'self'",),
    # custom components are loaded as blobs
    "script-src": ("'self'", "blob:", INLINE_SCRIPT, source_of(SCRIPT)),
    "style-src": ("'self'", "'unsafe-inline'"),
    "img-src": ("'self'", "data:", "blob:"),
    "font-src": ("'self'", "data:"),
    "connect-src": ("'self'",),
    "worker-src": ("'self'",),
    "object-src": ("'none'",),
    "frame-src": ("'none'",),
    "frame-ancestors": ("'none'",),
    "base-uri": ("'none'",),
    "form-action": ("'self'",),
}
HSTS_S = 31_536_000
"""Lifetime of Strict-Transport-Security: one year."""

_FIXED = {
    "Content-Security-Policy": "; ".join(
        f"{directive} {' '.join(sources)}" for directive, sources in CONTENT_SECURITY_POLICY.items()
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # URLs contain the ids of analyses
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


def _secure(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Return a header; add ``Secure`` to a cookie without it."""
    is_insecure = name.lower() == b"set-cookie" and b"secure" not in value.lower().split(b"; ")[1:]
    return name, value + b"; Secure" if is_insecure else value


class SecureHeaders:
    """Adds the headers to each response unless the response sets them itself.

    If the public URL is https, cookies become ``Secure``, which Streamlit's login does not set.
    Pages that pass data to windows of another site (``opens_windows``) must keep a reference to the
    windows that they open; windows that open a page never get one to it.
    """

    def __init__(
        self, app: ASGIApp, public_url: str | None, *, opens_windows: bool = False
    ) -> None:
        self._app = app
        self._headers = dict(_FIXED)
        policy = "same-origin-allow-popups" if opens_windows else "same-origin"
        self._headers["Cross-Origin-Opener-Policy"] = policy
        self._is_https = False
        if public_url and public_url.lower().startswith("https://"):
            self._headers["Strict-Transport-Security"] = f"max-age={HSTS_S}"
            self._is_https = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_secured(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
                if self._is_https:
                    message["headers"] = [_secure(*pair) for pair in message["headers"]]
            await send(message)

        await self._app(scope, receive, send_secured)
