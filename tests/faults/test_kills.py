"""Each job kind is killed at each step with its worker: no partial results, no lost jobs.

``tests/server/test_worker.py`` does the same for all steps of an analysis.
"""

from pathlib import Path

import pytest
from sqlalchemy import Engine

from jarvis.core.request import AnalysisOptions
from jarvis.core.workspace import RunPaths, analyses_dir, exports_dir, uploads_dir
from jarvis.pipeline import REPROJECTION_STEPS, STEPS
from jarvis.server import queue
from jarvis.server.database import JobState
from jarvis.server.jobs.kinds import Compare, Export, Replay, Reproject, job_file
from jarvis.server.jobs.kinds.base import Request
from jarvis.server.jobs.kinds.exports import STEPS as COMPARE_STEPS
from jarvis.server.jobs.kinds.fetches import Fetch
from jarvis.server.storage.storage_keys import path_at
from jarvis.server.submission import Submission, submit
from tests.server.file_server import file_server
from tests.server.working import (
    HELD_WORKER,
    ended,
    half_written,
    held_process,
    hold_at,
    is_done,
    wait_for,
    worker,
)

Stage = tuple[int, str]


def stages(analysis: str, other: str, url: str) -> list[tuple[Request, Stage]]:
    """Requests, and where each is killed; where a step is done, its file is in its place."""
    compared = (Compare(analysis, other, 1.0 + step) for step in range(len(COMPARE_STEPS)))
    return [
        (Export(analysis, "zip"), (1, "done")),
        (Replay(analysis, ("aten::mm",)), (1, "started")),
        (Fetch(url), (1, "done")),
        (Fetch(url, AnalysisOptions(platform="MI300A")), (1 + len(STEPS), "started")),
        (Reproject(analysis, "MI325X", None), (len(REPROJECTION_STEPS), "started")),
        *((request, (step, "started")) for step, request in enumerate(compared, start=1)),
    ]


def test_jobs_of_every_kind_may_be_killed_with_their_worker(
    engine: Engine, trace_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    analysis, other = (submit(Submission(trace_file, model_name=name)).id for name in "ab")
    content = trace_file.read_bytes()
    with file_server(content) as server:
        for variable in ("JARVIS_INGEST_HOSTS", "JARVIS_INGEST_PRIVATE_HOSTS"):
            monkeypatch.setenv(variable, f"127.0.0.1:{server.port}")
        asked = stages(analysis, other, f"http://127.0.0.1:{server.port}/tiny.json")
        held = [queue.submit(engine, request.new_job()) for request, _ in asked]
        for job, (_, stage) in zip(held, asked, strict=True):
            hold_at(job.id, *stage)
        with worker(HELD_WORKER, SLOTS=str(len(held))) as killed:
            for job in held:
                held_process(job.id)
            assert len(half_written(exports_dir(), uploads_dir())) == len(COMPARE_STEPS) - 1, (
                "the first writes nothing"
            )
            stored = {path.name for path in analyses_dir().glob("[!.]*")}
            assert stored == {analysis, other}
            killed.kill()
        for job in held:
            hold_at(job.id, None)
        with worker(HELD_WORKER, SLOTS="2"):
            for job in held:
                failed = ended(engine, job.id)
                assert failed.state is JobState.FAILED
                assert "worker that ran this job died" in (failed.error or "")
            wait_for(lambda: half_written(exports_dir(), uploads_dir(), analyses_dir()) == [])
            for job in held[: -len(COMPARE_STEPS) + 1]:  # one comparison is enough
                assert queue.retry(engine, job.id).state is JobState.QUEUED
                done = is_done(engine, job.id)
                assert done.attempts == 2
                if done.analysis_id is not None:
                    assert RunPaths(analyses_dir() / done.analysis_id).manifest.is_file()
                elif "trace" in done.result:
                    assert path_at(done.result["trace"]).read_bytes() == content
                else:
                    file = job_file(done.result)
                    assert file is not None
                    assert file.is_file()
