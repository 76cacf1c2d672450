"""Liveness and readiness checks with timeouts, and metrics."""

import asyncio
import time
from collections.abc import Callable
from threading import Event

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import Engine
from starlette.applications import Starlette
from starlette.testclient import TestClient
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from jarvis.server import claims, queue
from jarvis.server.database import JobKind, JobState
from jarvis.server.errors import DatabaseError
from jarvis.server.http.app import routes
from jarvis.server.http.web import health
from jarvis.server.http.web.health import FRESH_S, TimedProbe
from jarvis.server.http.web.metrics import queue_figures
from jarvis.server.queue import JobProgress, NewJob, Outcome
from tests.server.web.awaiting import awaited
from tests.server.working import wait_for
from tests.services.serving import TIMEOUT_S, Serving


@pytest.fixture
def client(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    fresh = {name: TimedProbe(ask, health.ANSWER_S) for name, ask in health.NEEDS.items()}
    monkeypatch.setattr(health, "_probes", fresh)
    return TestClient(Starlette(routes=routes()))


def _lacks(monkeypatch: pytest.MonkeyPatch, need: str, ask: Callable[[], str]) -> None:
    monkeypatch.setitem(health._probes, need, TimedProbe(ask, 0.2))


def test_a_server_at_work_is_ready(served: Serving) -> None:
    deadline = time.monotonic() + 60
    answer = served.client.get("/readyz")
    while answer.status_code != 200 and time.monotonic() < deadline:  # the worker starts
        time.sleep(FRESH_S)
        answer = served.client.get("/readyz")
    parts = answer.json()["parts"]
    assert set(parts) == {"database", "artifact root", "worker"}
    assert all(part["ready"] for part in parts.values())


def test_without_a_worker_it_is_not_ready_but_alive(client: TestClient, engine: Engine) -> None:
    answer = client.get("/readyz")
    assert answer.status_code == 503
    parts = answer.json()["parts"]
    assert [name for name, part in parts.items() if not part["ready"]] == ["worker"]
    assert "No worker heartbeat" in parts["worker"]["detail"]
    assert client.get("/healthz").status_code == 200
    claims.record_heartbeat(engine, "w", 1, {})
    time.sleep(FRESH_S)
    assert client.get("/readyz").status_code == 200


def test_a_database_that_cannot_be_used_is_reported(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> str:
        raise DatabaseError("connection refused")

    _lacks(monkeypatch, "database", gone)
    part = client.get("/readyz").json()["parts"]["database"]
    assert not part["ready"]
    assert "connection refused" in part["detail"]


def test_a_database_that_hangs_holds_nothing_up(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, is_over = [], Event()

    def hangs() -> str:
        asked.append(1)
        is_over.wait(30)
        return "at last"

    _lacks(monkeypatch, "database", hangs)
    begin = time.monotonic()
    answers = [client.get("/readyz") for _ in range(3)]
    assert time.monotonic() - begin < 25, "less than the 30 s of the check"
    assert {answer.status_code for answer in answers} == {503}
    assert "No answer within" in answers[0].json()["parts"]["database"]["detail"]
    assert len(asked) == 1, "one question at a time"
    is_over.set()


def test_a_database_of_another_version_is_not_ready(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "HEAD", "9999")
    part = client.get("/readyz").json()["parts"]["database"]
    assert not part["ready"]
    assert "this server needs 9999" in part["detail"]


def test_an_answer_serves_all_who_ask_at_once() -> None:
    asked: list[int] = []

    def ask() -> int:
        asked.append(1)
        return 7

    async def many() -> list[int]:
        patience = TimedProbe(ask, 1)
        return [*(await asyncio.gather(*(patience.answer() for _ in range(20))))]

    assert awaited(many()) == [7] * 20
    assert len(asked) == 1


def _figures(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(text)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_requests_are_counted_by_route_not_by_address(served: Serving) -> None:
    for number in range(3):
        served.client.get(f"/_stcore/bidi-components/x{number}/y.js")
    served.client.get("/healthz")
    figures = _figures(served.client.get("/metrics").text)
    routes = {dict(labels)["route"] for name, labels in figures if name.endswith("_requests_total")}
    assert "/healthz" in routes
    assert not [route for route in routes if "x1" in route]
    labels = (("method", "GET"), ("route", "/healthz"), ("status", "200"))
    assert figures["jarvis_http_requests_total", labels] >= 1
    assert figures["jarvis_http_request_seconds_count", labels[:2]] >= 1
    assert figures["process_resident_memory_bytes", ()] > 10e6
    assert figures["jarvis_database_up", ()] == 1
    wait_for(lambda: _figures(served.client.get("/metrics").text)["jarvis_workers", ()] == 1)


def test_an_open_page_is_counted_while_it_is_open(served: Serving) -> None:
    def sessions() -> float:
        return _figures(served.client.get("/metrics").text)["jarvis_sessions", ()]

    address = f"ws://127.0.0.1:{served.port}/_stcore/stream"
    with connect(address, subprotocols=[Subprotocol("streamlit")], open_timeout=TIMEOUT_S):
        assert sessions() == 1
    deadline = time.monotonic() + 60
    while sessions() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert sessions() == 0


def test_the_queue_is_counted(engine: Engine) -> None:
    for number in range(4):
        queue.submit(engine, NewJob(JobKind.ANALYZE, f"job {number}", {"n": number}))
    claims.record_heartbeat(engine, "w", 3, {})
    for _ in range(2):
        taken = claims.claim(engine, "w")
        assert taken is not None
        claims.finish(engine, "w", taken.id, JobProgress(), Outcome(JobState.DONE))
    claims.claim(engine, "w")
    figures = queue_figures(engine)
    assert figures.jobs == {
        ("analyze", "done"): 2,
        ("analyze", "running"): 1,
        ("analyze", "queued"): 1,
    }
    assert (figures.workers, figures.slots) == (1, 3)
    assert 0 < figures.oldest_queued_s < 60
    assert len(figures.job_times_s["analyze"]) == 2
