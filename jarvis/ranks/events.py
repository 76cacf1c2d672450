"""The communication kernels of all ranks in one table."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from jarvis.ranks.members import RANK, Batch
from jarvis.schemas.names import C

POINT_TO_POINT = "send_recv"

CALL = "call"
"""Column: row of the table of calls."""

TRANSFER_NS = (pl.col(C.end_ns) - pl.col(C.start_ns) - pl.col(C.wait_ns)).alias(C.transfer_ns)
"""The time of a kernel after the last arrival."""

_CALL = (
    *(C.kind, C.library, C.dtype, C.stream, C.launch_tid),
    *(C.group, C.group_size, C.pg_desc, C.pg_ranks, C.comms_id),
    *(C.in_bytes, C.out_bytes, C.in_split_size, C.src_rank, C.dst_rank),
)
"""What many kernels have in common."""


@dataclass(frozen=True)
class Events:
    """Communication kernels: ``kernels`` with the row of ``calls``, which has what many kernels of
    a rank have in common, so that it is in memory once."""

    kernels: pl.DataFrame
    calls: pl.DataFrame

    def of_calls(self, *columns: str | pl.Expr) -> pl.DataFrame:
        """Return columns of the calls by kernel."""
        return self.calls.select(columns)[self.kernels[CALL]]


def communication_events(batches: Sequence[Batch]) -> Events:
    """Return the communication kernels of all ranks by rank and time.

    ``start_ns`` and ``end_ns`` are on the clock of each rank after its ``origin_ns``, so that they
    are small enough for exact floating point. ``step`` is the recorded number of the step, else its
    position. ``is_cut`` marks kernels that were launched before the recording. ``src_rank`` and
    ``dst_rank`` are those of point-to-point calls, of which PyTorch records only the other rank.
    """
    parts, calls, count = [], [], 0
    for batch in batches:
        kernels = _kernels(batch)
        called = kernels.group_by(C.rank, *_CALL, maintain_order=True).len("count")
        called = called.with_row_index(CALL, count).cast({CALL: pl.Int32})
        numbers = kernels.select(C.rank, *_CALL).join(
            called, on=[C.rank, *_CALL], how="left", nulls_equal=True, maintain_order="left"
        )
        parts.append(kernels.drop(_CALL).with_columns(numbers[CALL]))
        calls.append(called)
        count += called.height
    # One column at a time: all of them twice would not fit into memory.
    columns = (
        pl.concat([part.drop_in_place(name) for part in parts], rechunk=True)
        for name in parts[0].columns
    )
    return Events(pl.DataFrame(list(columns)), pl.concat(calls))


def _kernels(batch: Batch) -> pl.DataFrame:
    ends = (C.src_rank, C.dst_rank)
    rows = batch.read(
        "collectives", C.uid, *_CALL, C.seq, C.launch_start_ns, C.ts_ns, C.end_ns, C.step
    )
    numbers = batch.read("steps", C.step, C.number).select(
        C.rank, C.step, pl.coalesce(C.number, C.step).alias("step_number")
    )
    launch = pl.col(C.launch_start_ns)
    origin_ns = pl.col(C.rank).replace_strict(batch.origin_ns, return_dtype=pl.Int64)
    is_known = (pl.col(C.kind) == POINT_TO_POINT) & pl.any_horizontal(pl.col(ends).is_not_null())
    return (
        rows.join(numbers, on=[C.rank, C.step], how="left", maintain_order="left")
        .select(
            pl.col(C.rank, C.seq),
            pl.col(C.uid).cast(pl.Int32),
            pl.col(C.kind, C.library, C.dtype, C.group, C.pg_desc, C.pg_ranks).cast(TEXT),
            pl.col(C.comms_id, C.in_split_size).cast(TEXT),
            pl.col(C.stream, C.launch_tid, C.group_size, C.in_bytes, C.out_bytes),
            *(
                pl.when(is_known).then(pl.col(end).cast(RANK).fill_null(pl.col(C.rank))).alias(end)
                for end in ends
            ),
            (pl.col(C.ts_ns) - origin_ns).alias(C.start_ns),
            (pl.col(C.end_ns) - origin_ns).alias(C.end_ns),
            pl.col("step_number").cast(pl.Int32).alias(C.step),
            launch,
            (launch.is_null() & launch.is_not_null().any().over(C.rank)).alias(C.is_cut),
        )
        .sort(C.rank, C.start_ns, C.uid)
    )


TEXT = pl.Categorical()
"""Type of texts of which few are distinct."""
