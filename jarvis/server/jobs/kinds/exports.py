"""Jobs that write an analysis, a part of it, or a comparison as a file."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlencode

from jarvis.comparison import TOLERANCE, Role
from jarvis.core.errors import JarvisError, ReplayError
from jarvis.core.output import write_zip
from jarvis.core.product import REPORT_PAGE
from jarvis.core.workspace import ComparisonPaths, safe_name
from jarvis.pipeline import Progress, compare, opened_at
from jarvis.pipeline.steps import step
from jarvis.replay import select
from jarvis.reports import reporter
from jarvis.reports.comparative import write_folder, write_sheets
from jarvis.reports.perfetto import FORMAT as PERFETTO
from jarvis.reports.perfetto import PerfettoReporter
from jarvis.run import Run, TargetPct
from jarvis.run.stored_calls import is_trace_of
from jarvis.server.database import JobKind, database
from jarvis.server.ingest.intake import opened_input
from jarvis.server.jobs.kinds.base import FileRequest, JobOutput, file_name_of, subject_of
from jarvis.server.settings import settings
from jarvis.server.storage.artifacts import find_file
from jarvis.server.storage.catalog import analysis_root, read_catalog
from jarvis.server.storage.report_notes import read_notes, stored_edits
from jarvis.text.format import counted
from jarvis.trace import OnProgress
from jarvis.tracelens.compare_report import NamedReport, compare_reports

WHOLE_RUN = "zip"
"""Format name of an export of the whole run directory."""

HAS_TRACE, ORIGIN = "has_trace", "origin_ns"
"""Keys of a job's result: whether a trace for Perfetto has all slices of the trace, and the time of
the trace in ns that counts as 0 in it."""

_ZIP = ".zip"


@contextmanager
def own_trace(analysis: str, run: Run) -> Iterator[Path | None]:
    """Yield the trace of an analysis that this server made, if it still has it, else None.

    The path in an imported analysis is not trusted: it may name a file of another person.
    """
    with ExitStack() as block:
        trace = None
        if read_catalog().find(analysis).source is None:
            try:
                path = find_file(Path(run.manifest.trace.path))
                opened = block.enter_context(opened_input(path))
                trace = opened if is_trace_of(run, opened) else None
            except (JarvisError, OSError):  # outside the folders of this server, or gone
                trace = None
        yield trace


@dataclass(frozen=True, slots=True)
class Export(FileRequest):
    """Write an analysis in a report format, or its whole folder as ``WHOLE_RUN``.

    Attributes:
        target_pct: target efficiency of the findings; None for that of the analysis.
        category_targets: as in ``AnalysisOptions``; None for those of the analysis.
    """

    analysis: str
    format_name: str
    target_pct: TargetPct | None = None
    category_targets: str | None = None

    kind = JobKind.EXPORT

    @property
    def title(self) -> str:
        target = "" if self.target_pct is None else f" at {self.target_pct:g}% of the roofline"
        target += f", {self.category_targets}" if self.category_targets else ""
        return f"Export {subject_of(self.analysis)} as {self.format_name}{target}"

    @property
    def analyses(self) -> tuple[str, ...]:
        return (self.analysis,)

    @property
    def stamp(self) -> str:
        """Return the stamp of the analysis, with a digest of the notes that the file shows."""
        stamp = super(Export, self).stamp  # a class with slots is not the one being defined here
        if self.format_name == WHOLE_RUN or not reporter(self.format_name).has_notes:
            return stamp
        notes = read_notes(database(), self.analysis)
        digest = sha256(repr(notes).encode(errors="replace")).hexdigest()
        return f"{stamp} {digest}" if notes.revision else stamp

    def run(self, progress: Progress, job_id: str) -> JobOutput:
        """Write the ``file`` with the notes on the report; formats that write a folder are zipped.

        Of a trace for Perfetto, the result also has HAS_TRACE and ORIGIN.
        """
        root = analysis_root(self.analysis)
        more: dict[str, object] = {}
        with (
            step(0, progress, ("Write the file",)) as on_reading,
            opened_at(root, self.target_pct, self.category_targets) as run,
            self.output_folder(job_id) as folder,
        ):
            if self.format_name == WHOLE_RUN:
                name = file_name_of(run, f"{self._stem}{_ZIP}")
                write_zip(folder / name, run.root or root)
            elif self.format_name == PERFETTO:
                name = file_name_of(run, f"{self._stem}{PerfettoReporter.suffix}")
                more = self._trace(run, folder / name, on_reading)
            else:
                name = self._rendered(run, folder)
        output = self.output(job_id, name)
        return replace(output, result={**output.result, **more})

    @property
    def _stem(self) -> str:
        """Return the file name without suffix: the id of the analysis, and a chosen target."""
        target = "" if self.target_pct is None else f"_at_{self.target_pct:g}_percent"
        if self.category_targets:
            target += f"_{safe_name(self.category_targets)}"
        return f"{self.analysis}{target}"

    @property
    def _page_url(self) -> str | None:
        """Return the address of the report's page; None if that of the server is not known."""
        base, query = settings().public_url, urlencode({"analysis": self.analysis})
        return f"{base.rstrip('/')}{REPORT_PAGE}?{query}" if base else None

    def _trace(self, run: Run, out: Path, on_reading: OnProgress) -> dict[str, object]:
        """Write a trace for Perfetto; return what the result says of it."""
        from jarvis.reports.perfetto.trace_file import write_trace  # loads compiled kernels

        with own_trace(self.analysis, run) as trace:
            written = write_trace(run, out, trace, on_progress=on_reading)
        return {HAS_TRACE: trace is not None, ORIGIN: written.origin_ns}

    def _rendered(self, run: Run, folder: Path) -> str:
        """Write the report in its format into a folder; return the file name."""
        edits = stored_edits(analysis_root(self.analysis))
        chosen = reporter(self.format_name).with_notes(edits, self._page_url)
        name = file_name_of(run, f"{self._stem}{chosen.suffix or _ZIP}")
        if chosen.suffix:
            chosen.render(run, folder / name)
            return name
        with TemporaryDirectory() as written:
            out = Path(written) / chosen.name
            chosen.render(run, out)
            write_zip(folder / name, out)
        return name


@dataclass(frozen=True, slots=True)
class Replay(FileRequest):
    """Package operations of an analysis for replay, by uid or by operator."""

    analysis: str
    operators: tuple[str, ...] = ()
    uids: tuple[int, ...] = ()

    kind = JobKind.REPLAY

    @property
    def title(self) -> str:
        count = len(self.operators) + len(self.uids)
        choice = self.operators[0] if count == 1 and self.operators else counted(count, "choice")
        return f"Package {choice} of {subject_of(self.analysis)} for replay"

    @property
    def analyses(self) -> tuple[str, ...]:
        return (self.analysis,)

    def run(self, progress: Progress, job_id: str) -> JobOutput:
        """Write the ``file``, a zip; raise ReplayError if nothing can be packaged."""
        run = Run.load(analysis_root(self.analysis))
        with step(0, progress, ("Package the calls",)):
            selection = select(run, self.uids, self.operators)
            if not selection.entries:
                reasons = "; ".join(dict.fromkeys(refusal.reason for refusal in selection.refusals))
                raise ReplayError(f"None of these operations can be packaged: {reasons}")
            name = file_name_of(run, selection.file_name)
            with self.output_folder(job_id) as folder:
                (folder / name).write_bytes(selection.package())
        return self.output(job_id, name)


STEPS = ("Compare the analyses", "Write the files", "Compress the files")


@dataclass(frozen=True, slots=True)
class Compare(FileRequest):
    """Write all files of a comparison as a zip, or only its workbook.

    Attributes:
        tolerance: factor by which a call may deviate from the expected ratio; not used in the
            workbook.
    """

    target: str
    reference: str
    tolerance: float = TOLERANCE
    is_workbook_alone: bool = False

    kind = JobKind.COMPARE

    @property
    def title(self) -> str:
        files = " as a workbook" if self.is_workbook_alone else ""
        target, reference = map(subject_of, self.analyses)
        return f"Compare {target} with {reference}{files}"

    @property
    def analyses(self) -> tuple[str, ...]:
        return self.target, self.reference

    def run(self, progress: Progress, job_id: str) -> JobOutput:
        with step(0, progress, STEPS):
            target, reference = (Run.load(analysis_root(side)) for side in self.analyses)
            comparison = compare(target, reference, tolerance=self.tolerance)
            sides = ((Role.REFERENCE, reference), (Role.TARGET, target))
            sheets = compare_reports([NamedReport(role.value, run.sheets()) for role, run in sides])
        names = safe_name(f"{comparison.target.label}_against_{comparison.reference.label}")
        workbook = ComparisonPaths(Path()).workbook.name
        name = f"{names}_{workbook if self.is_workbook_alone else 'comparison.zip'}"
        with self.output_folder(job_id) as folder, TemporaryDirectory() as written:
            with step(1, progress, STEPS):
                if self.is_workbook_alone:
                    write_sheets(sheets, folder / name)
                else:
                    write_folder(comparison, target, reference, sheets, Path(written))
            with step(2, progress, STEPS):
                if not self.is_workbook_alone:
                    write_zip(folder / name, Path(written))
        return self.output(job_id, name)
