"""A real server rejects foreign hosts, foreign origins and too large requests."""

import http.client
import socket

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from jarvis.server.http.web.bodies import MAX_BYTES
from tests.services.serving import TIMEOUT_S, Serving

OURS = ("127.0.0.1", "LOCALHOST:80", "localhost.", "[::1]:8501", "jarvis.example.org")
FOREIGN = (
    "evil.example",
    "jarvis.example.org.evil.example",
    "evil.example:8501",
    "x@localhost",
    "localhost/..",
    "localhost:port",
    "127.0.0.1.nip.io",
    "[::1",
    "",
)


@pytest.mark.parametrize("host", OURS)
def test_names_of_the_server_are_answered(served: Serving, host: str) -> None:
    assert served.client.get("/healthz", headers={"Host": host}).json() == {"status": "ok"}


@pytest.mark.parametrize("host", FOREIGN)
@pytest.mark.parametrize("path", ["/", "/healthz", "/metrics", "/static/js/x.js", "/api/x"])
def test_other_names_are_not(served: Serving, host: str, path: str) -> None:
    answer = served.client.get(path, headers={"Host": host})
    assert answer.status_code == 400
    output = answer.json()["error"] if path.startswith("/api") else answer.text
    assert "does not accept requests for host" in output
    assert "JARVIS_ALLOWED_HOSTS" in output
    assert answer.headers["content-security-policy"]


def test_two_names_are_none(served: Serving) -> None:
    assert _raw(served, b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n") == 400


def _websocket(served: Serving, origin: str | None, host: str | None = None) -> None:
    address = f"ws://{host or '127.0.0.1'}:{served.port}/_stcore/stream"
    with socket.create_connection(("127.0.0.1", served.port)) as plain:
        subprotocols = [Subprotocol("streamlit")]
        given = None if origin is None else Origin(origin)
        with connect(
            address, sock=plain, origin=given, subprotocols=subprotocols, open_timeout=TIMEOUT_S
        ):
            pass


def test_a_websocket_of_our_own_page_is_opened(served: Serving) -> None:
    _websocket(served, None)
    _websocket(served, served.url)
    _websocket(served, "https://jarvis.example.org")  # behind a proxy that changes the host


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "http://"])
def test_a_websocket_of_another_page_is_not(served: Serving, origin: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        _websocket(served, origin)
    assert refused.value.response.status_code == 403
    assert b"a page of another site" in refused.value.response.body


def test_a_websocket_under_another_name_is_not(served: Serving) -> None:
    with pytest.raises(InvalidStatus) as refused:
        _websocket(served, "http://evil.example", "evil.example")
    assert refused.value.response.status_code == 400


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
def test_what_another_page_asks_for_is_refused(served: Serving, method: str) -> None:
    headers = {"Origin": "http://evil.example", "Content-Type": "text/plain"}
    answer = served.client.request(method, "/api/analyses", headers=headers, content="{}")
    assert answer.status_code == 403
    assert "another site" in answer.json()["error"]


@pytest.mark.parametrize("origin", ["https://jarvis.example.org", "https://JARVIS.example.org"])
def test_our_public_name_is_not_another_page(served: Serving, origin: str) -> None:
    answer = served.client.post("/nothing-here", headers={"Origin": origin})
    assert answer.status_code != 403


def test_a_body_that_is_too_large_is_refused_before_it_is_sent(served: Serving) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=TIMEOUT_S)
    connection.putrequest("POST", "/overview")
    connection.putheader("Content-Length", str(MAX_BYTES + 1))
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == 413
    assert b"Send traces as uploads" in answer.read()
    connection.close()


def test_headers_that_never_end_are_refused(served: Serving) -> None:
    assert _raw(served, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 200_000) == 400


def _raw(served: Serving, sent: bytes) -> int:
    with socket.create_connection(("127.0.0.1", served.port), timeout=TIMEOUT_S) as connection:
        connection.sendall(sent)
        return int(connection.recv(100).split()[1])
