"""Security headers of all responses: no external resources, no embedding in frames."""

import base64
import hashlib
from collections.abc import Mapping

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jarvis.server.http.web.page_base import SCRIPT


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
