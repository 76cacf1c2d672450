"""What every kind of job has: what it is asked, what it reads, and what it makes."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from pydantic import TypeAdapter

from jarvis.core.errors import JarvisError
from jarvis.core.workspace import uploads_dir
from jarvis.pipeline import STEPS, Progress, Step
from jarvis.server.database import JobKind
from jarvis.server.ingest.intake import SAMPLE_NAME, sample_trace
from jarvis.server.jobs.queue import NewJob
from jarvis.server.storage import shared_hardware
from jarvis.server.storage.artifacts import is_shared, local_file, publish_file
from jarvis.server.storage.storage_keys import address, key_of
from jarvis.trace import ReadProgress


class MissingInputError(JarvisError):
    """A file that a job is to read cannot be looked at."""

    def __init__(self, error: OSError) -> None:
        name = Path(str(error.filename)).name
        super().__init__(
            f"{name} cannot be read: {error.strerror or error}. Choose it, or upload it, again."
        )


@dataclass(frozen=True, slots=True)
class JobOutput:
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
    def is_personal(self) -> bool:
        """Whether the outcome depends on the rights of who asks, so that nobody else joins in."""
        return False

    @property
    def analyses(self) -> tuple[str, ...]:
        """The ids of the kept analyses that it reads; who may not see them all may not ask."""
        return ()

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders into which it puts others, each whole or not at all."""
        return ()

    @abstractmethod
    def run(self, progress: Progress, job_id: str) -> JobOutput:
        """Do it. Raises a JarvisError where it cannot be done, an OSError of the disk."""

    @property
    def stamp(self) -> str:
        """What differs where what it reads has changed; MissingInputError where that is gone.

        What others share does not change under its name.
        """
        try:
            stats = [path.stat() for path in self.inputs if not publish_file(path)]
        except OSError as error:
            raise MissingInputError(error) from error
        return " ".join(f"{stat.st_size} {stat.st_mtime_ns}" for stat in stats)

    def bring_inputs(self, progress: Progress) -> None:
        """Fetch what it reads and this machine does not have; the sample is computed everywhere.

        Raises ArtifactError, MissingArtifactError; of other files ``run`` says that they are gone.
        """
        sample = uploads_dir() / SAMPLE_NAME
        if sample in self.inputs and not sample.exists():
            sample_trace()
        shared_hardware.follow()
        for path in self.inputs if is_shared() else ():
            step = Step(f"Fetch {path.name}", 1, 1 + len(STEPS), "started")

            def on_bytes(done: int, of: int, step: Step = step) -> None:
                progress(replace(step, state="running", reading=ReadProgress(done, of, 0)))

            if not path.exists() and key_of(path) is not None:
                progress(step)
                local_file(path, on_bytes)

    def new_job(self) -> NewJob:
        """As a row of the queue; raises as ``stamp`` does."""
        return NewJob(
            self.kind,
            self.title,
            TypeAdapter(type(self)).dump_python(self, mode="json"),
            self.stamp,
            tuple(address(folder) for folder in self.folders),
            self.analyses,
        )


def as_part(progress: Progress, before: int, total: int, title: str = "") -> Progress:
    """The progress of one piece of a job's work, of whose steps ``before`` come earlier."""
    return lambda step: progress(
        replace(step, name=f"{title}{step.name}", number=before + step.number, total=total)
    )
