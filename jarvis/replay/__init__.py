"""Reproducers for a kernel team: the recorded calls of an operator, ready to be timed elsewhere."""

from jarvis.replay.offers import Offer, Selection, offers, select
from jarvis.replay.package import Package, Refusal, write_package, write_packages

__all__ = [
    "Offer",
    "Package",
    "Refusal",
    "Selection",
    "offers",
    "select",
    "write_package",
    "write_packages",
]
