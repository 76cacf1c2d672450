"""Jobs that import an analysis from an archive."""

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
    """Validate an archive and store its analysis; only jobs open archives, which are untrusted."""

    archive: FilePath

    kind = JobKind.LOAD

    @property
    def title(self) -> str:
        """Return the title with the file name."""
        return f"Load {self.archive.name}"

    @property
    def inputs(self) -> tuple[Path, ...]:
        """Return the archive."""
        return (self.archive,)

    @property
    def folders(self) -> tuple[Path, ...]:
        """Return the folder of the analyses."""
        return (analyses_dir(),)

    def run(self, progress: Progress, job_id: str) -> JobOutput:
        """Store the analysis; ``was_pinned`` in the result is its state on the source server."""
        with step(0, progress, STEPS):
            loaded = load_archive(self.archive)
        return JobOutput(
            loaded.id, {"is_reused": loaded.is_reused, "was_pinned": loaded.was_pinned}
        )
