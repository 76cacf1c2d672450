"""Workers and job processes: success, cancel, kill, memory limit."""

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, select, update

from jarvis.core.workspace import analyses_dir
from jarvis.pipeline import STEPS
from jarvis.run import Run
from jarvis.server import claims, queue
from jarvis.server.database import JOBS, WORKERS, JobKind, JobState, reading
from jarvis.server.errors import SettingsError
from jarvis.server.http.web import lifespan
from jarvis.server.jobs.kinds import Analyze, Inspect
from jarvis.server.jobs.processes.job_child import LocalJobProcess, memory_limit_bytes
from jarvis.server.jobs.processes.job_messages import Assignment
from jarvis.server.jobs.processes.start import own_process
from jarvis.server.jobs.worker import REAP_S
from jarvis.server.queue import NewJob, Outcome
from jarvis.server.storage.catalog import analysis_root, read_catalog
from jarvis.server.submission import Submission
from jarvis.trace import TraceInfo
from tests.builders import trace
from tests.server.working import (
    HELD_WORKER,
    ended,
    held_process,
    hold_at,
    is_alive,
    is_done,
    new_analysis,
    wait_for,
    worker,
)

CANCEL_S = 20.0
"""It takes less than one second; a busy machine takes longer. The job would never end by itself."""


@pytest.fixture
def trace_file(home: Path, tmp_path: Path) -> Path:
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12)
    return built.write(tmp_path / "tiny.json")


def in_analyses() -> list[str]:
    """Everything in the folder of analyses, half-written or not."""
    return (
        sorted(entry.name for entry in analyses_dir().iterdir()) if analyses_dir().exists() else []
    )


def worker_ids(engine: Engine) -> set[str]:
    with reading(engine) as connection:
        return set(connection.execute(select(WORKERS.c.id)).scalars())


def test_jobs_are_done_reported_reused_or_fail_with_a_sentence(
    engine: Engine, trace_file: Path, tmp_path: Path, usual_processes: None
) -> None:
    """One worker for all, since each job costs a second of imports."""
    with worker():
        asked = queue.submit(engine, Inspect(trace_file).new_job())
        job = queue.submit(engine, new_analysis(trace_file), owner="ann")
        info = TraceInfo.model_validate(is_done(engine, asked.id).result["info"])
        assert info.device_name == "NVIDIA H200"
        done = is_done(engine, job.id)
        assert done.analysis_id is not None
        assert Run.load(analysis_root(done.analysis_id)).manifest.trace.file_name == "tiny.json"
        assert [step.name for step in done.steps] == list(STEPS)
        assert f"Job {done.id}, process " in done.log.splitlines()[0]
        assert f"{STEPS[-1]} ({len(STEPS)} of {len(STEPS)})" in done.log
        assert (done.percent, done.result) == (100.0, {"is_reused": False})

        again = is_done(engine, queue.submit(engine, new_analysis(trace_file), owner="bob").id)
        assert [entry.owner for entry in read_catalog().entries] == ["ann"]
        assert (again.analysis_id, again.result) == (done.analysis_id, {"is_reused": True})

        (tmp_path / "bad.json").write_text('{"weights": []}')
        bad = ended(engine, queue.submit(engine, new_analysis(tmp_path / "bad.json")).id)
        assert bad.state is JobState.FAILED
        assert "not a trace of the PyTorch profiler" in (bad.error or "")

        odd = NewJob(JobKind.ANALYZE, "Analyze what no release asks for", {"wrong": 1})
        failed = ended(engine, queue.submit(engine, odd).id)
        assert failed.state is JobState.FAILED
        assert "another version of Jarvis" in (failed.error or "")
    assert worker_ids(engine) == set(), "a worker that is stopped leaves in order"


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_a_worker_works_on_postgresql(engine: Engine, trace_file: Path) -> None:
    old = queue.cancel(engine, queue.submit(engine, NewJob(JobKind.EXPORT, "Export", {})).id)
    with engine.begin() as connection:
        then = datetime.now(UTC) - timedelta(days=91)
        connection.execute(update(JOBS).where(JOBS.c.id == old.id).values(ended=then))
    job = queue.submit(engine, new_analysis(trace_file), owner="ann")
    with worker():
        done = is_done(engine, job.id)
    (entry,) = read_catalog().entries
    assert (entry.id, entry.owner) == (done.analysis_id, "ann")
    assert done.steps
    assert [job.id for job in queue.recent(engine)] == [done.id], "what is old was removed"
    assert worker_ids(engine) == set()


def test_a_worker_leaves_what_only_jobs_need_to_them() -> None:
    code = (
        "import sys, jarvis.server.jobs.worker\n"
        "print([m for m in ('polars', 'numpy', 'jarvis.analyses') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_job_that_wants_too_much_memory_is_reported(engine: Engine, trace_file: Path) -> None:
    job = queue.submit(engine, new_analysis(trace_file))
    with worker(JARVIS_JOB_MEMORY_GB="0.02"):
        failed = ended(engine, job.id)
    assert failed.state is JobState.FAILED
    assert "exceeded its memory limit of 0.02 GB" in (failed.error or "")
    assert in_analyses() == []


def test_a_job_that_takes_too_long_is_reported(engine: Engine, trace_file: Path) -> None:
    job = queue.submit(engine, new_analysis(trace_file))
    hold_at(job.id, 1)
    with worker(HELD_WORKER, SLOTS="1", JARVIS_JOB_MINUTES="0.02"):
        failed = ended(engine, job.id)
    assert failed.state is JobState.FAILED
    assert "exceeded its time limit of 0.02 minutes" in (failed.error or "")
    assert (failed.elapsed_s or 0) > 1.2


def test_an_unexpected_error_is_reported_and_its_traceback_stored() -> None:
    code = "import sys; sys.stdin.readline(); raise ValueError('odd')"
    child = LocalJobProcess(8 << 30, own_process((sys.executable, "-S", "-c", code)))
    child.assign(Assignment("a1b2", JobKind.INSPECT, {}, "job-a1b2-1-"))

    def outcome() -> Outcome | None:
        child.listen()
        return child.outcome

    failed = wait_for(outcome)
    child.end(failed)
    assert failed.state is JobState.FAILED
    assert "unexpected error (ValueError: odd)" in failed.error
    assert "Traceback" in child.progress.log


def test_what_a_job_has_started_ends_with_it(tmp_path: Path) -> None:
    """A remote run waits for a program; that must not go on when the job is cancelled."""
    file = tmp_path / "pid"
    code = (
        "import pathlib, subprocess, sys\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "pathlib.Path(sys.argv[1]).write_text(str(child.pid))\n"
        "child.wait()"
    )
    child = LocalJobProcess(8 << 30, own_process((sys.executable, "-c", code, str(file))))
    wait_for(lambda: file.exists() and file.read_text())
    child.end(Outcome(JobState.CANCELLED))
    wait_for(lambda: not is_alive(int(file.read_text())), CANCEL_S)


def test_jobs_and_workers_may_be_killed_at_any_step(engine: Engine, trace_file: Path) -> None:
    """A job at every step at once: first their processes are killed, then their worker."""
    held = {}
    for step in range(1, len(STEPS) + 1):
        job = queue.submit(engine, new_analysis(trace_file, model_name=f"Step {step}"))
        hold_at(job.id, step)
        held[job.id] = step
    with worker(HELD_WORKER, SLOTS=str(len(STEPS))) as killed:
        for job_id, step in held.items():
            os.kill(held_process(job_id), signal.SIGKILL)
            failed = ended(engine, job_id)
            assert failed.state is JobState.FAILED
            assert "was killed" in (failed.error or "")
            assert failed.step == STEPS[step - 1]
            assert queue.retry(engine, job_id).state is JobState.QUEUED
        pids = [held_process(job_id) for job_id in held]
        half = [name for name in in_analyses() if not name.startswith(".opened.")]
        assert len(half) == 2, "half-written in the last two steps"
        killed.kill()
    wait_for(lambda: not any(map(is_alive, pids)))
    for job_id in held:
        assert queue.find(engine, job_id).state is JobState.RUNNING, "not noticed yet"
        hold_at(job_id, None)
    with worker(HELD_WORKER, SLOTS="2"):
        for job_id in held:
            failed = ended(engine, job_id)
            assert failed.state is JobState.FAILED
            assert "worker that ran this job died" in (failed.error or "")
        wait_for(lambda: in_analyses() == [])
        again = [queue.retry(engine, job_id) for job_id in held]
        assert {(job.state, job.attempts) for job in again} == {(JobState.QUEUED, 2)}
        done = [is_done(engine, job.id) for job in (again[0], again[-1])]
    assert {job.attempts for job in done} == {3}
    assert {job.analysis_id for job in done} <= set(in_analyses())


def test_the_death_of_a_worker_is_noticed_within_half_a_minute() -> None:
    slowest_start_s = lifespan.FIRST_PAUSE_S + 5
    assert claims.HEARTBEAT_TIMEOUT_S + REAP_S + slowest_start_s < 30


def test_a_running_job_is_cancelled_soon_and_others_go_on(engine: Engine, trace_file: Path) -> None:
    job = queue.submit(engine, new_analysis(trace_file))
    hold_at(job.id, len(STEPS))
    with worker(HELD_WORKER, SLOTS="1"):
        pid = held_process(job.id)
        quick = queue.submit(engine, Inspect(trace_file).new_job())
        waiting = queue.submit(engine, new_analysis(trace_file, model_name="Next"))
        is_done(engine, quick.id)
        assert queue.find(engine, waiting.id).state is JobState.QUEUED, "one slot, one long job"
        begin = time.monotonic()
        queue.cancel(engine, job.id)
        cancelled = ended(engine, job.id)
        took_s = time.monotonic() - begin
        assert (cancelled.state, cancelled.error) == (JobState.CANCELLED, None)
        assert took_s < CANCEL_S
        wait_for(lambda: not is_alive(pid))
        done = is_done(engine, waiting.id)
    assert in_analyses() == [done.analysis_id]


def test_what_a_stopped_worker_has_not_finished_is_done_by_the_next(
    engine: Engine, trace_file: Path
) -> None:
    job = queue.submit(engine, new_analysis(trace_file))
    hold_at(job.id, 3)
    with worker(HELD_WORKER, SLOTS="1"):
        pid = held_process(job.id)
    assert not is_alive(pid)
    assert queue.find(engine, job.id).state is JobState.QUEUED
    hold_at(job.id, None)
    with worker(HELD_WORKER, SLOTS="1"):
        assert is_done(engine, job.id).attempts == 2


def test_a_worker_that_dies_is_started_again_and_ends_with_its_server(engine: Engine) -> None:
    with lifespan.watched_worker(lifespan.worker_command(1)):
        (first,) = wait_for(lambda: worker_ids(engine))
        os.kill(int(first.split(":")[1]), signal.SIGKILL)
        (second,) = wait_for(lambda: worker_ids(engine) - {first})
    wait_for(lambda: not is_alive(int(second.split(":")[1])))
    assert second not in worker_ids(engine)


def test_a_web_server_that_is_killed_takes_its_worker_along(engine: Engine) -> None:
    script = (
        "import time\nfrom jarvis.server.http.web import lifespan as watch\n"
        "with watch.watched_worker(watch.worker_command(1)): time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as server:
        (worker_id,) = wait_for(lambda: worker_ids(engine))
        server.kill()
    wait_for(lambda: not is_alive(int(worker_id.split(":")[1])))
    assert worker_ids(engine) == set()


def test_a_worker_that_cannot_start_is_not_started_over_and_over(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    script = f"open({str(starts)!r}, 'a').write('x'); raise SystemExit(1)"
    with lifespan.watched_worker((sys.executable, "-S", "-c", script)):
        time.sleep(2.0)
    assert 1 <= len(starts.read_text()) <= 3


def test_the_memory_of_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JARVIS_JOB_MEMORY_GB", "2.5")
    assert memory_limit_bytes(4) == 2_500_000_000
    monkeypatch.delenv("JARVIS_JOB_MEMORY_GB")
    assert memory_limit_bytes(2) == pytest.approx(memory_limit_bytes(1) / 2, abs=1)
    for bad in ("lots", "0", "-1", "inf", "nan"):
        monkeypatch.setenv("JARVIS_JOB_MEMORY_GB", bad)
        with pytest.raises(SettingsError, match="JARVIS_JOB_MEMORY_GB"):
            memory_limit_bytes(1)


def test_a_quick_job_passes_long_ones_and_many_take_turns(engine: Engine, tmp_path: Path) -> None:
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12)
    files = [built.write(tmp_path / f"{name}.json") for name in "abc"]
    quick = [queue.submit(engine, Inspect(file).new_job()) for file in files]
    for job in quick:
        hold_at(job.id, 1)
    with worker(HELD_WORKER, SLOTS="1"):
        for job in quick[:2]:
            held_process(job.id)
        long = queue.submit(engine, Analyze(Submission(files[0])).new_job())
        beats(engine)
        states = [queue.find(engine, job.id).state for job in (*quick, long)]
        assert states == [JobState.RUNNING] * 2 + [JobState.QUEUED] * 2, "one beside the slot"
        hold_at(long.id, 3)
        hold_at(quick[0].id, None)
        hold_at(quick[1].id, None)
        held_process(long.id)
        held_process(quick[2].id)
        hold_at(quick[2].id, None)
        is_done(engine, quick[2].id)
        assert queue.find(engine, long.id).state is JobState.RUNNING


def beats(engine: Engine) -> None:
    """Wait until a worker has looked into the queue several times."""
    seen: set[object] = set()

    def look() -> bool:
        with reading(engine) as connection:
            seen.add(connection.execute(select(WORKERS.c.heartbeat)).scalar())
        return len(seen) > 4

    wait_for(look)
