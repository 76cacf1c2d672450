"""The commands of the guide back up and restore a running server."""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread

import pytest
from sqlalchemy import Engine

from jarvis.core.staging import staged_folder
from jarvis.core.workspace import RunPaths, analyses_dir
from jarvis.server import claims, queue
from jarvis.server.claims import HEARTBEAT_TIMEOUT_S
from jarvis.server.database import JobKind, JobState, database
from jarvis.server.ingest.intake import store_upload
from jarvis.server.queue import JobProgress, NewJob
from jarvis.server.storage.catalog import pinned, read_catalog, set_pinned
from jarvis.server.submission import StoredAnalysis, Submission, submit
from tests import optional
from tests.builders import trace
from tests.server.conftest import on_both_databases, set_owner
from tests.services.postgres import URL_VARIABLE, Postgres

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "keep-analyses.md"


def commands(name: str) -> str:
    """The commands of the guide under a mark."""
    found = re.search(rf"<!-- {name} -->\n```sh\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def run(script: str, places: Mapping[str, Path | str]) -> str:
    programs = optional.postgres_programs()[-1:]
    path = os.pathsep.join(
        [str(Path(sys.executable).parent), *map(str, programs), os.environ["PATH"]]
    )
    environment = {**os.environ, "PATH": path} | {k: str(v) for k, v in places.items()}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def stored(engine: Engine, tmp_path: Path) -> StoredAnalysis:
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12)
    with built.write(tmp_path / "tiny.json").open("rb") as content:
        return submit(Submission(store_upload("tiny.json", content), model_name="Tiny"))


def work(engine: Engine, root: Path, job_id: str, is_over: Event) -> None:
    """Load of a running server: heartbeats, progress, new jobs, new analyses."""
    for number in range(100_000):
        if is_over.is_set():
            return
        claims.record_heartbeat(
            engine, "w", 1, {job_id: JobProgress("Step", number, 9, 1.0, log="x" * 1000)}
        )
        queue.submit(engine, NewJob(JobKind.ANALYZE, "Analyze", {"trace": str(number)}))
        with staged_folder(root.with_name(f"made{number}")) as folder:
            shutil.copytree(root, folder, dirs_exist_ok=True)


@on_both_databases
def test_a_server_at_work_is_backed_up_and_restored(
    stored: StoredAnalysis,
    engine: Engine,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    set_pinned(stored.id, is_pinned=True)
    set_owner(stored.id, "ann")
    running = queue.submit(engine, NewJob(JobKind.ANALYZE, "Analyze it", {"trace": "a"}))
    assert claims.claim(engine, "w") is not None
    is_over = Event()
    worker = Thread(target=work, args=(engine, stored.root, running.id, is_over))
    worker.start()
    is_file = engine.dialect.name == "sqlite"
    kind = "" if is_file else "-postgresql"
    places: dict[str, Path | str] = {"JARVIS_HOME": home, "BACKUP": tmp_path / "backup"}
    try:
        run(commands(f"backup{kind}"), places)
    finally:
        is_over.set()
        worker.join()

    restored = tmp_path / "restored"
    monkeypatch.setenv("JARVIS_HOME", str(restored))
    with ExitStack() as stack:
        if not is_file:
            server: Postgres = request.getfixturevalue("postgres")
            url = stack.enter_context(server.fresh_database())
            monkeypatch.setenv(URL_VARIABLE, url)
        listed = run(commands(f"restore{kind}"), {**places, "JARVIS_HOME": restored})
        assert stored.id in listed
        check_restored(stored, restored)
        if is_file:
            with sqlite3.connect(restored / "jarvis.db") as copy:
                assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert {job.id for job in queue.recent(database(), limit=1000)} >= {running.id}
        database().dispose()


def check_restored(stored: StoredAnalysis, restored: Path) -> None:
    """Everything is as it was."""
    catalog = read_catalog()
    assert catalog.broken == ()
    for entry in catalog.entries:
        assert contents(entry.root) == contents(stored.root)
    assert catalog.find(stored.id).owner == "ann"
    assert pinned() == {stored.id}
    assert not list(analyses_dir().glob(".*"))
    assert submit(Submission(next(restored.glob("traces/*/*")), model_name="Tiny")).is_reused


def contents(root: Path) -> dict[str, bytes]:
    assert RunPaths(root).manifest.is_file()
    return {str(f.relative_to(root)): f.read_bytes() for f in root.rglob("*") if f.is_file()}


def test_a_job_that_ran_during_the_backup_can_be_retried(
    engine: Engine, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = queue.submit(engine, NewJob(JobKind.ANALYZE, "Analyze it", {"trace": "a"}))
    waiting = queue.submit(engine, NewJob(JobKind.ANALYZE, "Analyze it", {"trace": "b"}))
    assert claims.claim(engine, "w") is not None
    places = {"JARVIS_HOME": home, "BACKUP": tmp_path / "backup"}
    run(commands("backup"), places)
    restored = tmp_path / "restored"
    run(commands("restore"), {**places, "JARVIS_HOME": restored})
    monkeypatch.setenv("JARVIS_HOME", str(restored))
    monkeypatch.setattr(claims, "HEARTBEAT_TIMEOUT_S", -1)
    assert HEARTBEAT_TIMEOUT_S < 30
    copy = database()
    assert [job.id for job in claims.fail_stale_jobs(copy)] == [running.id]
    assert queue.find(copy, running.id).state is JobState.FAILED
    assert queue.retry(copy, running.id).state is JobState.QUEUED
    assert queue.find(copy, waiting.id).state is JobState.QUEUED
    assert queue.find(engine, running.id).state is JobState.RUNNING
