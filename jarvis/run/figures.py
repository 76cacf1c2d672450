"""Figures of a run from its manifest alone, for lists of runs and for baselines."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from jarvis.run.manifest import Manifest, TopFinding

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
