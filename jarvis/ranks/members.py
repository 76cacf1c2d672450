"""The ranks of a job, whose tables are read for many ranks at once.

Opening a file and starting a query take longer than the rows of one rank. The times of ranks that
are read together lie one after another on one axis, so that each is compared with those of its own
rank only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import polars as pl

from jarvis.core.workspace import RunPaths
from jarvis.perf_report.work import COMPUTE
from jarvis.ranks.run import ParquetTables
from jarvis.schemas import column
from jarvis.schemas.names import C
from jarvis.simulation.stored import SimulationInfo
from jarvis.trace import TraceInfo

RANK = pl.Int32
"""Type of ranks while they are joined."""

_AT_ONCE = 32
"""Ranks whose tables are in memory together."""

_SPACE_NS = 1 << 52
"""Place of a rank on the axis: 52 days."""


@dataclass(frozen=True)
class Member:
    """The analysis of one rank; ``tables`` are those of its run, read when they are asked for, and
    ``simulation`` is what is known about its dependency graph."""

    rank: int
    name: str
    info: TraceInfo
    tables: Mapping[str, pl.DataFrame]
    analysis_id: str | None = None
    simulation: SimulationInfo | None = None

    @property
    def base_ns(self) -> int:
        """What a time of the trace needs to be absolute."""
        return self.info.base_ns or 0

    @cached_property
    def origin_ns(self) -> int:
        """The start of the first communication kernel on the clock of the trace."""
        return Batch([self]).origin_ns[self.rank]


@dataclass(frozen=True)
class Batch:
    """Ranks whose tables are read together."""

    members: Sequence[Member]

    def having(self, table: str) -> Self:
        """Return the ranks that have a table."""
        return type(self)([member for member in self.members if table in member.tables])

    def read(self, table: str, *columns: str) -> pl.DataFrame:
        """Return ``rank`` and columns of a table of all ranks, null where a table lacks it."""
        schema = {name: column(table, name).dtype for name in columns}
        stored = [each.tables for each in self.members if isinstance(each.tables, ParquetTables)]
        if not stored or len(stored) < len(self.members):
            empty = pl.DataFrame(schema={C.rank: RANK, **schema})
            frames = (
                each.tables[table].select(
                    pl.lit(each.rank, RANK).alias(C.rank),
                    *(name for name in columns if name in each.tables[table].columns),
                )
                for each in self.members
            )
            return pl.concat([empty, *frames], how="diagonal")
        files = [str(RunPaths(tables.root).table(table)) for tables in stored]
        rows = (
            pl.scan_parquet(
                files,
                glob=False,
                include_file_paths=C.file_name,
                schema=schema,
                missing_columns="insert",
                extra_columns="ignore",
            )
            .with_columns(pl.col(C.file_name).cast(pl.Enum(files)).to_physical())
            .collect(engine="streaming")
        )
        ranks = pl.Series(C.rank, [member.rank for member in self.members], RANK)
        places = rows.drop_in_place(C.file_name)
        return rows.with_columns(ranks.gather(places))

    @cached_property
    def origin_ns(self) -> Mapping[int, int]:
        """The start of the first communication kernel of each rank on the clock of its trace."""
        starts = self.read("collectives", C.ts_ns).group_by(C.rank).agg(pl.col(C.ts_ns).min())
        none = dict.fromkeys((member.rank for member in self.members), 0)
        return none | dict(starts.drop_nulls().iter_rows())

    def on_axis(self, time: str) -> pl.Expr:
        """Return a recorded time on the axis of the batch."""
        return self._shifted(pl.col(time), self.origin_ns)

    def placed(self, time: pl.Expr) -> pl.Expr:
        """Return a time after the origin of its rank on the axis of the batch."""
        return self._shifted(time, {})

    def _shifted(self, time: pl.Expr, origin_ns: Mapping[int, int]) -> pl.Expr:
        shifts = {
            member.rank: at * _SPACE_NS - origin_ns.get(member.rank, 0)
            for at, member in enumerate(self.members)
        }
        return time + pl.col(C.rank).replace_strict(shifts, return_dtype=pl.Int64)

    def compute(self) -> pl.DataFrame:
        """Return ``ts_ns`` (on the axis), ``dur_ns`` of the compute kernels."""
        work = self.read("gpu_work", C.kind, C.ts_ns, C.dur_ns).filter(pl.col(C.kind) == COMPUTE)
        return work.select(self.on_axis(C.ts_ns), C.dur_ns)

    def bounds(self, kernels: pl.DataFrame) -> tuple[int, int]:
        """Return the first of kernels, which are ordered by rank, of these ranks, and the first
        after them."""
        ranks, first, last = kernels[C.rank], self.members[0].rank, self.members[-1].rank
        return ranks.search_sorted(first, side="left"), ranks.search_sorted(last, side="right")

    def rows(self, kernels: pl.DataFrame) -> pl.DataFrame:
        """Return those of kernels, which are ordered by rank, that are of these ranks."""
        first, after = self.bounds(kernels)
        return kernels[first:after]


def in_batches(members: Sequence[Member]) -> list[Batch]:
    """Return ranks in ascending order in batches."""
    ordered = sorted(members, key=lambda member: member.rank)
    return [Batch(ordered[at : at + _AT_ONCE]) for at in range(0, len(ordered), _AT_ONCE)]
