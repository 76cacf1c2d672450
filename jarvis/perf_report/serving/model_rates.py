"""Rates of steps whose kernels have no shapes, from the configuration of the model."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from jarvis.hardware import HardwareSpec
from jarvis.perf_models.step_annotation import parse
from jarvis.perf_models.transformer import Load, ServedModel, step_costs
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
