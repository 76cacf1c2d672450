"""The two sides of a comparison: what is known of each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import polars as pl

from jarvis.hardware import HardwareSpec
from jarvis.schemas import columns


class Role(StrEnum):
    """Which side a row is about."""

    TARGET = "target"
    REFERENCE = "reference"


@dataclass(frozen=True, eq=False)
class Side:
    """One side: its name in texts, the GPU it is judged against, and its tables by name.

    ``tables`` are those of a run; any may be missing. ``lacks`` says of a table that is there but
    means nothing why that is so. ``titles`` are those of the categories by key.
    """

    label: str
    hardware: HardwareSpec | None
    tables: Mapping[str, pl.DataFrame]
    titles: Mapping[str, str] = field(default_factory=dict)
    lacks: Mapping[str, str] = field(default_factory=dict)

    def table(self, name: str) -> pl.DataFrame | None:
        """A table, or None where this side does not have it."""
        return None if name in self.lacks else self.tables.get(name)

    def rows(self, name: str) -> pl.DataFrame:
        """The same, without rows where this side does not have it."""
        table = self.table(name)
        schema = {column.name: column.dtype for column in columns(name)}
        return pl.DataFrame(schema=schema) if table is None else table

    def timeline_ms(self, part: str) -> float | None:
        """The time of one part of the GPU timeline, or None where it is not known."""
        times = self.rows("gpu_timeline").filter(pl.col("type") == part)["time_ms"]
        return None if times.is_empty() else float(times[0])

    @property
    def compute_ms(self) -> float:
        """Computation time of the GPU; without a timeline that of all operations."""
        computed = self.timeline_ms("computation_time")
        if computed is not None:
            return computed
        return float(self.rows("operations").select(pl.col("kernel_time_us").sum() / 1e3).item())
