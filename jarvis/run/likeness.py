"""How alike two runs are, from their manifests alone: which ones make a useful comparison."""

import math
from dataclasses import dataclass
from enum import IntEnum

from jarvis.core.labels import NO_LABELS, RunLabels
from jarvis.impact import share_pct
from jarvis.run.figures import RunFigures
from jarvis.run.manifest import Manifest
from jarvis.text.format import percent

MIN_COMMON_PCT = 50.0
"""Runs without model names are of the same model if at least this share of the time of the main
operators of each is in operators that both call equally often per step."""


class Kind(IntEnum):
    """What two runs have in common; a higher value makes a better comparison."""

    UNLIKE = 0
    SAME_TRACE = 1
    SAME_PROJECT = 2
    SAME_MODEL = 3


_TITLES = {
    Kind.UNLIKE: "different or unknown model",
    Kind.SAME_TRACE: "same trace",
    Kind.SAME_PROJECT: "same project",
    Kind.SAME_MODEL: "same model",
}


@dataclass(frozen=True, slots=True)
class Likeness:
    """What two runs have in common.

    ``common_pct`` is the share of the time of the main operators that both runs call equally often
    per step, of the run where it is smaller; None if a run has no operators.
    """

    kind: Kind
    common_pct: float | None

    @property
    def title(self) -> str:
        """Return the kind in words."""
        return _TITLES[self.kind]

    @property
    def words(self) -> str:
        """Return kind and common operators for display."""
        return f"{self.title}; {self._common}"

    @property
    def _common(self) -> str:
        if self.kind is Kind.SAME_TRACE:
            return "measured times are equal, only the peaks can differ"
        if self.common_pct is None:
            return "operators not known"
        if self.common_pct == 0:
            return "no main operator runs equally often in a step, so little can be compared"
        share = percent(self.common_pct)
        return f"{share} of the time is in main operators that run equally often in a step"


def likeness(
    run: Manifest,
    other: Manifest,
    labels: RunLabels = NO_LABELS,
    other_labels: RunLabels = NO_LABELS,
) -> Likeness:
    """Return how alike ``other`` is to ``run``.

    Two model names decide whether the models are the same; without them the main operators do.
    """
    common_pct = common_operators_pct(run, other)
    return Likeness(_kind(run, other, labels, other_labels, common_pct), common_pct)


def _kind(
    run: Manifest,
    other: Manifest,
    labels: RunLabels,
    other_labels: RunLabels,
    common_pct: float | None,
) -> Kind:
    if run.trace.sha256 == other.trace.sha256:
        return Kind.SAME_TRACE
    if run.model_name and other.model_name:
        is_same = run.model_name == other.model_name
        return Kind.SAME_MODEL if is_same else Kind.UNLIKE
    if common_pct is not None and common_pct >= MIN_COMMON_PCT:
        return Kind.SAME_MODEL
    is_one_project = labels.project is not None and labels.project == other_labels.project
    return Kind.SAME_PROJECT if is_one_project else Kind.UNLIKE


def common_operators_pct(run: Manifest, other: Manifest) -> float | None:
    """Return ``Likeness.common_pct`` of two runs."""
    mine, its = _calls(run), _calls(other)
    if not (mine and its):
        return None
    common = [name for name in mine if name in its and math.isclose(mine[name], its[name])]
    return min(
        share_pct(
            sum(top.time_ms for top in each.top_operations if top.name in common),
            sum(top.time_ms for top in each.top_operations),
        )
        for each in (run, other)
    )


def _calls(run: Manifest) -> dict[str, float]:
    """Return the calls per step of the main operators by name."""
    steps = RunFigures.of(run).steps
    return {top.name: top.count / steps for top in run.top_operations}
