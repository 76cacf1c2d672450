"""How much longer a rank takes for the same kernels than the others."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import polars as pl

from jarvis.perf_report.intervals import covered_during
from jarvis.perf_report.work import COMPUTE
from jarvis.ranks.events import TEXT
from jarvis.ranks.members import Batch
from jarvis.schemas.names import C

MIN_RANKS = 3
"""Ranks that a median of ranks needs."""

MIN_SIGNATURES = 50
"""Signatures over which a ratio is more than noise."""

SIGNATURES = "signatures"
"""Column of ``speed_ratios``: how many signatures are compared."""

_SHAPES = (C.input_dims, C.input_types)
_SIGNATURE = (C.name, *_SHAPES, C.kernel)


class Work(NamedTuple):
    """What the ranks compute: ``signatures``, the mean time of each and its calls, and
    ``products``, the FLOPs of operations in a step, of products of two matrices also the rows of
    the first one, and the second one."""

    signatures: pl.DataFrame
    products: pl.DataFrame


def read_work(batches: Sequence[Batch], kernels: pl.DataFrame) -> Work:
    """Return what the ranks compute.

    Args:
        batches: The ranks.
        kernels: Kernels of ``communication_events``: what runs beside them has no signature.
    """
    signatures, products = [], []
    for batch in batches:
        columns = (C.uid, C.name, *_SHAPES, C.operation_count, C.flops)
        operations = batch.having("operations").read("operations", *columns)
        operations = operations.with_columns(pl.col(C.name, *_SHAPES).cast(TEXT))
        signatures.append(_signatures(batch, operations, batch.rows(kernels)))
        products.append(_products(batch, operations))
    return Work(pl.concat(signatures), pl.concat(products))


def speed_ratios(times: pl.DataFrame) -> pl.DataFrame:
    """Return ``rank, speed_ratio, signatures``: the time of kernels against the median of the ranks
    of the same GPU, and the number of signatures that are compared.

    A signature is an operator with its shapes and types, and one of its kernels. Those that at
    least MIN_RANKS ranks share count by their median time. Kernels beside communication, which
    slows them, do not count. A rank with fewer than MIN_SIGNATURES has no row.

    Args:
        times: The signatures (``read_work``).
    """
    shared = [*_SIGNATURE, C.device_name]
    signatures = times.select(shared).unique().sort(shared).with_row_index("signature")
    median = pl.col("mean_ns").median().over("signature")
    weight = median * pl.col("calls").median().over("signature")
    return (
        times.join(signatures, on=shared, nulls_equal=True)
        .select(
            *(C.rank, "signature"),
            (pl.col("mean_ns") / median).alias("ratio"),
            weight.alias("weight"),
            pl.len().over("signature").alias("ranks"),
        )
        .filter(pl.col("ranks") >= MIN_RANKS, pl.col("weight") > 0)
        .sort(C.rank, "signature")
        .group_by(C.rank, maintain_order=True)
        .agg(
            ((pl.col("ratio") * pl.col("weight")).sum() / pl.col("weight").sum()).alias(
                C.speed_ratio
            ),
            pl.len().cast(pl.Int64).alias(SIGNATURES),
        )
        .filter(pl.col(SIGNATURES) >= MIN_SIGNATURES)
    )


def work_per_step(products: pl.DataFrame, stages: Mapping[int, int]) -> pl.DataFrame:
    """Return the work of each rank: ``rank, stage, flops, rows, mean_rows``.

    ``flops`` are those of a step, by perf models; null without. ``rows`` are those of matrix
    products with one matrix on average, such as tokens, of the matrix for which they exceed the
    mean of the ranks of the pipeline stage (``mean_rows``) most.

    Args:
        products: The products (``read_work``).
        stages: The pipeline stage of each rank.
    """
    products = products.with_columns(_stage(stages))
    shared = ["stage", C.name, "matrix"]
    flops = products.group_by("stage", C.rank).agg(pl.col(C.flops).sum())
    rows = (
        products.drop_nulls("rows")
        .group_by(*shared, C.rank)
        .agg(((pl.col("rows") * pl.col("calls")).sum() / pl.col("calls").sum()).alias("rows"))
        .with_columns(
            pl.col("rows").mean().over(shared).alias("mean_rows"),
            (pl.len().over(shared) == pl.col(C.rank).n_unique().over("stage")).alias("is_shared"),
        )
        .filter("is_shared")
        .sort(pl.col("rows") / pl.col("mean_rows"), *shared, descending=[True, *[False] * 3])
        .unique(C.rank, keep="first", maintain_order=True)
    )
    return (
        flops.join(rows.select(C.rank, "rows", "mean_rows"), on=C.rank, how="left")
        .sort(C.rank)
        .select(_WORK)
    )


_WORK = (C.rank, "stage", C.flops, "rows", "mean_rows")
_MATRIX = r"\(\d+, \d+\)"


def _stage(stages: Mapping[int, int]) -> pl.Expr:
    stage = pl.col(C.rank).replace_strict(dict(stages), default=None, return_dtype=pl.Int64)
    return stage.alias("stage")


def _products(batch: Batch, operations: pl.DataFrame) -> pl.DataFrame:
    matrices = pl.col(C.input_dims).cast(pl.String).str.extract_all(_MATRIX)
    is_product = (pl.col(C.flops) > 0) & (matrices.list.len() == 2)
    rows = matrices.list.first().str.extract(r"(\d+)").cast(pl.Float64)
    calls = pl.col(C.operation_count)
    steps = {member.rank: max(member.info.steps, 1) for member in batch.members}
    return operations.select(
        *(C.rank, C.name),
        calls.alias("calls"),
        pl.col(C.flops) * calls / pl.col(C.rank).replace_strict(steps, return_dtype=pl.Int64),
        pl.when(is_product).then(rows).alias("rows"),
        pl.when(is_product).then(matrices.list.last()).cast(TEXT).alias("matrix"),
    )


def _signatures(batch: Batch, operations: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    work = batch.read("gpu_work", C.kind, C.name, C.ts_ns, C.dur_ns, C.operation_uid)
    work = work.filter(pl.col(C.kind) == COMPUTE)
    spans = kernels.select(
        batch.placed(pl.col(C.start_ns)).alias(C.ts_ns),
        (pl.col(C.end_ns) - pl.col(C.start_ns)).alias(C.dur_ns),
    )
    starts = work.select(batch.on_axis(C.ts_ns)).to_series().to_numpy()
    ends = starts + work[C.dur_ns].to_numpy()
    beside = covered_during(spans, starts, ends)
    devices = {member.rank: member.info.device_name for member in batch.members}
    return (
        work.select(C.rank, C.operation_uid, C.dur_ns, pl.col(C.name).cast(TEXT).alias(C.kernel))
        .filter(pl.Series(beside == 0))
        .group_by(C.rank, C.operation_uid, C.kernel)
        .agg(pl.col(C.dur_ns).sum(), pl.len().alias("calls"))
        .join(operations, left_on=[C.rank, C.operation_uid], right_on=[C.rank, C.uid])
        .group_by(C.rank, *_SIGNATURE)
        .agg(pl.col(C.dur_ns).sum() / pl.col("calls").sum(), pl.col("calls").sum())
        .rename({C.dur_ns: "mean_ns"})
        .with_columns(
            pl.col(C.rank).replace_strict(devices, return_dtype=TEXT).alias(C.device_name)
        )
    )
