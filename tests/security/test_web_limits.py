"""Limits of the web server: headers, incomplete requests, metrics, logged ids."""

import asyncio
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient
from uvicorn.config import Config
from uvicorn.server import ServerState

from jarvis.cli.serve import _options
from jarvis.server.http.api import analysis_routes
from jarvis.server.http.web.bodies import (
    HEADERS_S,
    MAX_HEADER_BYTES,
    HeaderLimits,
    TimedH11Protocol,
)
from jarvis.server.http.web.errors import ClosedPaths
from jarvis.server.http.web.headers import SecureHeaders
from jarvis.server.http.web.requests import Requests
from jarvis.server.submission import Submission, submit
from tests.builders import trace


def client_of(*middleware: Middleware) -> TestClient:
    """An application that answers every path and sets two cookies."""

    def answer(_: Request) -> Response:
        response = PlainTextResponse("here")
        response.set_cookie("login", "signed", httponly=True)
        response.set_cookie("strict", "secure", secure=True)
        return response

    routes = [Route("/{path:path}", answer)]
    return TestClient(Starlette(routes=routes, middleware=middleware))


@pytest.mark.parametrize(
    ("headers", "path"),
    [
        ({"X-Long": "x" * MAX_HEADER_BYTES}, "/"),
        ({f"X-{n}": "x" * 700 for n in range(100)}, "/"),
        ({"X-Long": "x" * 6000}, f"/?q={'x' * 60_000}"),
    ],
)
def test_long_headers_are_rejected(headers: dict[str, str], path: str) -> None:
    answer = client_of(Middleware(HeaderLimits)).get(path, headers=headers)
    assert answer.status_code == 431
    assert f"{MAX_HEADER_BYTES:,}" in answer.text


def test_short_headers_are_accepted() -> None:
    headers = {"Cookie": "x" * (MAX_HEADER_BYTES - 1000)}
    assert client_of(Middleware(HeaderLimits)).get("/", headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["/_stcore/metrics", "/_stcore/metrics/", "/base/_stcore/metrics"])
def test_streamlits_metrics_are_closed(path: str) -> None:
    client = client_of(Middleware(ClosedPaths))
    assert client.get(path).status_code == 404
    assert client.get("/_stcore/health").status_code == 200


@pytest.mark.parametrize(
    ("public_url", "login"),
    [
        ("https://jarvis.example.org", "login=signed; HttpOnly; Path=/; SameSite=lax; Secure"),
        ("http://jarvis.example.org", "login=signed; HttpOnly; Path=/; SameSite=lax"),
        (None, "login=signed; HttpOnly; Path=/; SameSite=lax"),
    ],
)
def test_behind_https_cookies_are_sent_by_https_alone(public_url: str | None, login: str) -> None:
    answer = client_of(Middleware(SecureHeaders, public_url=public_url)).get("/")
    assert answer.headers.get_list("set-cookie") == [
        login,
        "strict=secure; Path=/; SameSite=lax; Secure",
    ]


@pytest.mark.parametrize(
    ("opens_windows", "policy"), [(True, "same-origin-allow-popups"), (False, "same-origin")]
)
def test_no_window_that_opens_a_page_can_reach_it(opens_windows: bool, policy: str) -> None:
    secure = Middleware(SecureHeaders, public_url=None, opens_windows=opens_windows)
    assert client_of(secure).get("/").headers["cross-origin-opener-policy"] == policy


def test_the_log_contains_only_the_start_of_an_upload_id(caplog: pytest.LogCaptureFixture) -> None:
    upload = "0123456789abcdef" * 2 + "-01234567-2a"
    with caplog.at_level(logging.INFO, "jarvis.server.http.web.requests"):
        client_of(Middleware(Requests)).get(f"/api/uploads/{upload}")
        client_of(Middleware(Requests)).get("/api/uploads")
    paths = [vars(record)["path"] for record in caplog.records if record.message == "request"]
    assert paths == ["/api/uploads/01234567...", "/api/uploads"]


class _Loop:
    """Event loop that records timers."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[[], Any], Mock]] = []

    def call_later(self, seconds: float, call: Callable[[], Any], *_: Any) -> Mock:
        handle = Mock()
        self.timers.append((seconds, call, handle))
        return handle

    def create_task(self, work: Any, **_: Any) -> Mock:
        work.close()
        return Mock()


def connected(ws: str = "none") -> tuple[TimedH11Protocol, _Loop, Mock]:
    """Return a new connection."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0)

    loop, transport = _Loop(), Mock()
    transport.get_extra_info.return_value = None
    config = Config(app, lifespan="off", log_config=None, ws=ws)
    made: Any = TimedH11Protocol
    protocol = made(config, ServerState(), {}, loop)
    protocol.connection_made(transport)
    return protocol, loop, transport


def test_an_incomplete_request_is_closed_after_the_timeout() -> None:
    protocol, loop, transport = connected()
    for piece in (b"GET / HTTP/1.1\r\n", b"Host: a\r\n", b"X-Slow: 1\r\n"):
        protocol.data_received(piece)
    ((seconds, expire, handle),) = loop.timers  # more bytes do not make it longer
    assert seconds == HEADERS_S
    handle.cancel.assert_not_called()
    transport.close.assert_not_called()
    expire()
    transport.close.assert_called_once()


def test_a_complete_request_is_not_closed() -> None:
    protocol, loop, _ = connected()
    protocol.data_received(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n")
    ((_, _, handle),) = loop.timers
    handle.cancel.assert_called_once()
    protocol.data_received(b"123")
    assert len(loop.timers) == 1, "a body that arrives slowly has limits of its own"


def test_a_closed_connection_stops_the_timer() -> None:
    protocol, loop, _ = connected()
    protocol.connection_lost(None)
    ((_, _, handle),) = loop.timers
    handle.cancel.assert_called_once()


def test_jarvis_serve_sets_the_header_limits(home: object) -> None:
    options = _options(Mock(host="127.0.0.1", port=1))
    assert options[options.index("--http") + 1] == (
        "jarvis.server.http.web.bodies:TimedH11Protocol"
    )
    assert options[options.index("--h11-max-incomplete-event-size") + 1] == str(MAX_HEADER_BYTES)


@pytest.mark.parametrize("address", ["", "/artifacts", "/artifacts/manifest.json"])
def test_an_analysis_deleted_while_being_read_is_not_found(
    client: TestClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    address: str,
) -> None:
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12.0)
    stored = submit(Submission(built.write(tmp_path / "trace.json")))
    asked_for = f"/api/analyses/{stored.id}{address}"
    assert client.get(asked_for).status_code == 200

    def removed_after(found: Callable[..., Any]) -> Callable[..., Any]:
        def find(*given: Any) -> Any:
            answer = found(*given)
            shutil.rmtree(stored.root)
            return answer

        return find

    name = "artifact_paths" if address else "analysis_root"
    monkeypatch.setattr(analysis_routes, name, removed_after(getattr(analysis_routes, name)))
    answer = client.get(asked_for)
    assert answer.status_code == 404
    assert "deleted" in answer.json()["error"]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
