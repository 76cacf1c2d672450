"""Jobs that create an analysis."""

from dataclasses import dataclass, replace
from pathlib import Path

from jarvis.core.labels import NO_LABELS, RunLabels
from jarvis.core.workspace import analyses_dir
from jarvis.hardware import load_hardware
from jarvis.pipeline import STEPS, Progress
from jarvis.server.database import JobKind
from jarvis.server.ingest.opening import opened_input
from jarvis.server.jobs.kinds.base import JobOutput, Request, as_part
from jarvis.server.storage.analysis_rows import labeled
from jarvis.server.storage.storage_keys import FilePath
from jarvis.server.submission import StoredAnalysis, Submission, resubmit, submit


@dataclass(frozen=True, slots=True)
class Analyze(Request):
    """Analyze a trace.

    Attributes:
        reference_trace: trace to analyze first and use as the reference.
        is_again: run the analysis again if its result is already stored.
        labels: labels of the analysis, also of one that is already stored.
    """

    submission: Submission
    reference_trace: FilePath | None = None
    is_again: bool = False
    labels: RunLabels = NO_LABELS

    kind = JobKind.ANALYZE

    @property
    def title(self) -> str:
        """Return the title with the file name, and the model name if there is one."""
        model = self.submission.model_name
        return f"Analyze {self.submission.trace.name}{f' ({model})' if model else ''}"

    @property
    def trace_name(self) -> str:
        """Return the name of the trace."""
        return self.submission.trace.name

    @property
    def inputs(self) -> tuple[Path, ...]:
        """Return the traces, and the files that the request names."""
        submission = self.submission
        files = (
            submission.trace,
            self.reference_trace,
            submission.extension_file,
            submission.arch_json,
            submission.capture_folder,
            submission.served_model,
        )
        return tuple(path for path in files if path is not None)

    @property
    def is_personal(self) -> bool:
        """Return ``is_again``: only the owner of an analysis can run it again."""
        return self.is_again

    @property
    def analyses(self) -> tuple[str, ...]:
        """Return the reference."""
        reference = self.submission.reference
        return () if reference is None else (reference,)

    @property
    def folders(self) -> tuple[Path, ...]:
        """Return the folder of the analyses, and that of the copy."""
        copy = self.submission.copy_to
        return (analyses_dir(), *(() if copy is None else (copy.parent,)))

    def run(self, progress: Progress, job_id: str) -> JobOutput:
        """Create the analysis."""
        submission, steps = self.submission, len(STEPS)
        if self.reference_trace is not None:
            first = as_part(progress, 0, 2 * steps, "Reference: ")
            with opened_input(self.reference_trace) as opened:
                reference = submit(Submission(self.reference_trace), first, opened=opened)
            submission = replace(submission, reference=reference.id)
            progress = as_part(progress, steps, 2 * steps)
        with opened_input(submission.trace) as opened, labeled(self.labels):
            return _output(submit(submission, progress, again=self.is_again, opened=opened))


@dataclass(frozen=True, slots=True)
class Reproject(Request):
    """Re-project a stored analysis onto another GPU; None for the trace's own GPU."""

    analysis: str
    platform: str | None
    preset: str | None

    kind = JobKind.REPROJECT

    @property
    def title(self) -> str:
        """Return the title with the analysis and the GPU."""
        if self.platform is None:
            return f"Re-project {self.analysis} onto its own GPU"
        gpu = load_hardware().get(self.platform, self.preset).title
        return f"Re-project {self.analysis} onto {gpu}"

    @property
    def analyses(self) -> tuple[str, ...]:
        """Return the re-projected analysis."""
        return (self.analysis,)

    @property
    def folders(self) -> tuple[Path, ...]:
        """Return the folder of the analyses."""
        return (analyses_dir(),)

    def run(self, progress: Progress, job_id: str) -> JobOutput:
        """Create the re-projected analysis."""
        return _output(resubmit(self.analysis, self.platform, self.preset, progress))


def _output(stored: StoredAnalysis) -> JobOutput:
    return JobOutput(stored.id, {"is_reused": stored.is_reused})
