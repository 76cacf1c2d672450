"""Pinned analyses, which retention does not delete.

A pin is not part of the analysis, so it persists if the analysis is run again.
"""

from jarvis.server.database import database
from jarvis.server.storage.analysis_rows import change, stored_rows
from jarvis.server.storage.catalog import stored_row


def pinned() -> frozenset[str]:
    """Return the ids of pinned analyses."""
    return frozenset(row.id for row in stored_rows(database()).values() if row.is_pinned)


def is_pinned(analysis_id: str) -> bool:
    """Return whether an analysis is pinned; raise UnknownAnalysisError if it does not exist."""
    return stored_row(analysis_id).is_pinned


def pin(analysis_id: str) -> bool:
    """Pin an analysis; return whether that changed anything. Raises as ``is_pinned``."""
    return _set(analysis_id, True)


def unpin(analysis_id: str) -> bool:
    """Unpin an analysis; return whether that changed anything. Raises as ``is_pinned``."""
    return _set(analysis_id, False)


def _set(analysis_id: str, value: bool) -> bool:
    has_changed = stored_row(analysis_id).is_pinned != value
    if has_changed:
        change(database(), analysis_id, is_pinned=value)
    return has_changed
