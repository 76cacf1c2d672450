"""Jobs that create a file from stored analyses for download; equal requests share one file."""

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
    """Request of a file from stored analyses; the first one is its subject."""

    __slots__ = ()

    @property
    def stamp(self) -> str:
        """Return the digests of the manifests; raise UnknownAnalysisError if one is not stored."""
        manifests = [RunPaths(analysis_root(analysis)).manifest for analysis in self.analyses]
        return " ".join(sha256(manifest.read_bytes()).hexdigest() for manifest in manifests)

    @property
    def folders(self) -> tuple[Path, ...]:
        """Return the folder of exported files."""
        return (exports_dir(),)

    @contextmanager
    def output_folder(self, job_id: str) -> Iterator[Path]:
        """Yield a folder for the file, stored under the job's id unless the block raises."""
        with staged_folder(exports_dir() / job_id, lambda: None) as folder:
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
