"""Jobs that download a trace from another machine."""

from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

from jarvis.core.labels import NO_LABELS, RunLabels
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

FETCH_STEP = "Download the trace"
_MAX_SHOWN_CHARS = 100


@dataclass(frozen=True, slots=True)
class Fetch(Request):
    """Download a trace by http, https or sftp, and analyze it unless ``wishes`` is None.

    Attributes:
        wishes: options of the analysis.
        labels: labels of the analysis.
    """

    url: str
    wishes: AnalysisOptions | None = None
    is_again: bool = False
    labels: RunLabels = NO_LABELS

    kind = JobKind.FETCH

    @property
    def title(self) -> str:
        """Return the title without secrets of the URL; AddressError if it is not allowed."""
        source = address_of(self.url)
        name = shortened(one_line(source.file_name), _MAX_SHOWN_CHARS)
        return f"Download {name or 'a trace'} from {source.host_and_port}"

    @property
    def trace_name(self) -> str:
        """Return the name of the file; AddressError if the URL is not allowed."""
        return address_of(self.url).file_name

    @property
    def is_personal(self) -> bool:
        """Return ``is_again``: only the owner of an analysis can run it again."""
        return self.is_again

    @property
    def analyses(self) -> tuple[str, ...]:
        """Return the reference."""
        return () if self.wishes is None else self._analysis(Path()).analyses

    @property
    def folders(self) -> tuple[Path, ...]:
        """Return the folder of the partial download, and the folders of the analysis."""
        return (uploads_dir(), *(() if self.wishes is None else self._analysis(Path()).folders))

    def run(self, progress: Progress, job_id: str) -> JobOutput:
        """Create the analysis, or store the trace.

        Without an analysis, the result has ``trace``, its address on all machines, and
        ``was_here``, whether the same content was already stored.
        """
        total = 1 if self.wishes is None else 1 + len(STEPS)
        stored = self._download(progress, total)
        if self.wishes is None:
            return JobOutput(None, {"trace": address(stored.path), "was_here": stored.is_reused})
        return self._analysis(stored.path).run(as_part(progress, 1, total), job_id)

    def _analysis(self, trace: Path) -> Analyze:
        submission = Submission.of(self.wishes or AnalysisOptions(), trace=trace)
        return Analyze(submission, is_again=self.is_again, labels=self.labels)

    def _download(self, progress: Progress, total: int) -> StoredTrace:
        step = Step(FETCH_STEP, 1, total, "started")
        progress(step)
        begin = perf_counter()

        def on_bytes(done: int, of: int | None) -> None:
            progress(replace(step, state="running", reading=ReadProgress(done, of or 0, 0)))

        with scratch_folder(uploads_dir(), "fetch") as folder:
            stored = fetch_trace(self.url, folder, on_bytes)
        publish_file(stored.path)
        progress(replace(step, state="done", elapsed_s=perf_counter() - begin))
        return stored
