"""Jobs that write the comparison of two kept analyses as files."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from jarvis.comparison import TOLERANCE, Role
from jarvis.core.workspace import ComparisonPaths, safe_name
from jarvis.pipeline import Progress, compare
from jarvis.pipeline.steps import step
from jarvis.reports.comparative.folder import write_folder, write_sheets
from jarvis.run import Run
from jarvis.server.database import JobKind
from jarvis.server.jobs.kinds.base import JobOutput
from jarvis.server.jobs.kinds.files import FileRequest, subject_of
from jarvis.server.storage.catalog import analysis_root
from jarvis.server.storage.downloads import write_zip
from jarvis.tracelens.compare_report import NamedReport, compare_reports

STEPS = ("Compare the two sides", "Write the files", "Pack them")


@dataclass(frozen=True, slots=True)
class Compare(FileRequest):
    """Write all files of a comparison as a zip, or its workbook, which knows no tolerance, alone.

    ``tolerance`` is the factor by which a call may be off the expected ratio.
    """

    target: str
    reference: str
    tolerance: float = TOLERANCE
    is_workbook_alone: bool = False

    kind = JobKind.COMPARE

    @property
    def title(self) -> str:
        """Both analyses, and what is asked for where that is not all."""
        files = " as a workbook" if self.is_workbook_alone else ""
        target, reference = map(subject_of, self.analyses)
        return f"Compare {target} with {reference}{files}"

    @property
    def analyses(self) -> tuple[str, ...]:
        """The target and the reference."""
        return self.target, self.reference

    def run(self, progress: Progress, job_id: str) -> JobOutput:
        """Gives the ``file``."""
        with step(0, progress, STEPS):
            target, reference = (Run.load(analysis_root(side)) for side in self.analyses)
            comparison = compare(target, reference, tolerance=self.tolerance)
            sides = ((Role.REFERENCE, reference), (Role.TARGET, target))
            sheets = compare_reports([NamedReport(role.value, run.sheets()) for role, run in sides])
        names = safe_name(f"{comparison.target.label}_against_{comparison.reference.label}")
        workbook = ComparisonPaths(Path()).workbook.name
        name = f"{names}_{workbook if self.is_workbook_alone else 'comparison.zip'}"
        with self.keeping(job_id) as folder, TemporaryDirectory() as written:
            with step(1, progress, STEPS):
                if self.is_workbook_alone:
                    write_sheets(sheets, folder / name)
                else:
                    write_folder(comparison, target, reference, sheets, Path(written))
            with step(2, progress, STEPS):
                if not self.is_workbook_alone:
                    write_zip(folder / name, Path(written))
        return self.made(job_id, name)
