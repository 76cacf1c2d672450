"""The communication kernels of all ranks in one table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from jarvis.perf_report.work import COMPUTE
from jarvis.ranks.run import ParquetTables
from jarvis.schemas.names import C
from jarvis.simulation.stored import SimulationInfo
from jarvis.trace import TraceInfo

POINT_TO_POINT = "send_recv"


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
        first = self.select("collectives", C.ts_ns)[C.ts_ns].min()
        return first if isinstance(first, int) else 0

    def compute(self) -> pl.DataFrame:
        """Return ``ts_ns, dur_ns`` of the compute kernels."""
        work = self.select("gpu_work", C.kind, C.ts_ns, C.dur_ns)
        return work.filter(pl.col(C.kind) == COMPUTE).select(C.ts_ns, C.dur_ns)

    def select(self, table: str, *columns: str) -> pl.DataFrame:
        """Return columns of a table, of which a file is read only in part."""
        if isinstance(self.tables, ParquetTables):
            return self.tables.read(table, columns)
        return self.tables[table].select(columns)


_COLUMNS = (
    C.uid,
    C.kind,
    C.library,
    C.dtype,
    C.stream,
    C.group,
    C.group_size,
    C.pg_desc,
    C.pg_ranks,
    C.comms_id,
    C.seq,
    C.in_bytes,
    C.out_bytes,
    C.in_split_size,
    C.launch_start_ns,
    C.launch_tid,
)


def communication_events(members: Sequence[Member]) -> pl.DataFrame:
    """Return the communication kernels of all ranks by rank and time.

    ``start_ns`` and ``end_ns`` are on the clock of each rank after its ``origin_ns``, so that they
    are small enough for exact floating point. ``step`` is the recorded
    number of the step, else its position. ``is_cut`` marks kernels that were launched before the
    recording. ``src_rank`` and ``dst_rank`` are those of point-to-point calls, of which PyTorch
    records only the other rank.
    """
    frames = [_events(member) for member in members]
    return pl.concat(frames).with_row_index("event").cast({"event": pl.Int64})


def _events(member: Member) -> pl.DataFrame:
    ends = (C.src_rank, C.dst_rank)
    kernels = member.select("collectives", *_COLUMNS, *ends, C.ts_ns, C.end_ns, C.step)
    steps = member.tables["steps"]
    number = pl.coalesce(C.number, C.step) if C.number in steps.columns else pl.col(C.step)
    numbers = steps.select(C.step, number.alias("step_number"))
    launches = kernels[C.launch_start_ns].is_not_null()
    origin_ns = member.origin_ns
    is_known = (pl.col(C.kind) == POINT_TO_POINT) & pl.any_horizontal(pl.col(ends).is_not_null())
    return (
        kernels.join(numbers, on=C.step, how="left", maintain_order="left")
        .select(
            pl.lit(member.rank, pl.Int64).alias(C.rank),
            *_COLUMNS,
            *(
                pl.when(is_known).then(pl.col(end).fill_null(member.rank)).alias(end)
                for end in ends
            ),
            (pl.col(C.ts_ns) - origin_ns).alias(C.start_ns),
            (pl.col(C.end_ns) - origin_ns).alias(C.end_ns),
            pl.col("step_number").alias(C.step),
            pl.Series(C.is_cut, ~launches & launches.any()),
        )
        .sort(C.start_ns, C.uid)
        .with_columns(
            pl.col(pl.String).cast(pl.Categorical),  # few are distinct
            pl.col(C.stream, C.group_size, C.src_rank, C.dst_rank).cast(pl.Int32),
        )
    )
