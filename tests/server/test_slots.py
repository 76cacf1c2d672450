"""Concurrent jobs of a worker."""

from pathlib import Path

from sqlalchemy import Engine, select

from jarvis.server.database import WORKERS, JobState, reading
from jarvis.server.jobs import queue
from jarvis.server.jobs.kinds import Analyze, Inspect
from jarvis.server.submission import Submission
from tests.builders import trace
from tests.server.working import HELD_WORKER, held_process, hold_at, is_done, wait_for, worker


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
