"""Pinned analyses: those that housekeeping leaves alone.

A pin is no part of the analysis, so that it stays when the analysis is made again.
"""

from jarvis.server.catalogue import analysis_root
from jarvis.workspace import pins_dir


def pinned() -> frozenset[str]:
    """The ids that are pinned."""
    root = pins_dir()
    return frozenset(pin.name for pin in root.iterdir()) if root.is_dir() else frozenset()


def is_pinned(analysis_id: str) -> bool:
    """Whether a kept analysis is pinned."""
    return (pins_dir() / analysis_root(analysis_id).name).exists()


def pin(analysis_id: str) -> bool:
    """Pin a kept analysis; whether it was not before. UnknownAnalysisError where there is none."""
    file = pins_dir() / analysis_root(analysis_id).name
    file.parent.mkdir(parents=True, exist_ok=True)
    was_pinned = file.exists()
    file.touch()
    return not was_pinned


def unpin(analysis_id: str) -> bool:
    """Let go of a pin; whether there was one. UnknownAnalysisError as ``pin``."""
    file = pins_dir() / analysis_root(analysis_id).name
    was_pinned = file.exists()
    file.unlink(missing_ok=True)
    return was_pinned
