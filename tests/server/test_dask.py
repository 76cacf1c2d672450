"""Jobs on a Dask cluster with real schedulers and workers, which are also killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pytest
from sqlalchemy import Engine

from jarvis.cli import main
from jarvis.core.errors import JarvisError
from jarvis.core.product import product_version
from jarvis.core.workspace import analyses_dir
from jarvis.pipeline import STEPS
from jarvis.ranks.run import DistributedRun
from jarvis.run import Run
from jarvis.server import claims, queue
from jarvis.server.actions import OPERATOR, submit_ranks
from jarvis.server.database import JobKind, JobState
from jarvis.server.errors import SettingsError
from jarvis.server.http.web.lifespan import job_slots, worker_command
from jarvis.server.ingest.intake import store_upload
from jarvis.server.jobs.dask import task
from jarvis.server.jobs.dask.task import Order, Report, storage_mark
from jarvis.server.jobs.kinds import Analyze, Inspect
from jarvis.server.jobs.processes.job_messages import Assignment
from jarvis.server.jobs.worker import set_up_worker
from jarvis.server.queue import FinishedStep, Job, JobProgress, Outcome
from jarvis.server.storage.catalog import analysis_root, read_catalog
from jarvis.server.submission import Submission
from tests.builders import trace
from tests.ranks.test_distributed import rank_trace
from tests.server.working import (
    HELD_WORKER,
    HOLDS_VARIABLE,
    ended,
    half_written,
    held_file,
    held_process,
    hold_at,
    is_alive,
    is_done,
    new_analysis,
    wait_for,
    worker,
)
from tests.services.dask import Dask

CANCEL_S = 20.0
"""It takes less than one second; a busy machine may take longer."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all tests here keep things, since the Dask workers are started once."""
    place = tmp_path_factory.mktemp("dask")
    (place / "root").mkdir()
    return place


def shared(place: Path) -> dict[str, str]:
    """The settings that the server and the machines of the cluster share; their homes differ."""
    return {
        "JARVIS_DATABASE_URL": f"sqlite:///{place}/jarvis.db",
        "JARVIS_ARTIFACT_ROOT": str(place / "root"),
        HOLDS_VARIABLE: str(place),
    }


@pytest.fixture
def home(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in shared(place).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("JARVIS_HOME", str(place / "server"))
    return place / "server"


@pytest.fixture
def analyses_there(place: Path) -> Path:
    """The folder of analyses of the machines of the cluster."""
    return place / "node" / analyses_dir().name


@pytest.fixture(scope="module")
def dask(place: Path) -> Iterator[Dask]:
    cluster = Dask(place, JARVIS_HOME=str(place / "node"), **shared(place))
    try:
        cluster.start()
        for _ in range(2):
            cluster.start_worker()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def trace_file(home: Path, tmp_path: Path) -> Path:
    """An upload, which the machines of the cluster fetch."""
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12)
    with built.write(tmp_path / "tiny.json").open("rb") as content:
        return store_upload("tiny.json", content)


@contextmanager
def dask_worker(dask: Dask, **environment: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A Jarvis worker that runs its jobs on the cluster."""
    with worker(HELD_WORKER, JARVIS_DASK_SCHEDULER=dask.address, **environment) as process:
        yield process


def place_of(engine: Engine, job: Job) -> str:
    place: str = wait_for(lambda: queue.find(engine, job.id).place)
    return place


def test_jobs_run_at_once_are_cancelled_and_retried(
    engine: Engine, dask: Dask, trace_file: Path
) -> None:
    first, second = (
        queue.submit(engine, new_analysis(trace_file, name)) for name in ("rank 0", "rank 1")
    )
    for job in (first, second):
        hold_at(job.id, 3)
    with dask_worker(dask):
        pids = [held_process(job.id) for job in (first, second)]
        assert all(map(is_alive, pids)), "both at once"
        assert place_of(engine, first) != place_of(engine, second)
        wait_for(lambda: queue.find(engine, first.id).step == STEPS[2])
        begin = time.monotonic()
        queue.cancel(engine, second.id)
        assert ended(engine, second.id).state is JobState.CANCELLED
        assert time.monotonic() - begin < CANCEL_S
        wait_for(lambda: not is_alive(pids[1]))
        for job in (first, second):
            hold_at(job.id, None)
        done = is_done(engine, first.id)
        assert [step.name for step in done.steps] == list(STEPS)
        assert "Running on the Dask worker at tcp://127.0.0.1:" in done.log
        assert f"{STEPS[-1]} ({len(STEPS)} of {len(STEPS)})" in done.log
        assert (done.percent, done.result["is_reused"]) == (100.0, False)
        assert done.analysis_id is not None
        assert Run.load(analysis_root(done.analysis_id)).manifest.options.model_name == "rank 0"

        assert queue.retry(engine, second.id).place is None
        assert is_done(engine, second.id).attempts == 2


def test_ranks_are_spread_and_joined_as_here(engine: Engine, dask: Dask, tmp_path: Path) -> None:
    """One of the traces is broken, which costs its rank alone; the tables are those that the
    command writes."""
    files = [rank_trace(rank, 4).write(tmp_path / f"rank{rank}.json") for rank in range(4)]
    files[3].write_text("no trace", encoding="utf-8")
    uploads = []
    for file in files:
        with file.open("rb") as content:
            uploads.append(store_upload(file.name, content))
    asked = [Analyze(Submission(upload)) for upload in uploads]
    join = submit_ranks(engine, OPERATOR, asked)
    members = queue.recent(engine, kinds=(JobKind.ANALYZE,), states=(JobState.QUEUED,))
    for job in members[:2]:
        hold_at(job.id, 3)
    with dask_worker(dask):
        for job in members[:2]:
            held_process(job.id)
        places = {place_of(engine, job) for job in members[:2]}
        assert len(places) == 2
        assert queue.find(engine, join.id).state is JobState.QUEUED
        for job in members[:2]:
            hold_at(job.id, None)
        done = is_done(engine, join.id)
    entry = read_catalog().find_distributed(str(done.analysis_id))
    run = DistributedRun.load(entry.root)
    assert [member.rank for member in run.manifest.usable] == [0, 1, 2]
    assert [(member.rank, member.state) for member in run.manifest.failed] == [(3, "failed")]
    assert run.tables["instances"]["last_rank"].to_list() == [1] * 4
    here = tmp_path / "out"
    assert main(["analyze", *map(str, files), "--output-dir", str(here), "--jobs", "1"]) == 3
    for path in (*here.glob("tables/*"), *here.glob("perf_report_csvs/*"), here / "results.json"):
        assert (run.root / path.relative_to(here)).read_bytes() == path.read_bytes(), path
    same = {"created": "", "name": ""}
    own, there = (
        each.manifest.model_copy(update=same) for each in (DistributedRun.load(here), run)
    )
    assert own == there
    assert Run.load(analysis_root(str(run.manifest.usable[2].analysis_id))).manifest.trace.rank == 2


def test_whatever_runs_a_job_may_die_and_the_job_fails_once(
    engine: Engine, dask: Dask, trace_file: Path, analyses_there: Path
) -> None:
    killed, silent = (
        queue.submit(engine, new_analysis(trace_file, name)) for name in ("killed", "silent")
    )
    for job in (killed, silent):
        hold_at(job.id, len(STEPS))
    with dask_worker(dask) as jarvis_worker:
        pids = {job.id: held_process(job.id) for job in (killed, silent)}
        assert len(half_written(analyses_there)) == 2
        workers = {job_id: parent(parent(pid)) for job_id, pid in pids.items()}  # of the forker
        os.kill(workers[killed.id], signal.SIGKILL)
        os.kill(workers[silent.id], signal.SIGSTOP)
        try:
            for job in (killed, silent):
                failed = ended(engine, job.id)
                assert (failed.state, failed.error) == (JobState.FAILED, task.DIED)
                assert failed.attempts == 1
        finally:
            os.kill(workers[silent.id], signal.SIGCONT)
        wait_for(lambda: not any(map(is_alive, pids.values())))
        wait_for(lambda: len(half_written(analyses_there)) <= 1)  # of the one that was killed

        hold_at(silent.id, 3)
        queue.retry(engine, silent.id)
        pid = held_process(silent.id)
        left = [path for path in half_written(analyses_there) if killed.id in path.name]
        assert left == [], "a job clears away what others had left"
        jarvis_worker.kill()
        wait_for(lambda: not is_alive(pid))
    hold_at(silent.id, None)
    with dask_worker(dask):
        failed = ended(engine, silent.id)
        assert "worker that ran this job died" in (failed.error or "")
        queue.retry(engine, silent.id)
        assert is_done(engine, silent.id).attempts == 3


def test_jobs_wait_for_a_scheduler_that_is_gone_and_memory_is_limited(
    engine: Engine, dask: Dask, trace_file: Path
) -> None:
    running = queue.submit(engine, new_analysis(trace_file, "running"))
    hold_at(running.id, 3)
    with dask_worker(dask, SLOTS="1", JARVIS_JOB_MEMORY_GB="0.02"):
        failed = ended(engine, running.id)
        assert "exceeded its memory limit of 0.02 GB" in (failed.error or "")
    held_file(running.id).unlink(missing_ok=True)  # of this attempt, if it came so far
    queue.retry(engine, running.id)
    with dask_worker(dask, SLOTS="1"):
        pid = held_process(running.id)
        waiting = queue.submit(engine, new_analysis(trace_file, "waiting"))
        dask.kill_scheduler()
        failed = ended(engine, running.id)
        assert f"The Dask scheduler at {dask.address} cannot be reached" in (failed.error or "")
        wait_for(lambda: not is_alive(pid))
        assert queue.find(engine, waiting.id).state is JobState.QUEUED
        wait_for(lambda: claims.slots(engine) == 0)
        quick = queue.submit(engine, Inspect(trace_file).new_job())
        assert is_done(engine, quick.id).place is None, "done here when the cluster is not there"
        dask.start()
        dask.start_worker()
        is_done(engine, waiting.id)


@pytest.fixture
def order(home: Path) -> Order:
    return Order(
        product_version(), storage_mark(), Assignment("0" * 10, "analyze", {}, "job-0-1-", None),
        (), 1, "none", None,
    )  # fmt: skip


def test_a_dask_worker_that_is_set_up_otherwise_begins_nothing(
    engine: Engine, order: Order, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(JarvisError, match=r"at tcp://a:1 has Jarvis .*, this server has 99\.9\. "):
        task.check_version("tcp://a:1", "99.9")
    with pytest.raises(JarvisError, match="uses another database than this server"):
        task.begin("tcp://a:1", order)
    monkeypatch.setenv("JARVIS_ARTIFACT_ROOT", str(tmp_path))
    with pytest.raises(JarvisError, match="stores analyses elsewhere than this server"):
        task.begin("tcp://a:1", order)


def test_an_attempt_begins_once(engine: Engine, trace_file: Path) -> None:
    job = queue.submit(engine, new_analysis(trace_file, "once"))
    assert not claims.begin_at(engine, job.id, 1, "tcp://a:1"), "it is not claimed"
    taken = claims.claim(engine, "a worker")
    assert taken is not None
    assert taken.id == job.id
    assert not claims.begin_at(engine, job.id, 2, "tcp://a:1"), "another attempt"
    assert claims.begin_at(engine, job.id, 1, "tcp://a:1")
    assert not claims.begin_at(engine, job.id, 1, "tcp://b:1"), "it has begun elsewhere"
    claims.finish(engine, "a worker", job.id, JobProgress(), Outcome(JobState.CANCELLED))


def test_reports_and_orders_arrive_as_they_were_sent(order: Order) -> None:
    progress = JobProgress("Read", 1, 8, 12.5, 10, 20, [FinishedStep("Read", 0.5)])
    for outcome in (None, Outcome(JobState.DONE, None, {"is_reused": True}, "a" * 12)):
        report = Report("key", "tcp://a:1", progress, "more\n", outcome)
        assert Report.of(sent(report.values())) == report
    assert Order.of(sent(order.values())) == replace(order, folders=[])


def sent(values: dict[str, Any]) -> dict[str, Any]:
    """Values on the other side of a connection of Dask."""
    received: dict[str, Any] = msgpack.loads(msgpack.dumps(values))
    return received


def test_as_many_jobs_as_the_cluster_can_unless_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JARVIS_JOB_SLOTS", raising=False)
    assert job_slots() == 1
    monkeypatch.setenv("JARVIS_DASK_SCHEDULER", "tcp://127.0.0.1:1")
    assert job_slots() is None
    assert "--slots" not in worker_command(None)
    monkeypatch.setenv("JARVIS_JOB_SLOTS", "3")
    assert job_slots() == 3


def test_without_the_extra_the_worker_says_what_to_install(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JARVIS_DASK_SCHEDULER", "tcp://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "jarvis.server.jobs.dask.jobs", raising=False)
    with pytest.raises(SettingsError, match=r"distributed is not installed: .*jarvis-perf\[dask\]"):
        set_up_worker(None)


def parent(pid: int) -> int:
    """The process that started another."""
    status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    return int(status.rpartition(")")[2].split()[1])
