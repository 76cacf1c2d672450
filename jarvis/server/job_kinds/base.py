"""What every kind of job has: what it is asked, what it reads, and what it makes."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pydantic import TypeAdapter

from jarvis.errors import JarvisError
from jarvis.pipeline import Progress
from jarvis.server.database import JobKind
from jarvis.server.jobs import NewJob
from jarvis.workspace import exports_dir


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


def keep_file(job_id: str, name: str, content: bytes) -> dict[str, str]:
    """Keep a file under the job's name, for ``Made``; it appears whole or not at all."""
    folder = exports_dir() / job_id
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    half = path.with_name(f".{path.name}")
    half.write_bytes(content)
    half.replace(path)
    return {"file": str(path.relative_to(exports_dir()))}


def made_file(result: Mapping[str, Any]) -> Path | None:
    """The file that a job has made; it may have been removed since."""
    return exports_dir() / result["file"] if "file" in result else None
