"""Jobs that fetch a trace from another machine."""

from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

from jarvis.core.request import AnalysisOptions
from jarvis.core.staging import scratch_folder
from jarvis.core.workspace import uploads_dir
from jarvis.pipeline import STEPS, Progress, Step
from jarvis.server.database import JobKind
from jarvis.server.ingest.addresses import address_of
from jarvis.server.ingest.fetch import fetch_trace
from jarvis.server.ingest.intake import StoredTrace
from jarvis.server.jobs.kinds.analyses import Analyze
from jarvis.server.jobs.kinds.base import JobOutput, Request, as_part
from jarvis.server.storage.artifacts import publish_file
from jarvis.server.storage.storage_keys import address
from jarvis.server.submission import Submission
from jarvis.text.markdown import one_line, shortened
from jarvis.trace import ReadProgress

FETCH_STEP = "Fetch the trace"
_SHOWN_LETTERS = 100


@dataclass(frozen=True, slots=True)
class Fetch(Request):
    """Fetch a trace by http, https or sftp, and analyze it where ``wishes`` says how."""

    url: str
    wishes: AnalysisOptions | None = None
    is_again: bool = False

    kind = JobKind.FETCH

    @property
    def title(self) -> str:
        """Where it comes from, without what may be a secret; AddressError where none may."""
        place = address_of(self.url)
        name = shortened(one_line(place.file_name), _SHOWN_LETTERS)
        return f"Fetch {name or 'a trace'} from {place.host_and_port}"

    @property
    def is_personal(self) -> bool:
        """Only the owner of an analysis has it made again."""
        return self.is_again

    @property
    def analyses(self) -> tuple[str, ...]:
        """The reference."""
        return () if self.wishes is None else self._analysis(Path()).analyses

    @property
    def folders(self) -> tuple[Path, ...]:
        """Where the trace grows, and those of an analysis."""
        return (uploads_dir(), *(() if self.wishes is None else self._analysis(Path()).folders))

    def run(self, progress: Progress, job_id: str) -> JobOutput:
        """Gives the analysis, or ``trace``, as other machines find it too; ``was_here`` where the
        same bytes were kept before."""
        total = 1 if self.wishes is None else 1 + len(STEPS)
        kept = self._fetched(progress, total)
        if self.wishes is None:
            return JobOutput(None, {"trace": address(kept.path), "was_here": kept.is_reused})
        return self._analysis(kept.path).run(as_part(progress, 1, total), job_id)

    def _analysis(self, trace: Path) -> Analyze:
        submission = Submission.of(self.wishes or AnalysisOptions(), trace=trace)
        return Analyze(submission, is_again=self.is_again)

    def _fetched(self, progress: Progress, total: int) -> StoredTrace:
        step = Step(FETCH_STEP, 1, total, "started")
        progress(step)
        begin = perf_counter()

        def on_bytes(done: int, of: int | None) -> None:
            progress(replace(step, state="running", reading=ReadProgress(done, of or 0, 0)))

        with scratch_folder(uploads_dir(), "fetch") as folder:
            kept = fetch_trace(self.url, folder, on_bytes)
        publish_file(kept.path)
        progress(replace(step, state="done", elapsed_s=perf_counter() - begin))
        return kept
