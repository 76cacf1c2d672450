"""The two sides of a comparison."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import polars as pl

from jarvis.hardware import HardwareSpec
from jarvis.schemas import columns
from jarvis.schemas.names import C


class Role(StrEnum):
    """Role of a side."""

    TARGET = "target"
    REFERENCE = "reference"


@dataclass(frozen=True, eq=False)
class Side:
    """One side: label in texts, hardware, and tables of its run by name.

    Any of ``tables`` may be missing. ``lacks`` has the reason for each table that is present but
    not usable. ``titles`` are those of the categories by key.
    """

    label: str
    hardware: HardwareSpec | None
    tables: Mapping[str, pl.DataFrame]
    titles: Mapping[str, str] = field(default_factory=dict)
    lacks: Mapping[str, str] = field(default_factory=dict)

    def table(self, name: str) -> pl.DataFrame | None:
        """Return a table, or None if this side does not have it."""
        return None if name in self.lacks else self.tables.get(name)

    def rows(self, name: str) -> pl.DataFrame:
        """Return a table, without rows if this side does not have it."""
        table = self.table(name)
        schema = {column.name: column.dtype for column in columns(name)}
        return pl.DataFrame(schema=schema) if table is None else table

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
