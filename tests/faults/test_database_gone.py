"""Database outage: no job is lost, and pages wait or report it."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest
from sqlalchemy import Engine

from jarvis.core.workspace import analyses_dir, database_file
from jarvis.pipeline import STEPS
from jarvis.server import claims, queue
from jarvis.server.database import JobState, database
from jarvis.server.errors import DatabaseError
from jarvis.server.queue import Job
from jarvis.server.storage.catalog import analysis_root
from tests.server.working import (
    HELD_WORKER,
    ended,
    half_written,
    held_process,
    hold_at,
    is_done,
    new_analysis,
    submit_held,
    worker,
)
from tests.services.postgres import URL_VARIABLE, Postgres

GONE_S = 5.0
"""Ten seconds, and a crowd of users, are measured by ``benchmarks/team.py``."""

REAL_ABANDONED_S = str(claims.HEARTBEAT_TIMEOUT_S)

LOCK = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
time.sleep(float(sys.argv[2]))
"""


@contextmanager
def locked(file: Path, seconds: float) -> Iterator[None]:
    """Another process locks the database for the duration of the block."""
    command = (sys.executable, "-S", "-c", LOCK, str(file), str(seconds))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield
        process.wait(60)


@contextmanager
def stopped(server: Postgres, seconds: float) -> Iterator[None]:
    """Stop the server for at least this time."""
    begin = time.monotonic()
    server.stop()
    try:
        yield
        time.sleep(max(0.0, begin + seconds - time.monotonic()))
    finally:
        server.start()


def test_a_locked_database_delays_jobs_and_pages_and_loses_none(
    engine: Engine, trace_file: Path, pages_are_whole: Callable[..., None]
) -> None:
    with worker(HELD_WORKER, SLOTS="1", HEARTBEAT_TIMEOUT_S=REAL_ABANDONED_S):
        running = submit_held(engine, new_analysis(trace_file, "running"), 3)
        held_process(running.id)
        with locked(database_file(), GONE_S):
            hold_at(running.id, None)
            asked: list[Job] = []
            asking = Thread(
                target=lambda: asked.append(queue.submit(engine, new_analysis(trace_file, "new")))
            )
            asking.start()
            pages_are_whole("ingest", "jobs", job=running.id)
        asking.join()
        assert is_done(engine, running.id).attempts == 1
        assert is_done(engine, asked[0].id).attempts == 1
    assert half_written(analyses_dir()) == []


def test_a_postgresql_that_is_gone_for_a_while_loses_no_job(
    postgres: Postgres,
    postgres_url: str,
    home: Path,
    trace_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    pages_are_whole: Callable[..., None],
) -> None:
    monkeypatch.setenv(URL_VARIABLE, postgres_url)
    engine = database()
    with worker(HELD_WORKER, SLOTS="2", HEARTBEAT_TIMEOUT_S=REAL_ABANDONED_S):
        running = submit_held(engine, new_analysis(trace_file, "running"), 3)
        ending = submit_held(engine, new_analysis(trace_file, "ending"), len(STEPS))
        for job in (running, ending):
            held_process(job.id)
        with stopped(postgres, GONE_S):
            hold_at(ending.id, None)
            pages_are_whole(job=running.id)
            with pytest.raises(DatabaseError, match="database of this server cannot be used"):
                queue.submit(engine, new_analysis(trace_file, "new"))
        hold_at(running.id, None)
        assert is_done(engine, running.id).attempts == 1
        end = ended(engine, ending.id)
        if end.state is JobState.FAILED:
            assert "try again" in (end.error or ""), end.error
            queue.retry(engine, ending.id)
            end = is_done(engine, ending.id)
        assert end.analysis_id is not None
        assert analysis_root(end.analysis_id).is_dir()
        pages_are_whole(job=running.id, analysis=end.analysis_id)
    assert half_written(analyses_dir()) == []
