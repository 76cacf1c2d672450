"""How much longer a rank takes for the same kernels than the others."""

from collections.abc import Sequence

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


def flops_per_step(members: Sequence[Member]) -> pl.DataFrame:
    """Return ``rank, flops``: the FLOPs of each rank in a step, by perf models; null without."""
    rows = []
    for member in members:
        if "operations" not in member.tables:
            continue
        operations = member.select("operations", C.flops, C.operation_count)
        flops = (operations[C.flops] * operations[C.operation_count]).sum()
        rows.append({C.rank: member.rank, C.flops: flops / max(member.info.steps, 1) or None})
    return pl.DataFrame(rows, schema={C.rank: pl.Int64, C.flops: pl.Float64})


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
