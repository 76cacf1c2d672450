"""Analyses are removed: at once for everyone, and not while a job works with them."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from jarvis.core.errors import JarvisError
from jarvis.core.workspace import analyses_dir
from jarvis.server.database import database
from jarvis.server.jobs import queue
from jarvis.server.storage.analysis_rows import AnalysisRow, forget
from jarvis.server.storage.artifacts import remove_analysis as remove_shared
from jarvis.server.storage.catalog import read_catalog, stored_row
from jarvis.server.storage.folders import remove_folder


class RemovalRefusedError(JarvisError):
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


def check_removable(analysis_id: str) -> AnalysisRow:
    """The row of an analysis, readable or not, that may be removed.

    Raises UnknownAnalysisError where there is none, KeptError where it is pinned or a job that
    waits or runs works with it.
    """
    row = stored_row(analysis_id)
    if row.is_pinned:
        unpin = f"`jarvis pin --off {analysis_id}`"
        raise RemovalRefusedError(
            analysis_id, "it is pinned", f"Let go of the pin first ({unpin})."
        )
    if (job := named_by_jobs().get(analysis_id)) is not None:
        raise RemovalRefusedError(
            analysis_id, f"the job {job} works with it", "Wait for its end, or cancel it."
        )
    return row


def remove_analysis(analysis_id: str) -> Removed:
    """Remove an analysis for good; raises as ``check_removable``."""
    row = check_removable(analysis_id)
    drop(analyses_dir() / row.id)
    return Removed(row.id, row.size_bytes, referring_to(row.id))


def drop(root: Path) -> None:
    """Delete the folder of a stored analysis, also where it is shared, and take it off the list: in
    this order, since a folder without a row would be taken for a new one."""
    remove_shared(root.name)
    with suppress(FileNotFoundError):  # it was made on another machine
        remove_folder(root)
    forget(database(), [root.name])


def referring_to(analysis_id: str) -> tuple[str, ...]:
    """The kept analyses whose reference it is."""
    entries = read_catalog().entries
    return tuple(entry.id for entry in entries if entry.manifest.reference == analysis_id)


def named_by_jobs() -> dict[str, str]:
    """What jobs that wait or run were asked with: each text among their parameters, and the job."""
    active = queue.active(database())
    return {text: job.id for job in active for text in texts_in(job.parameters)}


def texts_in(value: object) -> Iterator[str]:
    """Each text in the parameters of a job."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from texts_in(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from texts_in(part)
