"""Jobs that inspect a trace before its analysis."""

from dataclasses import dataclass, replace
from pathlib import Path

from jarvis.core.workspace import analyses_dir
from jarvis.pipeline import STEPS, Progress, Step, read_info
from jarvis.server.database import JobKind
from jarvis.server.ingest.opening import opened_input
from jarvis.server.jobs.kinds.base import JobOutput, Request
from jarvis.server.storage.storage_keys import FilePath
from jarvis.trace import ReadProgress


@dataclass(frozen=True, slots=True)
class Inspect(Request):
    """Read the metadata of a trace."""

    trace: FilePath

    kind = JobKind.INSPECT

    @property
    def title(self) -> str:
        """Return the title with the file name."""
        return f"Read {self.trace.name}"

    @property
    def inputs(self) -> tuple[Path, ...]:
        """Return the trace."""
        return (self.trace,)

    @property
    def folders(self) -> tuple[Path, ...]:
        """Return the folder of the temporary link to the opened trace."""
        return (analyses_dir(),)

    def run(self, progress: Progress, job_id: str) -> JobOutput:
        """Return ``info``, the fields of a ``TraceInfo``."""
        step = Step(STEPS[0], 1, 1, "started")
        progress(step)

        def on_reading(reading: ReadProgress) -> None:
            progress(replace(step, state="running", reading=reading))

        with opened_input(self.trace) as opened:
            info = read_info(opened, on_reading).model_copy(update={"path": str(self.trace)})
        return JobOutput(None, {"info": info.model_dump(mode="json")})
