"""Jobs that read a trace, or create an analysis: of a trace, re-projected, or imported."""

from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from jarvis.core.labels import NO_LABELS, RunLabels
from jarvis.core.staging import scratch_folder
from jarvis.core.workspace import analyses_dir, archive_name, uploads_dir
from jarvis.hardware import load_hardware
from jarvis.pipeline import STEPS, Progress, read_info
from jarvis.pipeline.steps import step
from jarvis.ranks.archives import holds_several
from jarvis.server.database import JobKind
from jarvis.server.errors import ArchiveError, RemoteError
from jarvis.server.ingest.intake import opened_input, unpacked_uploads
from jarvis.server.ingest.remote_runs import RemoteRun, check_run, run_remote
from jarvis.server.jobs.kinds.base import JobOutput, Request, as_part
from jarvis.server.storage.analysis_rows import labeled, made_on
from jarvis.server.storage.archive import load_archive, unpack_archive
from jarvis.server.storage.artifacts import publish_file
from jarvis.server.storage.storage_keys import FilePath, address
from jarvis.server.submission import StoredAnalysis, Submission, import_run, resubmit, submit


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
        model = self.submission.model_name
        return f"Analyze {self.submission.trace.name}{f' ({model})' if model else ''}"

    @property
    def trace_name(self) -> str:
        return self.submission.trace.name

    @property
    def inputs(self) -> tuple[Path, ...]:
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
        reference = self.submission.reference
        return () if reference is None else (reference,)

    @property
    def folders(self) -> tuple[Path, ...]:
        copy = self.submission.copy_to
        return (analyses_dir(), *(() if copy is None else (copy.parent,)))

    def run(self, progress: Progress, job_id: str) -> JobOutput:
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
        if self.platform is None:
            return f"Re-project {self.analysis} onto its own GPU"
        gpu = load_hardware().get(self.platform, self.preset).title
        return f"Re-project {self.analysis} onto {gpu}"

    @property
    def analyses(self) -> tuple[str, ...]:
        return (self.analysis,)

    def run(self, progress: Progress, job_id: str) -> JobOutput:
        return _output(resubmit(self.analysis, self.platform, self.preset, progress))


def _output(stored: StoredAnalysis) -> JobOutput:
    return JobOutput(stored.id, {"is_reused": stored.is_reused})


@dataclass(frozen=True, slots=True)
class Inspect(Request):
    """Read the metadata of a trace."""

    trace: FilePath

    kind = JobKind.INSPECT

    @property
    def title(self) -> str:
        return f"Read {self.trace.name}"

    @property
    def inputs(self) -> tuple[Path, ...]:
        return (self.trace,)

    @property
    def folders(self) -> tuple[Path, ...]:
        """Return the folders of the temporary link to the opened trace, and of unpacked traces."""
        return (analyses_dir(), uploads_dir())

    def run(self, progress: Progress, job_id: str) -> JobOutput:
        """Return ``info``, the fields of a ``TraceInfo``.

        The traces of an archive of several are stored as uploads; ``traces`` are their addresses.
        """
        with step(0, progress, STEPS[:1]) as on_reading, opened_input(self.trace) as opened:
            if holds_several(opened):
                traces = unpacked_uploads(opened)
                for trace in traces:
                    publish_file(trace)
                return JobOutput(None, {"traces": [address(trace) for trace in traces]})
            info = read_info(opened, on_reading).model_copy(update={"path": str(self.trace)})
        return JobOutput(None, {"info": info.model_dump(mode="json")})


@dataclass(frozen=True, slots=True)
class Load(Request):
    """Validate an archive and store its analysis; only jobs open archives, which are untrusted."""

    archive: FilePath

    kind = JobKind.LOAD

    @property
    def title(self) -> str:
        return f"Load {self.archive.name}"

    @property
    def inputs(self) -> tuple[Path, ...]:
        return (self.archive,)

    def run(self, progress: Progress, job_id: str) -> JobOutput:
        """Store the analysis; ``was_pinned`` in the result is its state on the source server."""
        with step(0, progress, ("Check and unpack the file",)):
            loaded = load_archive(self.archive)
        return JobOutput(
            loaded.id, {"is_reused": loaded.is_reused, "was_pinned": loaded.was_pinned}
        )


@dataclass(frozen=True, slots=True)
class Remote(Request):
    """Analyze a trace on a machine of the settings, and import the result with ``labels``."""

    run_asked: RemoteRun
    labels: RunLabels = NO_LABELS

    kind = JobKind.REMOTE

    @property
    def title(self) -> str:
        """Return the title with file, model and machine; raise RemoteError if it is not valid."""
        run = self.run_asked
        check_run(run)
        model = f" ({run.model_name})" if run.model_name else ""
        return f"Analyze {PurePosixPath(run.path).name}{model} on {run.target}"

    def run(self, progress: Progress, job_id: str) -> JobOutput:
        """Store the analysis after validating its files."""
        target = self.run_asked.target
        with scratch_folder(analyses_dir(), "remote") as scratch:
            packed, folder = scratch / archive_name("run"), scratch / "run"
            folder.mkdir()
            run_remote(self.run_asked, packed, progress)
            _unpack(target, packed, folder)
            with made_on(target), labeled(self.labels):
                stored = import_run(folder)
        return JobOutput(stored.id, {"is_reused": stored.is_reused, "made_on": target})


def _unpack(target: str, packed: Path, folder: Path) -> None:
    """Unpack and validate a received archive; raise RemoteError if it is not valid."""
    try:
        unpack_archive(packed, folder)
    except ArchiveError as error:
        raise RemoteError(f"{target} sent an invalid analysis: {error}") from error
