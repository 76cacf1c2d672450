"""Jobs that make an analysis."""

from dataclasses import dataclass, replace
from pathlib import Path

from jarvis.core.workspace import analyses_dir
from jarvis.hardware import load_hardware
from jarvis.pipeline import STEPS, Progress
from jarvis.server.database import JobKind
from jarvis.server.ingest.opening import opened_input
from jarvis.server.jobs.kinds.base import JobOutput, Request, as_part
from jarvis.server.storage.storage_keys import FilePath
from jarvis.server.submission import StoredAnalysis, Submission, resubmit, submit


@dataclass(frozen=True, slots=True)
class Analyze(Request):
    """Analyze a trace; ``reference_trace`` is analyzed first and is its reference then.

    ``is_again`` makes an analysis anew that is kept already.
    """

    submission: Submission
    reference_trace: FilePath | None = None
    is_again: bool = False

    kind = JobKind.ANALYZE

    @property
    def title(self) -> str:
        """The file, and the model where it has a name."""
        named = self.submission.model_name
        return f"Analyze {self.submission.trace.name}{f' ({named})' if named else ''}"

    @property
    def inputs(self) -> tuple[Path, ...]:
        """The traces and the files with models and figures."""
        given = self.submission
        named = (given.trace, self.reference_trace, given.extension_file, given.arch_json)
        return tuple(path for path in named if path is not None)

    @property
    def is_personal(self) -> bool:
        """Only the owner of an analysis has it made again."""
        return self.is_again

    @property
    def analyses(self) -> tuple[str, ...]:
        """The reference."""
        reference = self.submission.reference
        return () if reference is None else (reference,)

    @property
    def folders(self) -> tuple[Path, ...]:
        """That of the analyses, and that of the copy."""
        copy = self.submission.copy_to
        return (analyses_dir(), *(() if copy is None else (copy.parent,)))

    def run(self, progress: Progress, job_id: str) -> JobOutput:
        """Gives the analysis."""
        submission, steps = self.submission, len(STEPS)
        if self.reference_trace is not None:
            first = as_part(progress, 0, 2 * steps, "Reference: ")
            with opened_input(self.reference_trace) as opened:
                reference = submit(Submission(self.reference_trace), first, opened=opened)
            submission = replace(submission, reference=reference.id)
            progress = as_part(progress, steps, 2 * steps)
        with opened_input(submission.trace) as opened:
            return _kept(submit(submission, progress, again=self.is_again, opened=opened))


@dataclass(frozen=True, slots=True)
class Reproject(Request):
    """Judge a stored analysis against another GPU; None for the trace's own, its first preset."""

    analysis: str
    platform: str | None
    preset: str | None

    kind = JobKind.REPROJECT

    @property
    def title(self) -> str:
        """The analysis and the GPU."""
        if self.platform is None:
            return f"Re-project {self.analysis} onto its own GPU"
        gpu = load_hardware().get(self.platform, self.preset).title
        return f"Re-project {self.analysis} onto {gpu}"

    @property
    def analyses(self) -> tuple[str, ...]:
        """The one that is judged."""
        return (self.analysis,)

    @property
    def folders(self) -> tuple[Path, ...]:
        """That of the analyses."""
        return (analyses_dir(),)

    def run(self, progress: Progress, job_id: str) -> JobOutput:
        """Gives the new analysis."""
        return _kept(resubmit(self.analysis, self.platform, self.preset, progress))


def _kept(kept: StoredAnalysis) -> JobOutput:
    return JobOutput(kept.id, {"is_reused": kept.is_reused})
