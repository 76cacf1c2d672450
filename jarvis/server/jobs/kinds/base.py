"""Base class of job requests, and the output of a job."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from pydantic import TypeAdapter

from jarvis.core.workspace import uploads_dir
from jarvis.pipeline import STEPS, Progress, Step
from jarvis.server.database import JobKind
from jarvis.server.errors import MissingInputError
from jarvis.server.ingest.intake import SAMPLE_NAME, sample_trace
from jarvis.server.jobs.queue import NewJob
from jarvis.server.storage import custom_hardware
from jarvis.server.storage.artifacts import is_shared, local_file, publish_file
from jarvis.server.storage.storage_keys import address, key_of
from jarvis.trace import ReadProgress


@dataclass(frozen=True, slots=True)
class JobOutput:
    """Output of a job.

    Attributes:
        analysis_id: the created or used analysis.
        result: JSON values: ``is_reused`` if the analysis was already stored, ``info`` of a trace,
            ``file`` to download.
    """

    analysis_id: str | None
    result: dict[str, Any]


class Request(ABC):
    """Base class of job requests; the fields of a subclass are the job's parameters."""

    __slots__ = ()
    kind: ClassVar[JobKind]

    @property
    @abstractmethod
    def title(self) -> str:
        """Return the title for lists of jobs."""

    @property
    def inputs(self) -> tuple[Path, ...]:
        """Return the input files; requests with changed input files are not equal."""
        return ()

    @property
    def is_personal(self) -> bool:
        """Return whether the outcome depends on the person, so that others cannot share the job."""
        return False

    @property
    def analyses(self) -> tuple[str, ...]:
        """Return the ids of the analyses that it reads, all of which the person must see."""
        return ()

    @property
    def folders(self) -> tuple[Path, ...]:
        """Return the folders in which it creates folders, each atomically."""
        return ()

    @abstractmethod
    def run(self, progress: Progress, job_id: str) -> JobOutput:
        """Run the job; may raise a JarvisError, or an OSError of the disk."""

    @property
    def stamp(self) -> str:
        """Return the sizes and modification times of the input files.

        Files in the artifact root are left out, because they never change.

        Raises:
            MissingInputError: a file does not exist.
        """
        try:
            stats = [path.stat() for path in self.inputs if not publish_file(path)]
        except OSError as error:
            raise MissingInputError(error) from error
        return " ".join(f"{stat.st_size} {stat.st_mtime_ns}" for stat in stats)

    def bring_inputs(self, progress: Progress) -> None:
        """Download input files that this machine lacks; the sample is generated instead.

        Raises ArtifactError or MissingArtifactError. Other missing files are left to ``run``.
        """
        sample = uploads_dir() / SAMPLE_NAME
        if sample in self.inputs and not sample.exists():
            sample_trace()
        custom_hardware.follow()
        for path in self.inputs if is_shared() else ():
            step = Step(f"Fetch {path.name}", 1, 1 + len(STEPS), "started")

            def on_bytes(done: int, of: int, step: Step = step) -> None:
                progress(replace(step, state="running", reading=ReadProgress(done, of, 0)))

            if not path.exists() and key_of(path) is not None:
                progress(step)
                local_file(path, on_bytes)

    def new_job(self) -> NewJob:
        """Return the job for the queue; raises as ``stamp``."""
        return NewJob(
            self.kind,
            self.title,
            TypeAdapter(type(self)).dump_python(self, mode="json"),
            self.stamp,
            tuple(address(folder) for folder in self.folders),
            self.analyses,
        )


def as_part(progress: Progress, before: int, total: int, title: str = "") -> Progress:
    """Return a progress callback for a part of a job.

    Args:
        before: number of steps before this part.
        total: number of steps of the job.
        title: prefix of the step names.
    """
    return lambda step: progress(
        replace(step, name=f"{title}{step.name}", number=before + step.number, total=total)
    )
