"""Base classes of job requests, and the output of a job."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

from pydantic import TypeAdapter
from sqlalchemy import Engine

from jarvis.core.staging import staged_folder
from jarvis.core.workspace import RunPaths, analyses_dir, exports_dir, safe_name, uploads_dir
from jarvis.pipeline import STEPS, Progress, Step
from jarvis.run import Run, read_manifest
from jarvis.server import queue
from jarvis.server.access.rights import Person
from jarvis.server.database import JobKind, JobState
from jarvis.server.errors import MissingInputError
from jarvis.server.ingest.intake import SAMPLE_NAME, sample_trace
from jarvis.server.queue import Job, NewJob
from jarvis.server.storage import custom_hardware
from jarvis.server.storage.artifacts import find_file, is_shared, local_file, publish_file
from jarvis.server.storage.catalog import analysis_root, name_of
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
        return (analyses_dir(),)

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
        custom_hardware.synchronize()
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


class FileRequest(Request):
    """Request of a file from stored analyses; the first one is its subject."""

    __slots__ = ()

    @property
    def stamp(self) -> str:
        """Return the digests of the manifests; raise UnknownAnalysisError if one is not stored."""
        manifests = [RunPaths(analysis_root(analysis)).manifest for analysis in self.analyses]
        return " ".join(sha256(manifest.read_bytes()).hexdigest() for manifest in manifests)

    @property
    def folders(self) -> tuple[Path, ...]:
        return (exports_dir(),)

    @contextmanager
    def output_folder(self, job_id: str) -> Iterator[Path]:
        """Yield a folder for the file, stored under the job's id unless the block raises."""
        with staged_folder(exports_dir() / job_id) as folder:
            yield folder

    def output(self, job_id: str, name: str) -> JobOutput:
        """Return the output of a job that stored a file of this name."""
        publish_file(exports_dir() / job_id / name)
        return JobOutput(self.analyses[0], {"file": f"{job_id}/{name}"})


def subject_of(analysis: str) -> str:
    """Return the name of an analysis for titles; raise UnknownAnalysisError if it is not stored."""
    manifest = read_manifest(analysis_root(analysis))
    gpu = manifest.hardware
    return name_of(manifest) + (f" ({gpu.name})" if gpu else "")


def file_name_of(run: Run, name: str) -> str:
    """Return a file name prefixed with the name of the run."""
    return f"{safe_name(name_of(run.manifest))}_{name}"


def job_file(result: Mapping[str, Any]) -> Path | None:
    """Return the file of a job, which may have been deleted; None if the job created none."""
    return find_file(exports_dir() / result["file"]) if "file" in result else None


def earlier_job(engine: Engine, new: NewJob, person: Person) -> Job | None:
    """Return an equal job that the person can see and whose file still exists; None if none."""
    earlier = queue.latest(engine, new, person)
    if earlier is None or earlier.state is not JobState.DONE:
        return None
    file = job_file(earlier.result)
    return earlier if file is not None and file.is_file() else None
