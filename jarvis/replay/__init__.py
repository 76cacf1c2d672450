"""Replay packages for kernel teams: the recorded calls of an operator, ready to be timed
elsewhere."""

from jarvis.replay.offers import ReplayCandidate, Selection, offers, select
from jarvis.replay.package import (
    Package,
    Refusal,
    automatic_operators,
    tensors_of,
    write_package,
    write_packages,
)

__all__ = [
    "Package",
    "Refusal",
    "ReplayCandidate",
    "Selection",
    "automatic_operators",
    "offers",
    "select",
    "tensors_of",
    "write_package",
    "write_packages",
]
