"""A web server and workers with homes of their own, on PostgreSQL and an S3 root, all real."""

import io
from pathlib import Path

import pytest
from sqlalchemy import Engine

from jarvis.core.workspace import ARTIFACT_ROOT_VARIABLE
from jarvis.run import Run
from jarvis.server import queue
from jarvis.server.database import JobState
from jarvis.server.errors import UnknownAnalysisError
from jarvis.server.ingest.intake import store_upload
from jarvis.server.jobs.kinds import Analyze, Export, job_file
from jarvis.server.queue import Job
from jarvis.server.retention.removal import remove_analysis
from jarvis.server.storage.catalog import analysis_root, read_catalog
from jarvis.server.submission import Submission
from tests.builders import trace
from tests.server.working import ended, is_done, worker
from tests.services.ports import free_port


@pytest.fixture
def asked(engine: Engine, s3_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job about an upload of this machine, whose home no worker sees."""
    monkeypatch.setenv(ARTIFACT_ROOT_VARIABLE, s3_root)
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12)
    content = io.BytesIO(built.write(tmp_path / "tiny.json").read_bytes())
    return queue.submit(engine, Analyze(Submission(store_upload("tiny.json", content))).new_job())


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_workers_elsewhere_do_the_jobs_of_this_machine(
    engine: Engine, asked: Job, home: Path, tmp_path: Path
) -> None:
    with worker(JARVIS_HOME=str(tmp_path / "cut off"), **_unreachable()):
        failed = ended(engine, asked.id)
    assert failed.state is JobState.FAILED
    assert failed.error is not None
    assert "The artifact root s3://" in failed.error
    assert "test-secret" not in failed.error + failed.log
    with worker(JARVIS_HOME=str(tmp_path / "second")):
        done = is_done(engine, queue.retry(engine, asked.id).id)
        assert done.analysis_id is not None
        assert not list(home.glob("analyses/*"))
        assert [entry.id for entry in read_catalog().entries] == [done.analysis_id]
        fetched = Run.load(analysis_root(done.analysis_id))
        assert fetched.manifest.trace.file_name == "tiny.json"
        export = queue.submit(engine, Export(done.analysis_id, "json").new_job())
        file = job_file(is_done(engine, export.id).result)
    assert file is not None
    assert file.is_relative_to(home)
    assert done.analysis_id in file.read_text()
    remove_analysis(done.analysis_id)
    with pytest.raises(UnknownAnalysisError):
        analysis_root(done.analysis_id)


def _unreachable() -> dict[str, str]:
    return {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}", "AWS_MAX_ATTEMPTS": "1"}
