"""Jobs that load an analysis from a file of another server."""

from dataclasses import dataclass
from pathlib import Path

from jarvis.core.workspace import analyses_dir
from jarvis.pipeline import Progress
from jarvis.pipeline.steps import step
from jarvis.server.database import JobKind
from jarvis.server.jobs.kinds.base import JobOutput, Request
from jarvis.server.storage.archive import load_archive
from jarvis.server.storage.storage_keys import FilePath

STEPS = ("Check and unpack the file",)


@dataclass(frozen=True, slots=True)
class Load(Request):
    """Check an archive and store its analysis; the file may be forged, so only a job opens it."""

    archive: FilePath

    kind = JobKind.LOAD

    @property
    def title(self) -> str:
        """The file."""
        return f"Load {self.archive.name}"

    @property
    def inputs(self) -> tuple[Path, ...]:
        """The file."""
        return (self.archive,)

    @property
    def folders(self) -> tuple[Path, ...]:
        """That of the analyses."""
        return (analyses_dir(),)

    def run(self, progress: Progress, job_id: str) -> JobOutput:
        """Return the analysis; in ``result``, ``was_pinned`` where it was pinned elsewhere."""
        with step(0, progress, STEPS):
            loaded = load_archive(self.archive)
        return JobOutput(
            loaded.id, {"is_reused": loaded.is_reused, "was_pinned": loaded.was_pinned}
        )
