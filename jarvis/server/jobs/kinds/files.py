"""Jobs that make a file of kept analyses, to be taken home; such a file is made once."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from jarvis.core.staging import staged_folder
from jarvis.core.workspace import RunPaths, exports_dir, safe_name
from jarvis.run import Run, read_manifest
from jarvis.server.access.rights import Person
from jarvis.server.database import JobState
from jarvis.server.jobs import queue
from jarvis.server.jobs.kinds.base import JobOutput, Request
from jarvis.server.jobs.queue import Job, NewJob
from jarvis.server.storage.artifacts import find_file, publish_file
from jarvis.server.storage.catalog import analysis_root, name_of


class FileRequest(Request):
    """A file of kept analyses, the first of which it is about."""

    __slots__ = ()

    @property
    def stamp(self) -> str:
        """What the analyses were made of and by; UnknownAnalysisError where one is not kept."""
        manifests = [RunPaths(analysis_root(analysis)).manifest for analysis in self.analyses]
        return " ".join(sha256(manifest.read_bytes()).hexdigest() for manifest in manifests)

    @property
    def folders(self) -> tuple[Path, ...]:
        """That of the files of jobs."""
        return (exports_dir(),)

    @contextmanager
    def keeping(self, job_id: str) -> Iterator[Path]:
        """A folder for one file, kept under the job's id when the block ends well."""
        with staged_folder(exports_dir() / job_id, lambda: None) as folder:
            yield folder

    def made(self, job_id: str, name: str) -> JobOutput:
        """What the job says when it has kept a file of this name."""
        publish_file(exports_dir() / job_id / name)
        return JobOutput(self.analyses[0], {"file": f"{job_id}/{name}"})


def subject_of(analysis: str) -> str:
    """How a title names an analysis; UnknownAnalysisError where it is not kept."""
    manifest = read_manifest(analysis_root(analysis))
    gpu = manifest.hardware
    return name_of(manifest) + (f" ({gpu.name})" if gpu else "")


def file_name_of(run: Run, name: str) -> str:
    """A name for a file of a run; the model's stands before it."""
    return f"{safe_name(name_of(run.manifest))}_{name}"


def job_file(result: Mapping[str, Any]) -> Path | None:
    """The file that a job has made; it may have been removed since."""
    return find_file(exports_dir() / result["file"]) if "file" in result else None


def earlier_job(engine: Engine, new: NewJob, person: Person) -> Job | None:
    """The job that made this file before, where the file is there and the person may have it."""
    before = queue.latest(engine, new, person)
    if before is None or before.state is not JobState.DONE:
        return None
    file = job_file(before.result)
    return before if file is not None and file.is_file() else None
