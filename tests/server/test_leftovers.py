"""Cleanup of partial results of dead jobs."""

from pathlib import Path

from sqlalchemy import Engine

from jarvis.core.workspace import analyses_dir
from jarvis.server.database import JobKind, JobState
from jarvis.server.jobs import claims, queue
from jarvis.server.jobs.queue import JobProgress, NewJob, Outcome
from jarvis.server.retention.housekeeping import delete_orphans


def staged(name: str, label: str, kind: str = "new") -> Path:
    folder = analyses_dir() / f".{name}.{kind}-{label}0123abcd"
    folder.mkdir(parents=True)
    return folder


def test_only_attempts_that_run_no_more_are_cleared_away(engine: Engine) -> None:
    running, ended = (
        queue.submit(engine, NewJob(JobKind.ANALYZE, name, {"trace": name})) for name in "ab"
    )
    for _ in range(2):
        claims.claim(engine, "w")
    claims.finish(engine, "w", ended.id, JobProgress(), Outcome(JobState.FAILED, "It failed."))
    kept = staged("a", f"job-{running.id}-1-"), staged("other", "")
    gone = (
        staged("a", f"job-{running.id}-0-"),
        staged("b", f"job-{ended.id}-1-"),
        staged("c", "job-0123456789-1-"),
    )
    replaced = staged("d", f"job-{ended.id}-1-", "old")
    delete_orphans(engine)
    assert all(folder.is_dir() for folder in kept)
    assert not any(folder.exists() for folder in gone)
    assert not replaced.exists()
    assert (analyses_dir() / "d").is_dir(), "the only copy of what was being replaced"
