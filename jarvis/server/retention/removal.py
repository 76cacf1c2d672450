"""Deletion of analyses that no job uses."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from jarvis.core.workspace import analyses_dir
from jarvis.server import queue
from jarvis.server.database import database
from jarvis.server.errors import RemovalRefusedError
from jarvis.server.storage.analysis_rows import AnalysisRow, forget
from jarvis.server.storage.artifacts import remove_analysis as remove_shared
from jarvis.server.storage.catalog import read_catalog, stored_row
from jarvis.server.storage.storage_keys import remove_folder


@dataclass(frozen=True, slots=True)
class Removed:
    """A deleted analysis.

    Attributes:
        referred_to_by: analyses that use it as their reference; their stored comparison remains,
            but cannot be run again.
    """

    id: str
    size_bytes: int
    referred_to_by: tuple[str, ...]


def check_removable(analysis_id: str) -> AnalysisRow:
    """Return the row of an analysis, readable or not, that can be deleted.

    Raises:
        UnknownAnalysisError: there is no such analysis.
        RemovalRefusedError: it is pinned, or a queued or running job uses it.
    """
    row = stored_row(analysis_id)
    if row.is_pinned:
        unpin = f"`jarvis pin --off {analysis_id}`"
        raise RemovalRefusedError(analysis_id, "it is pinned", f"Unpin it first ({unpin}).")
    if (job := named_by_jobs().get(analysis_id)) is not None:
        raise RemovalRefusedError(
            analysis_id, f"job {job} is using it", "Wait until the job ends, or cancel it."
        )
    return row


def remove_analysis(analysis_id: str) -> Removed:
    """Delete an analysis; raises as ``check_removable``."""
    row = check_removable(analysis_id)
    drop(analyses_dir() / row.id)
    return Removed(row.id, row.size_bytes, referring_to(row.id))


def drop(root: Path) -> None:
    """Delete an analysis from the artifact root, its folder, and its row.

    The row is last, since a folder without a row is listed as a new analysis.
    """
    remove_shared(root.name)
    with suppress(FileNotFoundError):  # not on this machine
        remove_folder(root)
    forget(database(), [root.name])


def referring_to(analysis_id: str) -> tuple[str, ...]:
    """Return the ids of the analyses that use this one as their reference."""
    entries = read_catalog().entries
    return tuple(entry.id for entry in entries if entry.manifest.reference == analysis_id)


def named_by_jobs() -> dict[str, str]:
    """Return the texts in the parameters of queued and running jobs, each with its job id."""
    active = queue.active(database())
    return {text: job.id for job in active for text in texts_in(job.parameters)}


def texts_in(value: object) -> Iterator[str]:
    """Yield all texts in the parameters of a job, recursively."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from texts_in(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from texts_in(part)
