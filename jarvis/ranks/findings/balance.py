"""Ranks that compute more slowly than others, or more."""

from collections.abc import Iterator

import polars as pl

from jarvis.findings import Finding
from jarvis.impact import share_pct
from jarvis.ranks import speed
from jarvis.ranks.events import POINT_TO_POINT
from jarvis.ranks.findings.facts import RankFacts
from jarvis.ranks.gain import StepGain
from jarvis.ranks.messages import MESSAGES
from jarvis.schemas.names import C

MIN_RATIO, MADS = 1.02, 5
"""A GPU is slow from such a ratio on, so many median absolute deviations above the median."""

MIN_IMBALANCE = 1.05
"""Work of a rank against the mean from which on it is uneven."""


def slow_gpu(facts: RankFacts) -> Iterator[Finding]:
    """A GPU on which the same kernels take longer.

    Symptom: a rank takes longer for kernels that the other ranks run, too.
    Rule: its time is at least {MIN_RATIO} times the median of the ranks with the same GPU, and more
    than {MADS} median absolute deviations above it, over at least {speed.MIN_SIGNATURES} signatures
    (operator, shapes, types, kernel) without kernels beside communication.
    Threshold: the gain above, if its kernels are as fast.
    """
    ratios = facts.joined.speed[C.speed_ratio]
    spread = (ratios - ratios.median()).abs().median()
    limit = 1 + max(MIN_RATIO - 1, MADS * (float(spread) if isinstance(spread, float) else 0.0))
    slow = facts.joined.speed.filter(pl.col(C.speed_ratio) >= limit)
    for rank, ratio, signatures in slow.select(C.rank, C.speed_ratio, speed.SIGNATURES).iter_rows():
        gain = _compute_gain(facts, rank, 1 / ratio)
        if facts.is_worth(gain):
            slower_pct = 100 * (ratio - 1)
            yield facts.finding(
                "slow_gpu",
                gain,
                {"rank": str(rank), "slower_pct": slower_pct, "signatures": signatures},
                actions=MESSAGES.texts("slow.action"),
                evidence={"rank": rank, "speed_ratio": ratio, "signatures": signatures},
            )


def work_imbalance(facts: RankFacts) -> Iterator[Finding]:
    """Ranks with more to compute than others.

    Symptom: a rank takes longer because its sizes are larger, not because its GPU is slower.
    Rule: the FLOPs of its steps are at least {MIN_IMBALANCE} times the mean of the ranks, of those
    of its pipeline stage if there are stages: they differ by design. Where the rows of matrix
    products with one matrix exceed the mean as much, they are named: they are tokens.
    Threshold: the gain above, if it computes what the mean does.
    """
    sends = facts.tables["instances"].filter(pl.col(C.kind) == POINT_TO_POINT)
    work = facts.joined.work.drop_nulls(C.flops)
    work = work.filter((sends.height == 0) | pl.col("stage").is_not_null()).with_columns(
        pl.col(C.flops).mean().over("stage").alias("mean")
    )
    more = (
        work.filter(pl.col("mean") > 0, pl.col(C.flops) >= MIN_IMBALANCE * pl.col("mean"))
        .sort(pl.col(C.flops) / pl.col("mean"), C.rank, descending=[True, False])
        .select(C.rank, C.flops, "mean", "rows", "mean_rows")
    )
    if more.is_empty():
        return
    rank, most, mean, rows, mean_rows = more.row(0)
    gain = _compute_gain(facts, rank, mean / most)
    if not facts.is_worth(gain):
        return
    more_pct = share_pct(most - mean, mean)
    tera = {"tera_flops": most / 1e12, "mean_tera_flops": mean / 1e12}
    has_rows = rows is not None and rows >= MIN_IMBALANCE * mean_rows
    sizes = {"row_count": round(rows), "mean_row_count": round(mean_rows)} if has_rows else {}
    tokens = MESSAGES("work.rows", **sizes) if sizes else None
    yield facts.finding(
        "work_imbalance",
        gain,
        {"rank": str(rank), "more_pct": more_pct, **tera, "tokens": tokens},
        actions=MESSAGES.texts("work.action"),
        evidence={"rank": rank, "more_pct": more_pct, **tera, **sizes},
        issue="compared",
    )


def _compute_gain(facts: RankFacts, rank: int, factor: float) -> StepGain:
    """Return the gain if the kernels of a rank take ``factor`` times as long.

    Without a replay, at most what the rank causes: it may be late for other reasons.
    """
    if facts.joint is None:
        return StepGain(0.0, facts.rank_gain(rank).high_ms)
    return facts.joint.scaled_compute(rank, factor)
