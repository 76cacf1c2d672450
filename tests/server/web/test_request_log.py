"""Access log: one line per request, with its id."""

import json
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest

from jarvis.server.logs import configure_logs
from tests.services.serving import Serving


def _lines(served: Serving, request: str) -> list[dict[str, Any]]:
    """The lines of a request; they are written after its answer."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        lines = [json.loads(line) for line in served.lines() if line.endswith("}")]
        if found := [line for line in lines if line.get("request") == request]:
            return found
        time.sleep(0.01)
    return []


def test_a_request_has_one_line_under_the_id_that_was_given(served: Serving) -> None:
    served.client.get("/overview?token=secret", headers={"X-Request-ID": "from-the-proxy.1"})
    (line,) = _lines(served, "from-the-proxy.1")
    expected = {"event": "request", "method": "GET", "path": "/overview", "status": 200}
    assert expected.items() <= line.items()
    assert line["process"] == "web"
    assert line["client"] == "127.0.0.1"
    assert "secret" not in "".join(served.lines())


@pytest.mark.parametrize("given", ["a b", "x" * 65, "<script>", "%0a"])
def test_an_id_that_is_none_is_replaced(served: Serving, given: str) -> None:
    answer = served.client.get("/healthz", headers={"X-Request-ID": given})
    assert answer.headers["x-request-id"] != given
    assert len(_lines(served, answer.headers["x-request-id"])) == 1


def test_the_lines_of_the_web_server_are_of_the_same_kind(served: Serving) -> None:
    assert all(json.loads(line)["process"] for line in served.lines())
    assert not [line for line in served.lines() if "uvicorn.access" in line]


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield monkeypatch
    root.handlers, root.level = before, level


def test_a_name_in_a_message_begins_no_line_of_its_own(
    logs: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.setenv("JARVIS_LOG_FORMAT", "text")
    configure_logs("worker")
    logging.getLogger("jarvis.x").warning("read %s", "a\nforged\x1b[31m", extra={"job": "b\nc"})
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(r"warning worker jarvis.x: read a\nforged\u001b[31m job=b\nc")


def test_what_went_wrong_is_shown_in_full(
    logs: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.setenv("JARVIS_LOG_FORMAT", "json")
    configure_logs("worker")
    try:
        raise ValueError("of this kind")
    except ValueError:
        logging.getLogger("jarvis.x").exception("failed")
    line = json.loads(capsys.readouterr().err)
    assert line["exception"][0]["exc_type"] == "ValueError"


def test_lines_below_the_level_are_left_out(
    logs: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.setenv("JARVIS_LOG_LEVEL", "error")
    configure_logs("web")
    logging.getLogger("uvicorn.error").warning("quiet")
    logging.getLogger("uvicorn.error").error("loud")
    assert "loud" in capsys.readouterr().err
