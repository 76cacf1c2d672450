"""Log lines of a job have its id and that of the request that submitted it."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from sqlalchemy import Engine

from jarvis.server import claims, queue
from jarvis.server.database import JobKind, JobState
from jarvis.server.logs import about, configure_logs
from jarvis.server.queue import JobProgress, NewJob, Outcome


@pytest.fixture
def json_lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    monkeypatch.setenv("JARVIS_LOG_FORMAT", "json")
    yield
    root.handlers, root.level = before, level
    structlog.contextvars.clear_contextvars()


@pytest.mark.usefixtures("json_lines")
def test_a_job_is_followed_by_its_id(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("web")
    about(request="r-1")
    job = queue.submit(engine, NewJob(JobKind.ANALYZE, "a job", {}), "ada@example.org")
    queue.submit(engine, NewJob(JobKind.ANALYZE, "the same", {}), "ada@example.org")
    structlog.contextvars.clear_contextvars()
    configure_logs("worker")
    assert claims.claim(engine, "w") is not None
    failed = Outcome(JobState.FAILED, "for a reason")
    claims.finish(engine, "w", job.id, JobProgress(), failed)
    claims.finish(engine, "w", job.id, JobProgress(), failed)
    queued, begins, ended = map(_parts, capsys.readouterr().err.splitlines())
    assert queued == {
        "event": "job queued",
        "request": "r-1",
        "job": job.id,
        "kind": "analyze",
        "person": "ada@example.org",
        "process": "web",
    }
    assert (begins["event"], begins["job"], begins["process"]) == ("job started", job.id, "worker")
    assert (ended["event"], ended["state"], ended["error"]) == (
        "job ended",
        "failed",
        "for a reason",
    )


def _parts(line: str) -> dict[str, Any]:
    parts = json.loads(line)
    return {k: v for k, v in parts.items() if k not in ("timestamp", "level", "logger")}
