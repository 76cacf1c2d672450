"""Rates of inference steps: of single steps, of phases, and of several steps together."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from jarvis.hardware import HardwareSpec
from jarvis.perf_models.step_annotation import parse
from jarvis.perf_models.transformer import Load, ServedModel, step_costs
from jarvis.perf_report.kernel_blocks import TITLES
from jarvis.perf_report.serving.steps import MIN_MODELLED_PCT
from jarvis.schemas.names import C

CONFIG, PERF_MODELS = "config", "perf models"
"""Sources of FLOPs and bytes of a step."""

_COSTS = {
    C.flops: pl.Float64,
    C.bytes: pl.Float64,
    C.mfu_pct: pl.Float64,
    C.mbu_pct: pl.Float64,
    C.lower_bound_ms: pl.Float64,
    C.cost_source: pl.String,
}


def with_model_rates(
    steps: pl.DataFrame, model: ServedModel | None, hardware: HardwareSpec | None
) -> pl.DataFrame:
    """Return steps with ``lower_bound_ms`` and ``cost_source``.

    Whole steps of which less than MIN_MODELLED_PCT of the kernel time has a perf model get the
    costs of the model's configuration, if their annotation has the lengths of the requests.
    Costs of both sources are never added.

    Raises:
        ModelConfigError: The number of bytes of the model's weights is not known.
    """
    rows = [_costs(row, model, hardware) for row in steps.iter_rows(named=True)]
    costs = pl.DataFrame(rows, schema=_COSTS)
    return steps.with_columns(costs.get_columns())


def _costs(
    row: Mapping[str, Any], model: ServedModel | None, hardware: HardwareSpec | None
) -> dict[str, Any]:
    recorded = {name: row.get(name) for name in _COSTS}
    if (row[C.modelled_pct] or 0.0) >= MIN_MODELLED_PCT:
        return recorded | {C.cost_source: PERF_MODELS}
    annotated = parse(row[C.name])
    is_whole = row[C.part] is None and row[C.step_time_ms]
    if not is_whole or model is None or annotated is None:
        return recorded
    if annotated.context is None or annotated.generation is None:
        return recorded
    requests = (row[C.ctx_requests] or 0) + (row[C.gen_requests] or 0)
    costs = step_costs(model, Load(requests, annotated.context, annotated.generation))
    flops, moved = sum(cost.flops for cost in costs), sum(cost.bytes for cost in costs)
    found = {**recorded, C.flops: flops, C.bytes: moved, C.cost_source: CONFIG}
    peak = hardware.peak_tflops(model.config.compute) if hardware else None
    if hardware is None or peak is None:
        return found
    seconds = row[C.step_time_ms] / 1e3
    return found | {
        C.mfu_pct: 100 * flops / peak / 1e12 / seconds,
        C.mbu_pct: 100 * moved / hardware.tb_per_s / 1e12 / seconds,
        C.lower_bound_ms: 1e3 * sum(cost.least_s(peak, hardware.tb_per_s) for cost in costs),
    }


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
        time.median().alias(C.median_ms),
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


TOP_BLOCKS = 3


def inference_phases(steps: pl.DataFrame, layers: pl.DataFrame) -> pl.DataFrame:
    """Return the phases of the steps (schema: ``inference_phases``), most time first.

    The parts of diffusion steps are phases of their own; their time is in that of the steps, too.

    Args:
        steps: Result of ``inference_steps``.
        layers: The table ``inference_layers``, for the blocks with most time.
    """
    time = pl.col(C.step_time_ms)
    whole_ms = steps.filter(pl.col(C.part).is_null())[C.step_time_ms].sum()
    tokens = pl.col(C.ctx_tokens) + pl.col(C.gen_tokens)

    def mean(rate: str) -> pl.Expr:
        """Return a share of the peak over all steps; null if one is not known."""
        known = pl.col(rate).null_count() == 0
        return pl.when(known).then((pl.col(rate) * time).sum() / time.sum())

    is_counted = tokens.null_count() == 0
    rows = (
        steps.filter(time.is_not_null())
        .group_by(C.phase, maintain_order=True)
        .agg(
            **{
                C.step_count: pl.len(),
                C.time_ms: time.sum(),
                C.share_pct: 100 * time.sum() / whole_ms,
                C.tokens: pl.when(is_counted).then(tokens.sum()),
                C.tokens_per_s: pl.when(is_counted).then(1e3 * tokens.sum() / time.sum()),
                C.mean_ms: time.mean(),
                C.p50_ms: time.median(),
                C.p95_ms: time.quantile(0.95, "linear"),
                C.mfu_pct: mean(C.mfu_pct),
                C.mbu_pct: mean(C.mbu_pct),
            }
        )
    )
    return rows.join(
        _top_blocks(layers), on=C.phase, how="left", nulls_equal=True, maintain_order="left"
    ).sort(C.time_ms, descending=True, maintain_order=True)


def _top_blocks(layers: pl.DataFrame) -> pl.DataFrame:
    """Return ``phase, top_blocks``: the blocks with most GPU time and their shares of it."""
    share = pl.col(C.share_pct)
    return (
        layers.group_by(C.phase, C.block)
        .agg(share.sum())
        .sort(C.share_pct, C.block, descending=[True, False])
        .group_by(C.phase, maintain_order=True)
        .agg(
            pl.format("{} {}%", pl.col(C.block).replace(TITLES), share.round(1))
            .head(TOP_BLOCKS)
            .str.join(", ")
            .alias(C.top_blocks)
        )
    )
