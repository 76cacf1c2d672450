"""User headers are accepted only from trusted proxies."""

from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from jarvis.server.http.web.hosts import TrustedProxies
from tests.server.web.awaiting import awaited

CLAIMS = (
    (b"x-forwarded-user", b"root@example.org"),
    (b"X_Forwarded_User", b"root@example.org"),
    (b"x-forwarded-groups", b"platform"),
    (b"x-forwarded-for", b"203.0.113.9"),
    (b"x-forwarded-proto", b"https"),
    (b"forwarded", b"for=127.0.0.1"),
    (b"x-real-ip", b"127.0.0.1"),
)
HARMLESS = (b"accept", b"text/html")


def _arrives(client: tuple[str, int] | None, kind: str = "http") -> dict[str, Any]:
    """The scope that the application behind the middleware receives."""
    seen: list[Scope] = []

    async def inner(scope: Scope, _receive: Receive, _send: Send) -> None:
        seen.append(scope)

    async def never(*_: Any) -> Any:
        raise AssertionError

    scheme = "ws" if kind == "websocket" else "http"
    scope = {
        "type": kind,
        "client": client,
        "scheme": scheme,
        "headers": [HARMLESS, *CLAIMS],
    }
    awaited(TrustedProxies(inner)(scope, never, never))
    return dict(seen[0])


@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_a_trusted_proxy_says_who_and_whence(kind: str) -> None:
    scope = _arrives(("127.0.0.1", 4711), kind)
    assert CLAIMS[0] in scope["headers"]
    assert scope["client"][0] == "203.0.113.9"
    assert scope["scheme"] == ("wss" if kind == "websocket" else "https")


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize(
    "client", [("203.0.113.9", 1), ("::ffff:203.0.113.9", 1), ("testclient", 1), None]
)
def test_what_anybody_else_claims_is_taken_away(client: tuple[str, int] | None, kind: str) -> None:
    scope = _arrives(client, kind)
    assert scope["headers"] == [HARMLESS]
    assert scope["client"] == client


def test_a_network_of_proxies_and_headers_of_other_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JARVIS_TRUSTED_PROXIES", "10.0.0.0/24")
    monkeypatch.setenv("JARVIS_USER_HEADER", "Remote_User")
    assert CLAIMS[0] in _arrives(("10.0.0.77", 1))["headers"]
    assert CLAIMS[0] in _arrives(("::ffff:10.0.0.77", 1))["headers"]
    assert _arrives(("127.0.0.1", 1))["headers"] == [HARMLESS]
    monkeypatch.setattr(f"{__name__}.CLAIMS", ((b"remote-user", b"root@example.org"),))
    assert _arrives(("10.0.1.77", 1))["headers"] == [HARMLESS]
