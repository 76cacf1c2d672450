"""Jobs that inspect a trace before its analysis."""

from dataclasses import dataclass, replace
from pathlib import Path

from jarvis.core.workspace import analyses_dir, uploads_dir
from jarvis.pipeline import STEPS, Progress, Step, read_info
from jarvis.ranks.archives import holds_several
from jarvis.server.database import JobKind
from jarvis.server.ingest.intake import unpacked_uploads
from jarvis.server.ingest.opening import opened_input
from jarvis.server.jobs.kinds.base import JobOutput, Request
from jarvis.server.storage.artifacts import publish_file
from jarvis.server.storage.storage_keys import FilePath, address
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
        """Return the folders of the temporary link to the opened trace, and of unpacked traces."""
        return (analyses_dir(), uploads_dir())

    def run(self, progress: Progress, job_id: str) -> JobOutput:
        """Return ``info``, the fields of a ``TraceInfo``.

        The traces of an archive of several are stored as uploads; ``traces`` are their addresses.
        """
        step = Step(STEPS[0], 1, 1, "started")
        progress(step)

        def on_reading(reading: ReadProgress) -> None:
            progress(replace(step, state="running", reading=reading))

        with opened_input(self.trace) as opened:
            if holds_several(opened):
                traces = unpacked_uploads(opened)
                for trace in traces:
                    publish_file(trace)
                return JobOutput(None, {"traces": [address(trace) for trace in traces]})
            info = read_info(opened, on_reading).model_copy(update={"path": str(self.trace)})
        return JobOutput(None, {"info": info.model_dump(mode="json")})
