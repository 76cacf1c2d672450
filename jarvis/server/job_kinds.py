"""What jobs do, each kind with what it is asked and what it makes."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from pydantic import TypeAdapter

from jarvis.errors import JarvisError, ReplayError
from jarvis.hardware import load_hardware
from jarvis.pipeline import STEPS, Progress, Step, read_info
from jarvis.replay import select
from jarvis.reports import load_reporters
from jarvis.run import Run
from jarvis.server.catalogue import analysis_root, name_of
from jarvis.server.database import JobKind
from jarvis.server.downloads import zipped
from jarvis.server.jobs import NewJob
from jarvis.server.submission import Kept, Submission, resubmit, submit
from jarvis.trace import ReadProgress
from jarvis.wording import counted
from jarvis.workspace import analyses_dir, exports_dir, safe_name

WHOLE_RUN = "zip"
"""The export that is the run directory itself."""


class MissingInputError(JarvisError):
    """A file that a job is to read cannot be looked at."""

    def __init__(self, error: OSError) -> None:
        name = Path(str(error.filename)).name
        super().__init__(
            f"{name} cannot be read: {error.strerror or error}. Choose it, or upload it, again."
        )


@dataclass(frozen=True, slots=True)
class Made:
    """What a job has made: an analysis, or the one that it was about; ``result`` is JSON.

    In ``result``: ``is_reused`` where the analysis was kept before, ``info`` of a trace, ``file``
    to take home.
    """

    analysis_id: str | None
    result: dict[str, Any]


class Request(ABC):
    """What a job is asked to do; its fields are the job's parameters."""

    __slots__ = ()
    kind: ClassVar[JobKind]

    @property
    @abstractmethod
    def title(self) -> str:
        """What it does, for a list of jobs."""

    @property
    def inputs(self) -> tuple[Path, ...]:
        """The files that it reads; when one changes it is another request."""
        return ()

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders into which it puts run directories."""
        return ()

    @abstractmethod
    def run(self, progress: Progress, job_id: str) -> Made:
        """Do it. Raises a JarvisError where it cannot be done, an OSError of the disk."""

    def new_job(self) -> NewJob:
        """As a row of the queue; MissingInputError where an input is not there."""
        try:
            stats = [path.stat() for path in self.inputs]
        except OSError as error:
            raise MissingInputError(error) from error
        return NewJob(
            self.kind,
            self.title,
            TypeAdapter(type(self)).dump_python(self, mode="json"),
            " ".join(f"{stat.st_size} {stat.st_mtime_ns}" for stat in stats),
            tuple(str(folder) for folder in self.folders),
        )


def request_of(kind: JobKind, parameters: Mapping[str, Any]) -> Request:
    """The request that a row of the queue holds."""
    return TypeAdapter(_REQUESTS[kind]).validate_python(dict(parameters))


def made_file(result: Mapping[str, Any]) -> Path | None:
    """The file that a job has made; it may have been removed since."""
    return exports_dir() / result["file"] if "file" in result else None


@dataclass(frozen=True, slots=True)
class Inspect(Request):
    """Read what a trace says about itself."""

    trace: Path

    kind = JobKind.INSPECT

    @property
    def title(self) -> str:
        """The file."""
        return f"Read {self.trace.name}"

    @property
    def inputs(self) -> tuple[Path, ...]:
        """The trace."""
        return (self.trace,)

    def run(self, progress: Progress, job_id: str) -> Made:
        """Gives ``info``, the fields of a ``TraceInfo``."""
        step = Step(STEPS[0], 1, 1, "started")
        progress(step)

        def on_reading(reading: ReadProgress) -> None:
            progress(replace(step, state="running", reading=reading))

        info = read_info(self.trace, on_reading)
        return Made(None, {"info": info.model_dump(mode="json")})


@dataclass(frozen=True, slots=True)
class Analyze(Request):
    """Analyse a trace; ``reference_trace`` is analysed first and is its reference then.

    ``is_again`` makes an analysis anew that is kept already.
    """

    submission: Submission
    reference_trace: Path | None = None
    is_again: bool = False

    kind = JobKind.ANALYZE

    @property
    def title(self) -> str:
        """The file, and the model where it has a name."""
        named = self.submission.model_name
        return f"Analyse {self.submission.trace.name}{f' ({named})' if named else ''}"

    @property
    def inputs(self) -> tuple[Path, ...]:
        """The traces and the files with models and figures."""
        given = self.submission
        named = (given.trace, self.reference_trace, given.extension_file, given.arch_json)
        return tuple(path for path in named if path is not None)

    @property
    def folders(self) -> tuple[Path, ...]:
        """That of the analyses, and that of the copy."""
        copy = self.submission.copy_to
        return (analyses_dir(), *(() if copy is None else (copy.parent,)))

    def run(self, progress: Progress, job_id: str) -> Made:
        """Gives the analysis."""
        submission, steps = self.submission, len(STEPS)
        if self.reference_trace is None:
            return _kept(submit(submission, progress, again=self.is_again))
        first = _part(progress, 0, 2 * steps, "Reference: ")
        reference = submit(Submission(self.reference_trace), first)
        submission = replace(submission, reference=reference.id)
        second = _part(progress, steps, 2 * steps, "")
        return _kept(submit(submission, second, again=self.is_again))


@dataclass(frozen=True, slots=True)
class Reproject(Request):
    """Judge a kept analysis against another GPU; None for the trace's own, its first preset."""

    analysis: str
    platform: str | None
    preset: str | None

    kind = JobKind.REPROJECT

    @property
    def title(self) -> str:
        """The analysis and the GPU."""
        if self.platform is None:
            return f"Judge {self.analysis} against its own GPU"
        gpu = load_hardware().get(self.platform, self.preset).title
        return f"Judge {self.analysis} against {gpu}"

    @property
    def folders(self) -> tuple[Path, ...]:
        """That of the analyses."""
        return (analyses_dir(),)

    def run(self, progress: Progress, job_id: str) -> Made:
        """Gives the new analysis."""
        return _kept(resubmit(self.analysis, self.platform, self.preset, progress))


@dataclass(frozen=True, slots=True)
class Export(Request):
    """Write an analysis in a report format, or its whole folder as ``WHOLE_RUN``."""

    analysis: str
    format_name: str

    kind = JobKind.EXPORT

    @property
    def title(self) -> str:
        """The format and the analysis."""
        return f"Export {self.analysis} as {self.format_name}"

    def run(self, progress: Progress, job_id: str) -> Made:
        """Gives the ``file``; formats that write a folder are zipped."""
        progress(Step("Write the file", 1, 1, "started"))
        root = analysis_root(self.analysis)
        run = Run.load(root)
        if self.format_name == WHOLE_RUN:
            return _file(run, job_id, self.analysis, ".zip", zipped(root))
        reporters = load_reporters()
        if self.format_name not in reporters:
            known = ", ".join((WHOLE_RUN, *reporters))
            raise JarvisError(f"There is no format {self.format_name!r}. Choose one of {known}.")
        reporter = reporters[self.format_name]
        with TemporaryDirectory() as folder:
            out = Path(folder) / reporter.name
            reporter.render(run, out)
            content = zipped(out) if out.is_dir() else out.read_bytes()
        return _file(run, job_id, self.analysis, reporter.suffix or ".zip", content)


@dataclass(frozen=True, slots=True)
class Replay(Request):
    """Package operations of an analysis by uid, or all of some operators, to be timed elsewhere."""

    analysis: str
    operators: tuple[str, ...] = ()
    uids: tuple[int, ...] = ()

    kind = JobKind.REPLAY

    @property
    def title(self) -> str:
        """How many, or which one, and the analysis."""
        chosen = len(self.operators) + len(self.uids)
        named = self.operators[0] if chosen == 1 and self.operators else counted(chosen, "choice")
        return f"Package {named} of {self.analysis} for replay"

    def run(self, progress: Progress, job_id: str) -> Made:
        """Gives the ``file``, a zip; ReplayError where nothing of it can be packaged."""
        progress(Step("Package the calls", 1, 1, "started"))
        run = Run.load(analysis_root(self.analysis))
        selection = select(run, self.uids, self.operators)
        if not selection.entries:
            reasons = "; ".join(dict.fromkeys(refusal.reason for refusal in selection.refusals))
            raise ReplayError(f"None of this can be packaged: {reasons}")
        return _file(run, job_id, self.analysis, "_replay.zip", selection.package())


_REQUESTS: dict[JobKind, type[Request]] = {
    request.kind: request for request in (Inspect, Analyze, Reproject, Export, Replay)
}


def _part(progress: Progress, before: int, total: int, title: str) -> Progress:
    """The progress of one of two pieces of work, of which ``before`` steps come earlier."""
    return lambda step: progress(
        replace(step, name=f"{title}{step.name}", number=before + step.number, total=total)
    )


def _kept(kept: Kept) -> Made:
    return Made(kept.id, {"is_reused": kept.is_reused})


def _file(run: Run, job_id: str, analysis: str, suffix: str, content: bytes) -> Made:
    """Keep a file under the job's name; it appears whole or not at all."""
    folder = exports_dir() / job_id
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{safe_name(name_of(run.manifest))}_{analysis}{suffix}"
    half = path.with_name(f".{path.name}")
    half.write_bytes(content)
    half.replace(path)
    return Made(analysis, {"file": str(path.relative_to(exports_dir()))})
