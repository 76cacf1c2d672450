"""Pinned analyses: those that housekeeping leaves alone.

A pin is no part of the analysis, so that it stays when the analysis is made again.
"""

from jarvis.server.database import database
from jarvis.server.storage.analysis_rows import change, stored_rows
from jarvis.server.storage.catalog import stored_row


def pinned() -> frozenset[str]:
    """The ids that are pinned."""
    return frozenset(row.id for row in stored_rows(database()).values() if row.is_pinned)


def is_pinned(analysis_id: str) -> bool:
    """Whether a stored analysis is pinned; UnknownAnalysisError where there is none."""
    return stored_row(analysis_id).is_pinned


def pin(analysis_id: str) -> bool:
    """Pin a stored analysis; whether it was not before. UnknownAnalysisError where there is "
    "none."""
    return _set(analysis_id, True)


def unpin(analysis_id: str) -> bool:
    """Let go of a pin; whether there was one. UnknownAnalysisError as ``pin``."""
    return _set(analysis_id, False)


def _set(analysis_id: str, wanted: bool) -> bool:
    was = stored_row(analysis_id).is_pinned
    if was != wanted:
        change(database(), analysis_id, is_pinned=wanted)
    return was != wanted
