"""The operations and copies of causes: more kernels, other shapes, or the same ones for longer.

Reading the kernels of all ranks for each late one would take longer than all else. So this is done
for the delays that findings and pages show, and with few ranks to compare with.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl

from jarvis.perf_report.work import COMPUTE, COPY
from jarvis.ranks.arrivals import Arrivals, Bools, Int64s
from jarvis.ranks.events import TEXT
from jarvis.ranks.members import Batch, in_batches
from jarvis.schemas.names import C

MAX_LATE_RANKS, MAX_YARDSTICK_RANKS = 8, 8
"""Late ranks whose kernels are read, and with how many others each of their delays is compared."""

_SHAPES = (C.input_dims, C.input_types, C.kernel)
_OPERATION = (C.instance_id, C.state, C.detail, C.name)
_SUMS = (C.kernel_time_ns, C.kernel_count, C.bytes)


def late_operations(
    kernels: pl.DataFrame,
    batches: Sequence[Batch],
    arrivals: Arrivals,
    since: Int64s,
    chosen: pl.DataFrame,
) -> pl.DataFrame:
    """Return the table ``lateness_operations``.

    The ranks to compare with are, of those in the middle, the nearest ones by number.

    Args:
        kernels: Kernels of instances with ``instance_id``, by rank.
        batches: The ranks.
        arrivals: The arrivals that are compared.
        since: Since when each is compared (``since_ns``).
        chosen: ``instance_id, rank`` of delays, those that matter most first.
    """
    members = {m.rank: m for batch in batches for m in batch.having("operations").members}
    spans = _spans(kernels, arrivals, since, chosen, list(members))
    found = [pl.DataFrame(schema=_OF_SHAPES)]
    for batch in in_batches([members[rank] for rank in spans[C.rank].unique()]):
        of_batch = spans.filter(pl.col(C.rank).is_in([m.rank for m in batch.members]))
        found.append(_work(batch, of_batch))
    late = spans.filter("is_late").select(C.instance_id, pl.col(C.rank))
    others = spans.filter(~pl.col("is_late")).group_by(C.instance_id)
    counts = others.agg(pl.len().cast(pl.Int64).alias(C.yardstick_ranks))
    return _compared(pl.concat(found), late.join(counts, on=C.instance_id))


def _spans(
    kernels: pl.DataFrame,
    arrivals: Arrivals,
    since: Int64s,
    chosen: pl.DataFrame,
    known: Sequence[int],
) -> pl.DataFrame:
    """Return ``instance_id, rank, is_late``, and ``begin, end`` after the origin of the rank."""
    late = chosen.filter(pl.col(C.rank).is_in(known)).unique(maintain_order=True)
    ranks = late[C.rank].unique(maintain_order=True).head(MAX_LATE_RANKS)
    instances = late.filter(pl.col(C.rank).is_in(ranks.implode()))[C.instance_id]
    is_chosen: Bools = np.zeros(arrivals.late.size, np.bool_)
    is_chosen[instances.to_numpy()] = True
    rows = np.flatnonzero(is_chosen[arrivals.instance])
    times = kernels.select(C.rank, C.start_ns, "own_start_ns")[arrivals.kernel[rows]]
    shift = pl.col("own_start_ns") - pl.col(C.start_ns)
    spans = times.select(
        pl.Series(C.instance_id, arrivals.instance[rows]),
        pl.col(C.rank),
        pl.Series("is_late", arrivals.is_late[rows]),
        (pl.Series(since[rows]) + shift).alias("begin"),
        pl.col("own_start_ns").alias("end"),
    ).filter(pl.col(C.rank).is_in(known))
    late_rank = pl.col(C.rank).filter("is_late").first().over(C.instance_id)
    distance = (pl.col(C.rank) - late_rank).abs()
    others = spans.with_columns(distance.alias("distance")).filter(~pl.col("is_late"))
    nearest = others.sort(C.instance_id, "distance", C.rank).group_by(
        C.instance_id, maintain_order=True
    )
    return pl.concat([spans.filter("is_late"), nearest.head(MAX_YARDSTICK_RANKS).drop("distance")])


def _work(batch: Batch, spans: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels and copies of ranks in spans by operation, shapes and kernel.

    A kernel of which a part is in a span counts in part.
    """
    columns = (C.uid, C.kind, C.name, C.ts_ns, C.dur_ns, C.linked, C.operation_uid)
    work = batch.read("gpu_work", *columns, C.direction, C.bytes)
    is_counted = pl.col(C.linked) | ~pl.col(C.linked).any().over(C.rank)
    work = (
        work.filter(
            pl.col(C.kind).is_in([COMPUTE, COPY]), pl.col(C.dur_ns) > 0, is_counted.fill_null(True)
        )
        .with_columns(batch.on_axis(C.ts_ns).alias("start"))
        .sort("start")
    )
    starts, lengths = work["start"].to_numpy(), work[C.dur_ns].to_numpy()
    placed = spans.with_columns(batch.placed(pl.col(name)) for name in ("begin", "end"))
    begins, ends = placed["begin"].to_numpy(), placed["end"].to_numpy()
    first = np.maximum.accumulate(starts + lengths).searchsorted(begins, side="right")
    counts = np.maximum(starts.searchsorted(ends) - first, 0)
    of = np.repeat(np.arange(counts.size), counts)
    at = np.arange(of.size) - np.repeat(np.cumsum(counts) - counts - first, counts)
    inside = np.minimum((starts + lengths)[at], ends[of]) - np.maximum(starts[at], begins[of])
    operations = batch.read(
        "operations", C.uid, C.name, C.op_category, C.input_dims, C.input_types
    ).select(
        C.rank,
        pl.col(C.uid).alias(C.operation_uid),
        pl.col(C.name, C.op_category, C.input_dims, C.input_types).cast(TEXT),
    )
    named = work.select(
        *(C.rank, C.operation_uid, C.uid, C.dur_ns, C.bytes, C.direction),
        pl.col(C.kind).alias(C.state),
        pl.col(C.name).cast(TEXT).alias(C.kernel),
    ).join(operations, on=[C.rank, C.operation_uid], how="left", maintain_order="left")
    longest = pl.col(C.uid).sort_by(C.kernel_time_ns, C.uid, descending=[True, False]).first()
    share = pl.col(C.kernel_time_ns) / pl.col(C.dur_ns)
    rows: pl.DataFrame = named[at]
    return (
        rows.with_columns(
            *placed.select(C.instance_id, "is_late")[of],
            pl.Series(C.kernel_time_ns, inside),
            pl.when(pl.col(C.state) == COPY)
            .then(pl.col(C.direction).cast(TEXT))
            .otherwise(C.op_category)
            .alias(C.detail),
            pl.coalesce(C.name, C.kernel).alias(C.name),
        )
        .filter(pl.col(C.kernel_time_ns) > 0)
        .group_by(*_OPERATION, *_SHAPES, "is_late")
        .agg(
            pl.col(C.kernel_time_ns).sum(),
            share.sum().alias(C.kernel_count),
            (share * pl.col(C.bytes)).sum().alias(C.bytes),
            longest,
            pl.col(C.kernel_time_ns).max().alias("longest_ns"),
        )
        .select(_OF_SHAPES.names())
    )


def _compared(work: pl.DataFrame, late: pl.DataFrame) -> pl.DataFrame:
    """Return the operations of late ranks against the mean of the others.

    The difference for kernels of the same operation, shapes and name is that of their number, at
    the mean time of the others, and the rest, that of the time of each. For kernels that only one
    side has, it is all of their time.
    """
    own, usual = (
        work.filter(pl.col("is_late") == is_late).group_by(*_OPERATION, *_SHAPES)
        for is_late in (True, False)
    )
    of_late = own.agg(pl.col(*_SUMS).sum(), pl.col(C.uid, "longest_ns").first())
    both = of_late.join(
        usual.agg(pl.col(_SUMS).sum().name.prefix("usual_")),
        on=[*_OPERATION, *_SHAPES],
        how="full",
        coalesce=True,
        nulls_equal=True,
    ).join(late, on=C.instance_id)
    ranks = pl.col(C.yardstick_ranks)
    time_ns, count, size = (pl.col(name).fill_null(0) for name in _SUMS)
    usual_ns, usual_count, usual_size = (
        pl.col(f"usual_{name}").fill_null(0) / ranks for name in _SUMS
    )
    is_common = (
        pl.col(C.kernel_count).is_not_null() & pl.col(f"usual_{C.kernel_count}").is_not_null()
    )
    more_ns = (count - usual_count) * usual_ns / usual_count
    extra_ns = time_ns - usual_ns
    longest = pl.col(C.uid).sort_by("longest_ns", C.uid, descending=[True, False], nulls_last=True)
    parts = both.group_by(*_OPERATION, C.rank, C.yardstick_ranks).agg(
        longest.first(),
        time_ns.sum().alias(C.kernel_time_ns),
        usual_ns.sum().round().cast(pl.Int64).alias(C.yardstick_ns),
        more_ns.filter(is_common).sum().round().cast(pl.Int64).alias(C.more_kernels_ns),
        extra_ns.filter(~is_common).sum().round().cast(pl.Int64).alias(C.other_shapes_ns),
        count.sum().alias(C.kernel_count),
        usual_count.sum().alias(C.yardstick_kernel_count),
        *(
            pl.when(pl.col(C.state).first() == COPY).then(of.sum().round().cast(pl.Int64)).alias(n)
            for of, n in ((size, C.bytes), (usual_size, C.yardstick_bytes))
        ),
    )
    extra = pl.col(C.kernel_time_ns) - pl.col(C.yardstick_ns)
    slower = extra - pl.col(C.more_kernels_ns) - pl.col(C.other_shapes_ns)
    return parts.with_columns(extra.alias(C.extra_ns), slower.alias(C.slower_ns)).sort(
        C.instance_id, C.extra_ns, *_OPERATION[1:], descending=[False, True, *[False] * 3]
    )


_OF_SHAPES = pl.Schema(
    [
        (C.instance_id, pl.Int32()),
        (C.state, pl.String()),
        *((name, TEXT) for name in (C.detail, C.name, *_SHAPES)),
        ("is_late", pl.Boolean()),
        (C.kernel_time_ns, pl.Int64()),
        (C.kernel_count, pl.Float64()),
        (C.bytes, pl.Float64()),
        (C.uid, pl.Int64()),
        ("longest_ns", pl.Int64()),
    ]
)
