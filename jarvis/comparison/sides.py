"""The two sides of a comparison."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Self

import polars as pl

from jarvis.hardware import HardwareSpec
from jarvis.perf_report.timeline.step_bounds import StepBounds
from jarvis.perf_report.timeline.steps import StepSource
from jarvis.schemas import dtypes
from jarvis.schemas.names import C
from jarvis.simulation.simulation import Simulation


class Role(StrEnum):
    """Role of a side."""

    TARGET = "target"
    REFERENCE = "reference"


@dataclass(frozen=True, eq=False)
class Side:
    """One side: label in texts, hardware, and tables of its run by name.

    Any of ``tables`` may be missing. ``lacks`` has the reason for each table that is present but
    not usable. ``titles`` are those of the categories by key. ``bounds`` are the most that can be
    saved of the recorded steps. Times and counts of the tables, not of ``bounds``, have been
    divided by ``divisor``, the number of steps of a side ``per_step``. ``simulation`` replays its
    steps, if they can be simulated. ``model`` is the name given to it, ``ranks`` the number of
    processes of the job; None if not known.
    """

    label: str
    hardware: HardwareSpec | None
    tables: Mapping[str, pl.DataFrame]
    titles: Mapping[str, str] = field(default_factory=dict)
    lacks: Mapping[str, str] = field(default_factory=dict)
    bounds: StepBounds | None = None
    divisor: int = 1
    simulation: Simulation | None = None
    model: str | None = None
    ranks: int | None = None

    def table(self, name: str) -> pl.DataFrame | None:
        """Return a table, or None if this side does not have it."""
        return None if name in self.lacks else self.tables.get(name)

    def rows(self, name: str) -> pl.DataFrame:
        """Return a table, without rows if this side does not have it."""
        table = self.table(name)
        return pl.DataFrame(schema=dtypes(name)) if table is None else table

    def timeline_ms(self, part: str) -> float | None:
        """Return the time of one part of the GPU timeline, or None if it is not known."""
        times = self.rows("gpu_timeline").filter(pl.col(C.type) == part)[C.time_ms]
        return None if times.is_empty() else float(times[0])

    @property
    def compute_ms(self) -> float:
        """Computation time of the GPU; without a timeline the sum of all operations."""
        computed = self.timeline_ms("computation_time")
        if computed is not None:
            return computed
        return float(self.rows("operations").select(pl.col(C.kernel_time_us).sum() / 1e3).item())

    @property
    def steps(self) -> int | None:
        """Number of marked steps; None if no step is marked."""
        rows = self.rows("steps").drop_nulls(C.dur_ns)
        is_marked = not rows.is_empty() and rows[C.source][0] != StepSource.RECORDING.value
        return rows.height if is_marked else None

    def steps_ms(self, *parts: str) -> float | None:
        """Return the sum of columns of ``steps``, in ms; None if the steps are not known."""
        rows = self.rows("steps").drop_nulls(C.dur_ns)
        return None if rows.is_empty() else sum(map(int, rows[list(parts)].sum().row(0))) / self._ms

    @property
    def saving_bounds(self) -> StepBounds | None:
        """The most that can be saved of the recorded steps, per step as the tables are."""
        if self.bounds is None or self.bounds.step_ms is None or self.divisor == 1:
            return self.bounds
        names = ("step_ms", "kernels_ms", "idle_ms", "comm_ms", "copies_ms")
        times = {name: getattr(self.bounds, name) / self.divisor for name in names}
        return replace(self.bounds, steps=1, **times)

    @property
    def _ms(self) -> float:
        """Nanoseconds that count as one millisecond."""
        return 1e6 * self.divisor

    @property
    def unlinked_ms(self) -> float:
        """GPU time of work without a recorded launch, which is in no operation."""
        work = self.rows("gpu_work")
        return int(work.filter(~pl.col(C.linked))[C.dur_ns].sum()) / self._ms

    @property
    def unlinked_pct(self) -> float:
        """Share of ``unlinked_ms`` in the time of all GPU work."""
        all_ns = int(self.rows("gpu_work")[C.dur_ns].sum())
        return 100 * self.unlinked_ms * self._ms / all_ns if all_ns else 0.0

    def gaps_ms(self) -> dict[str, float]:
        """Return the idle time of the steps by cause, in ms."""
        rows = self.rows("step_gaps").group_by(C.cause).agg(pl.col(C.dur_ns).sum() / self._ms)
        return dict(rows.drop_nulls().iter_rows())

    def per_step(self) -> Self:
        """Return the side with the times and counts of its tables per step."""
        steps = self.steps or 1
        tables = {
            name: table.with_columns(
                *(pl.col(column) / steps for column in PER_STEP[name]),
                *(_kernels_per_step(steps) if C.kernels in table.columns else ()),
            )
            if name in PER_STEP
            else table
            for name, table in self.tables.items()
        }
        return replace(self, tables=tables, divisor=steps)


PER_STEP = {
    "gpu_timeline": (C.time_ms,),
    "operations": (C.kernel_time_us, C.comm_time_us, C.operation_count),
    "call_tree": (C.calls, C.gpu_ns),
    "call_tree_operations": (C.calls, C.gpu_ns),
}
"""Columns of the tables of a side that add up over steps; communication is divided when summed."""


def _kernels_per_step(steps: int) -> tuple[pl.Expr, ...]:
    """Return the column of kernels with their counts and times per step."""
    fields = (pl.field(name) / steps for name in (C.count, C.total_us))
    return (pl.col(C.kernels).list.eval(pl.element().struct.with_fields(*fields)),)
