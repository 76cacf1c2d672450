"""The web process is killed while a job runs: the next one completes the job."""

from pathlib import Path

from sqlalchemy import Engine

from jarvis.core.workspace import analyses_dir
from jarvis.server import queue
from jarvis.server.database import JobState
from jarvis.server.ingest.intake import sample_trace
from jarvis.server.jobs.kinds import Analyze
from jarvis.server.storage.catalog import analysis_root
from jarvis.server.submission import Submission
from tests.browser.conftest import Server
from tests.server.working import is_done, wait_for


def test_a_job_goes_on_after_the_web_process_was_killed(engine: Engine, home: Path) -> None:
    server = Server(home)
    try:
        server.start()
        job = queue.submit(engine, Analyze(Submission(sample_trace())).new_job())
        wait_for(lambda: queue.find(engine, job.id).step)
        server.kill()
        wait_for(lambda: queue.find(engine, job.id).state is JobState.QUEUED)
        assert list(analyses_dir().glob("*")) == []
        server.start()
        done = is_done(engine, job.id)
        assert done.attempts == 2
        assert done.analysis_id is not None
        assert analysis_root(done.analysis_id).is_dir()
    finally:
        server.stop()
