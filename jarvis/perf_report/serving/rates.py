"""Rates of several inference steps together, and their time at a target MBU and MFU."""

from dataclasses import dataclass

import polars as pl

from jarvis.schemas.names import C


@dataclass(frozen=True, slots=True)
class StepRates:
    """Figures of steps; None where one of the steps does not have its part.

    ``busy_pct`` is the share of the step times in which GPU work of the step runs, and
    ``target_ms`` the median step time at the targets.
    """

    steps: int
    median_ms: float | None
    p95_ms: float | None
    tokens_per_s: float | None
    itl_ms: float | None
    busy_pct: float | None
    mbu_pct: float | None
    mfu_pct: float | None
    target_ms: float | None


def step_rates(steps: pl.DataFrame, mbu_target_pct: float, mfu_target_pct: float) -> StepRates:
    """Return the figures of whole steps (rows of ``inference_steps``).

    At its targets a step takes the longer of the times in which memory and matrix units do its work
    at these shares of their peaks, but never longer than now. Launch gaps and other work are not
    in it, so it is a lower bound.
    """
    timed = steps.filter(pl.col(C.step_time_ms) > 0)
    time = pl.col(C.step_time_ms)
    tokens = pl.col(C.ctx_tokens) + pl.col(C.gen_tokens)
    used = pl.max_horizontal(
        pl.col(C.mbu_pct) / mbu_target_pct, pl.col(C.mfu_pct) / mfu_target_pct, pl.lit(0.0)
    )
    is_known = pl.col(C.mbu_pct).is_not_null() & pl.col(C.mfu_pct).is_not_null()

    def of_all(value: pl.Expr, whole: pl.Expr) -> pl.Expr:
        return pl.when((value.null_count() == 0) & (pl.len() > 0)).then(whole)

    found = timed.select(
        time.median().alias("median_ms"),
        time.quantile(0.95, "linear").alias(C.p95_ms),
        of_all(tokens, 1e3 * tokens.sum() / time.sum()).alias(C.tokens_per_s),
        pl.col(C.itl_ms).median(),
        of_all(pl.col(C.busy_ms), 100 * pl.col(C.busy_ms).sum() / time.sum()).alias("busy_pct"),
        *(
            of_all(pl.col(rate), (pl.col(rate) * time).sum() / time.sum()).alias(rate)
            for rate in (C.mbu_pct, C.mfu_pct)
        ),
        of_all(pl.when(is_known).then(1), (time * used.clip(upper_bound=1)).median()).alias(
            C.target_ms
        ),
    )
    return StepRates(steps=steps.height, **found.row(0, named=True))
