"""Figures of a run and how alike two runs are, from their manifests alone."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Self

from jarvis.core.labels import NO_LABELS, RunLabels
from jarvis.impact import share_pct
from jarvis.run.manifest import Manifest, TopFinding
from jarvis.text.format import percent

COMMUNICATION, COPIES, IDLE = "exposed_communication", "exposed_copies", "idle"
PARTS: Mapping[str, str] = {
    COMMUNICATION: "Exposed communication",
    COPIES: "Exposed copies",
    IDLE: "Idle",
}
"""Titles of the parts of the time that are not in a category of operations, by key."""


class Basis(StrEnum):
    """What the time of a run is: the mean of its steps, or what else the trace has."""

    STEP = "step"
    RECORDING = "recording"
    WINDOW = "GPU window"


@dataclass(frozen=True, slots=True)
class RunFigures:
    """Figures of a run; times are in ms per step, or of the whole recording without steps.

    ``gpu`` is the GPU that recorded the trace. ``busy_pct`` is the share of ``time_ms`` in which
    any GPU event runs. ``times_ms`` are the kernel times of the categories of operations, and
    PARTS, by key, ``titles`` their titles. Kernel times of categories can overlap each other, so
    their sum can exceed ``time_ms``.
    """

    gpu: str | None
    basis: Basis
    steps: int
    time_ms: float
    busy_pct: float | None
    times_ms: Mapping[str, float]
    titles: Mapping[str, str]
    top_finding: TopFinding | None

    @classmethod
    def of(cls, manifest: Manifest) -> Self:
        """Return the figures of a run."""
        totals = manifest.totals
        basis, steps, time_ms, idle_ms = Basis.WINDOW, 1, totals.total_time_ms, totals.idle_time_ms
        comm_ms, copies_ms = totals.exposed_comm_time_ms, totals.exposed_memcpy_time_ms
        bounds = totals.step
        if bounds is not None and bounds.step_ms:
            basis = Basis.STEP if bounds.is_marked else Basis.RECORDING
            steps, time_ms, idle_ms = bounds.steps, bounds.step_ms, bounds.idle_ms
            comm_ms, copies_ms = bounds.comm_ms, bounds.copies_ms
        categories = [
            category
            for category in manifest.categories
            if category.tier == "compute" and category.gpu_time_ms > 0
        ]
        sums_ms = {category.key: category.gpu_time_ms for category in categories}
        sums_ms |= {COMMUNICATION: comm_ms, COPIES: copies_ms, IDLE: idle_ms}
        hardware = manifest.hardware
        return cls(
            gpu=manifest.trace.device_name or (hardware.name if hardware else None),
            basis=basis,
            steps=steps,
            time_ms=time_ms / steps,
            busy_pct=100 * (1 - idle_ms / time_ms) if time_ms else None,
            times_ms={key: sum_ms / steps for key, sum_ms in sums_ms.items()},
            titles={category.key: category.title for category in categories} | dict(PARTS),
            top_finding=manifest.top_finding,
        )


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
