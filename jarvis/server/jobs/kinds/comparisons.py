"""Jobs that write the comparison of two stored analyses as files."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from jarvis.comparison import TOLERANCE, Role
from jarvis.core.workspace import ComparisonPaths, safe_name
from jarvis.pipeline import Progress, compare
from jarvis.pipeline.steps import step
from jarvis.reports.comparative import write_folder, write_sheets
from jarvis.run import Run
from jarvis.server.database import JobKind
from jarvis.server.jobs.kinds.base import JobOutput
from jarvis.server.jobs.kinds.files import FileRequest, subject_of
from jarvis.server.storage.catalog import analysis_root
from jarvis.server.storage.downloads import write_zip
from jarvis.tracelens.compare_report import NamedReport, compare_reports

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
        """Return the title with both analyses, and whether it is only the workbook."""
        files = " as a workbook" if self.is_workbook_alone else ""
        target, reference = map(subject_of, self.analyses)
        return f"Compare {target} with {reference}{files}"

    @property
    def analyses(self) -> tuple[str, ...]:
        """Return the target and the reference."""
        return self.target, self.reference

    def run(self, progress: Progress, job_id: str) -> JobOutput:
        """Write the ``file``."""
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
