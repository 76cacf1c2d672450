"""Jobs that have a trace analyzed on another machine, where it lies."""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from jarvis.core.staging import scratch_folder
from jarvis.core.workspace import analyses_dir, archive_name
from jarvis.pipeline import Progress
from jarvis.server.database import JobKind
from jarvis.server.ingest.remote_errors import RemoteError
from jarvis.server.ingest.remote_runs import RemoteRun, check_asked, run_remote
from jarvis.server.jobs.kinds.base import JobOutput, Request
from jarvis.server.storage.analysis_rows import made_on
from jarvis.server.storage.archive import ArchiveError, unpack_archive
from jarvis.server.submission import import_run


@dataclass(frozen=True, slots=True)
class Remote(Request):
    """Analyze a trace on a machine of the settings, and keep what comes back."""

    run_asked: RemoteRun

    kind = JobKind.REMOTE

    @property
    def title(self) -> str:
        """The file and the machine; RemoteError where it cannot be asked for."""
        asked = self.run_asked
        check_asked(asked)
        named = f" ({asked.model_name})" if asked.model_name else ""
        return f"Analyze {PurePosixPath(asked.path).name}{named} on {asked.target}"

    @property
    def folders(self) -> tuple[Path, ...]:
        """That of the analyses, where what comes back is unpacked too."""
        return (analyses_dir(),)

    def run(self, progress: Progress, job_id: str) -> JobOutput:
        """Gives the analysis, once its files have been checked against each other."""
        target = self.run_asked.target
        with scratch_folder(analyses_dir(), "remote") as scratch:
            packed, folder = scratch / archive_name("run"), scratch / "run"
            folder.mkdir()
            run_remote(self.run_asked, packed, progress)
            _unpack(target, packed, folder)
            with made_on(target):
                kept = import_run(folder)
        return JobOutput(kept.id, {"is_reused": kept.is_reused, "made_on": target})


def _unpack(target: str, packed: Path, folder: Path) -> None:
    """Unpack and check what a machine sent; RemoteError where it is no valid analysis."""
    try:
        unpack_archive(packed, folder)
    except ArchiveError as error:
        raise RemoteError(f"{target} sent back no whole analysis: {error}") from error
