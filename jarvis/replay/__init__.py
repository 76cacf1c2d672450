"""Replay packages for kernel teams: the recorded calls of an operator, ready to be timed
elsewhere."""

from jarvis.replay.candidates import ReplayCandidate, Selection, replay_candidates, select
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
    "replay_candidates",
    "select",
    "tensors_of",
    "write_package",
    "write_packages",
]
