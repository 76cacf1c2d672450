"""How much longer a rank takes for the same kernels than the others."""

from collections.abc import Mapping, Sequence

import polars as pl

from jarvis.perf_report.intervals import END, START, covered_until
from jarvis.perf_report.work import COMPUTE
from jarvis.ranks.events import Member
from jarvis.schemas.names import C

MIN_RANKS = 3
"""Ranks that a median of ranks needs."""

MIN_SIGNATURES = 50
"""Signatures over which a ratio is more than noise."""

SIGNATURES = "signatures"
"""Column of ``speed_ratios``: how many signatures are compared."""

_SIGNATURE = (C.name, C.input_dims, C.input_types, C.kernel)
_SCHEMA = pl.Schema({C.rank: pl.Int64, C.speed_ratio: pl.Float64, SIGNATURES: pl.Int64})


def speed_ratios(members: Sequence[Member]) -> pl.DataFrame:
    """Return ``rank, speed_ratio, signatures``: the time of kernels against the median of the ranks
    of the same GPU, and the number of signatures that are compared.

    A signature is an operator with its shapes and types, and one of its kernels. Those that at
    least MIN_RANKS ranks share count by their median time. Kernels beside communication, which
    slows them, do not count. A rank with fewer than MIN_SIGNATURES has no row.
    """
    frames = [_signatures(member) for member in members if "operations" in member.tables]
    if not frames:
        return pl.DataFrame(schema=_SCHEMA)
    shared = [*_SIGNATURE, C.device_name]
    median = pl.col("mean_ns").median().over(shared)
    weight = median * pl.col("calls").median().over(shared)
    return (
        pl.concat(frames)
        .with_columns(
            (pl.col("mean_ns") / median).alias("ratio"),
            weight.alias("weight"),
            pl.len().over(shared).alias("ranks"),
        )
        .filter(pl.col("ranks") >= MIN_RANKS, pl.col("weight") > 0)
        .sort(C.rank, *_SIGNATURE)
        .group_by(C.rank, maintain_order=True)
        .agg(
            ((pl.col("ratio") * pl.col("weight")).sum() / pl.col("weight").sum()).alias(
                C.speed_ratio
            ),
            pl.len().cast(pl.Int64).alias(SIGNATURES),
        )
        .filter(pl.col(SIGNATURES) >= MIN_SIGNATURES)
    )


def work_per_step(members: Sequence[Member], stages: Mapping[int, int]) -> pl.DataFrame:
    """Return the work of each rank: ``rank, stage, flops, rows, mean_rows``.

    ``flops`` are those of a step, by perf models; null without. ``rows`` are those of matrix
    products with one matrix on average, such as tokens, of the matrix for which they exceed the
    mean of the ranks of the pipeline stage (``mean_rows``) most.
    """
    frames = [_products(member) for member in members if "operations" in member.tables]
    if not frames:
        return pl.DataFrame(schema=_WORK)
    products = pl.concat(frames).with_columns(_stage(stages))
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
        .select(list(_WORK))
    )


_WORK = pl.Schema(
    {
        C.rank: pl.Int64,
        "stage": pl.Int64,
        C.flops: pl.Float64,
        "rows": pl.Float64,
        "mean_rows": pl.Float64,
    }
)
_MATRIX = r"\(\d+, \d+\)"


def _stage(stages: Mapping[int, int]) -> pl.Expr:
    stage = pl.col(C.rank).replace_strict(dict(stages), default=None, return_dtype=pl.Int64)
    return stage.alias("stage")


def _products(member: Member) -> pl.DataFrame:
    """Return the FLOPs of the operations of a rank in a step; of products of two matrices also the
    rows of the first one, and the second one."""
    matrices = pl.col(C.input_dims).cast(pl.String).str.extract_all(_MATRIX)
    is_product = (pl.col(C.flops) > 0) & (matrices.list.len() == 2)
    rows = matrices.list.first().str.extract(r"(\d+)").cast(pl.Float64)
    calls = pl.col(C.operation_count)
    operations = member.select("operations", C.name, C.input_dims, C.operation_count, C.flops)
    return operations.select(
        pl.lit(member.rank, pl.Int64).alias(C.rank),
        pl.col(C.name).cast(pl.String),
        calls.alias("calls"),
        (pl.col(C.flops) * calls / max(member.info.steps, 1)).alias(C.flops),
        pl.when(is_product).then(rows).alias("rows"),
        pl.when(is_product).then(matrices.list.last()).alias("matrix"),
    )


def _signatures(member: Member) -> pl.DataFrame:
    """Return the mean time of each signature of a rank, and its calls."""
    work = member.select("gpu_work", C.kind, C.name, C.ts_ns, C.dur_ns, C.operation_uid).filter(
        pl.col(C.kind) == COMPUTE
    )
    spans = member.select("collectives", C.ts_ns, C.end_ns).select(
        C.ts_ns, (pl.col(C.end_ns) - pl.col(C.ts_ns)).alias(C.dur_ns)
    )
    times = work.select(START.alias("start"), END.alias("end"))
    beside = covered_until(spans, times["end"].to_numpy()) - covered_until(
        spans, times["start"].to_numpy()
    )
    operations = member.select("operations", C.uid, C.name, C.input_dims, C.input_types).select(
        pl.col(C.uid).alias(C.operation_uid),
        pl.col(C.name, C.input_dims, C.input_types).cast(pl.String),
    )
    return (
        work.filter(pl.Series(beside == 0))
        .select(C.operation_uid, C.dur_ns, pl.col(C.name).cast(pl.String).alias(C.kernel))
        .join(operations, on=C.operation_uid)
        .group_by(_SIGNATURE)
        .agg(pl.col(C.dur_ns).mean().alias("mean_ns"), pl.len().alias("calls"))
        .with_columns(
            pl.lit(member.rank, pl.Int64).alias(C.rank),
            pl.lit(member.info.device_name, pl.String).alias(C.device_name),
        )
    )
