"""Jobs that analyze a trace on another machine."""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from jarvis.core.labels import NO_LABELS, RunLabels
from jarvis.core.staging import scratch_folder
from jarvis.core.workspace import analyses_dir, archive_name
from jarvis.pipeline import Progress
from jarvis.server.database import JobKind
from jarvis.server.errors import ArchiveError, RemoteError
from jarvis.server.ingest.remote_runs import RemoteRun, check_run, run_remote
from jarvis.server.jobs.kinds.base import JobOutput, Request
from jarvis.server.storage.analysis_rows import labeled, made_on
from jarvis.server.storage.archive import unpack_archive
from jarvis.server.submission import import_run


@dataclass(frozen=True, slots=True)
class Remote(Request):
    """Analyze a trace on a machine of the settings, and import the result with ``labels``."""

    run_asked: RemoteRun
    labels: RunLabels = NO_LABELS

    kind = JobKind.REMOTE

    @property
    def title(self) -> str:
        """Return the title with file, model and machine; raise RemoteError if it is not valid."""
        run = self.run_asked
        check_run(run)
        model = f" ({run.model_name})" if run.model_name else ""
        return f"Analyze {PurePosixPath(run.path).name}{model} on {run.target}"

    @property
    def folders(self) -> tuple[Path, ...]:
        """Return the folder of the analyses, where the archive is also unpacked."""
        return (analyses_dir(),)

    def run(self, progress: Progress, job_id: str) -> JobOutput:
        """Store the analysis after validating its files."""
        target = self.run_asked.target
        with scratch_folder(analyses_dir(), "remote") as scratch:
            packed, folder = scratch / archive_name("run"), scratch / "run"
            folder.mkdir()
            run_remote(self.run_asked, packed, progress)
            _unpack(target, packed, folder)
            with made_on(target), labeled(self.labels):
                stored = import_run(folder)
        return JobOutput(stored.id, {"is_reused": stored.is_reused, "made_on": target})


def _unpack(target: str, packed: Path, folder: Path) -> None:
    """Unpack and validate a received archive; raise RemoteError if it is not valid."""
    try:
        unpack_archive(packed, folder)
    except ArchiveError as error:
        raise RemoteError(f"{target} sent an invalid analysis: {error}") from error
