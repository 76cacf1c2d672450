"""Analyses are removed: at once for everyone, and not while a job works with them."""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from jarvis.errors import JarvisError
from jarvis.server import jobs
from jarvis.server.catalogue import UnknownAnalysisError, is_analysis_id, read_catalogue
from jarvis.server.database import ACTIVE, database
from jarvis.server.pins import pinned
from jarvis.workspace import analyses_dir

REMOVED = "removed-"
"""Follows the name of a folder that is on its way out."""

_MOST_JOBS = 10_000


class KeptError(JarvisError):
    """An analysis that is to stay."""

    def __init__(self, analysis_id: str, reason: str, remedy: str) -> None:
        super().__init__(f"The analysis {analysis_id} is not removed: {reason}. {remedy}")


@dataclass(frozen=True, slots=True)
class Removed:
    """An analysis that was removed, how large it was, and the analyses that it is a reference of.

    Those keep what they say of the comparison, and cannot be compared with it anew.
    """

    id: str
    size_bytes: int
    referred_to_by: tuple[str, ...]


def check_removable(analysis_id: str) -> Path:
    """The folder of an analysis, readable or not, that may be removed.

    Raises UnknownAnalysisError where there is none, KeptError where it is pinned or a job that
    waits or runs works with it.
    """
    root = analyses_dir() / analysis_id
    if not is_analysis_id(analysis_id) or not root.is_dir():
        raise UnknownAnalysisError(analysis_id)
    if analysis_id in pinned():
        unpin = f"`jarvis pin --off {analysis_id}`"
        raise KeptError(analysis_id, "it is pinned", f"Let go of the pin first ({unpin}).")
    if (job := named_by_jobs().get(analysis_id)) is not None:
        raise KeptError(
            analysis_id, f"the job {job} works with it", "Wait for its end, or cancel it."
        )
    return root


def remove_analysis(analysis_id: str) -> Removed:
    """Remove an analysis for good; raises as ``check_removable``."""
    root = check_removable(analysis_id)
    size = folder_bytes(root)
    remove_folder(root)
    return Removed(analysis_id, size, referring_to(analysis_id))


def remove_folder(root: Path) -> None:
    """Delete a folder, or a file: gone in one move, and its content after that."""
    leaving = root.with_name(f".{root.name}.{REMOVED}{uuid4().hex[:8]}")
    root.rename(leaving)
    if leaving.is_dir():
        shutil.rmtree(leaving, ignore_errors=True)
    else:
        leaving.unlink(missing_ok=True)


def referring_to(analysis_id: str) -> tuple[str, ...]:
    """The kept analyses whose reference it is."""
    entries = read_catalogue().entries
    return tuple(entry.id for entry in entries if entry.manifest.reference == analysis_id)


def named_by_jobs() -> dict[str, str]:
    """What jobs that wait or run were asked with: each text among their parameters, and the job."""
    active = jobs.recent(database(), states=ACTIVE, limit=_MOST_JOBS)
    return {text: job.id for job in active for text in _texts(job.parameters)}


def folder_bytes(root: Path) -> int:
    """How much the files of a folder hold; links count as nothing."""
    sizes = 0
    for path in (root, *root.rglob("*")):
        with suppress(FileNotFoundError):
            if path.is_file() and not path.is_symlink():
                sizes += path.stat().st_size
    return sizes


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)
