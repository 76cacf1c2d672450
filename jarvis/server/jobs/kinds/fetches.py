"""Jobs that download traces from other machines."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from time import perf_counter
from urllib.parse import unquote

from jarvis.core.errors import JarvisError
from jarvis.core.labels import NO_LABELS, RunLabels
from jarvis.core.request import AnalysisOptions
from jarvis.core.staging import scratch_folder
from jarvis.core.workspace import uploads_dir
from jarvis.pipeline import STEPS, Progress, Step
from jarvis.server.database import JobKind
from jarvis.server.ingest.addresses import address_of
from jarvis.server.ingest.fetch import fetch_trace, names_several, trace_urls
from jarvis.server.ingest.intake import StoredTrace
from jarvis.server.jobs.kinds.analyses import Analyze
from jarvis.server.jobs.kinds.base import JobOutput, Request, as_part
from jarvis.server.storage.artifacts import publish_file
from jarvis.server.storage.storage_keys import address
from jarvis.server.submission import Submission
from jarvis.text.markdown import short_line
from jarvis.trace import ReadProgress

FETCH_STEP = "Download the trace"
_MAX_SHOWN_CHARS = 100


@dataclass(frozen=True, slots=True)
class Fetch(Request):
    """Download a trace by http, https, sftp or s3, and analyze it unless ``wishes`` is None.

    Attributes:
        url: that of a trace; without ``wishes`` also of a folder, or one with a range in braces.
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
        name = short_line(source.file_name, _MAX_SHOWN_CHARS)
        return f"Download {name or 'traces'} from {source.host_and_port}"

    @property
    def trace_name(self) -> str:
        """Return the path of the file; AddressError if the URL is not allowed."""
        return unquote(address_of(self.url).path).lstrip("/")

    @property
    def is_personal(self) -> bool:
        """Return ``is_again``: only the owner of an analysis can run it again."""
        return self.is_again

    @property
    def analyses(self) -> tuple[str, ...]:
        return () if self.wishes is None else self._analysis(Path()).analyses

    @property
    def folders(self) -> tuple[Path, ...]:
        """Return the folder of the partial download, and the folders of the analysis."""
        return (uploads_dir(), *(() if self.wishes is None else self._analysis(Path()).folders))

    def run(self, progress: Progress, job_id: str) -> JobOutput:
        """Create the analysis, or store the trace.

        Without an analysis, the result has ``trace``, its address on all machines, and
        ``was_here``, whether the same content was already stored. Of several traces, it has
        ``traces``, their addresses, and ``failed``, why each of the others is not among them.
        """
        if self.wishes is None and names_several(self.url):
            return self._download_each(progress)
        total = 1 if self.wishes is None else 1 + len(STEPS)
        stored = self._download(progress, Step(FETCH_STEP, 1, total, "started"), self.url)
        if self.wishes is None:
            return JobOutput(None, {"trace": address(stored.path), "was_here": stored.is_reused})
        return self._analysis(stored.path).run(as_part(progress, 1, total), job_id)

    def _analysis(self, trace: Path) -> Analyze:
        submission = Submission.of(self.wishes or AnalysisOptions(), trace=trace)
        return Analyze(submission, is_again=self.is_again, labels=self.labels)

    def _download_each(self, progress: Progress) -> JobOutput:
        sources = trace_urls(self.url)
        traces: list[str] = []
        failed: list[str] = []
        for number, (url, name) in enumerate(sources, start=1):
            step = Step(FETCH_STEP, number, len(sources), "started")
            try:
                # folders may tell the rank
                stored = self._download(progress, step, url, name.replace("/", "_"))
            except JarvisError as error:
                if number == len(sources) and not traces:
                    raise
                failed.append(f"{name}: {error}")
            else:
                traces.append(address(stored.path))
        return JobOutput(None, {"traces": traces, "failed": failed})

    def _download(
        self, progress: Progress, step: Step, url: str, name: str | None = None
    ) -> StoredTrace:
        progress(step)
        begin = perf_counter()

        def on_bytes(done: int, of: int | None) -> None:
            progress(replace(step, state="running", reading=ReadProgress(done, of or 0, 0)))

        with scratch_folder(uploads_dir(), "fetch") as folder:
            stored = fetch_trace(url, folder, on_bytes, name)
        publish_file(stored.path)
        progress(replace(step, state="done", elapsed_s=perf_counter() - begin))
        return stored


def trace_names(requests: Sequence[Analyze | Fetch]) -> list[str]:
    """Return the names of traces; of downloads, their paths below the folder that they share."""
    places = [PurePosixPath(each.trace_name) for each in requests]
    fetched = [isinstance(each, Fetch) for each in requests]
    folders = [place.parent for place, is_far in zip(places, fetched, strict=True) if is_far]
    shared = os.path.commonpath(folders) if folders else ""
    return [
        str(place.relative_to(shared) if is_far else place)
        for place, is_far in zip(places, fetched, strict=True)
    ]
