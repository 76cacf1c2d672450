"""Apply perf models to calls, and compute the roofline metrics of the sheets.

Formulas run once per distinct signature; results are joined to repeated calls.
"""

from collections.abc import Callable
from math import inf, isfinite
from typing import Any

import orjson
import polars as pl

from jarvis.core.expressions import first_of
from jarvis.hardware import HardwareSpec
from jarvis.perf_models import (
    BUILTIN,
    NoModelForCallError,
    OpCost,
    OpSignature,
    PerfModel,
    Registry,
)
from jarvis.perf_models.registry import Formula
from jarvis.perf_report.annotations import ANNOTATION_SCHEMA
from jarvis.perf_report.calls import ARGUMENTS
from jarvis.perf_report.literals import parsed
from jarvis.perf_report.work import GpuWork
from jarvis.schemas.names import C
from jarvis.text.format import cut

FORMULA_ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Exceptions of a formula for arguments that it does not support."""

NO_ARGUMENTS = "the trace records no argument shapes for the call"

COST_SCHEMA = {
    "model": pl.String,
    "makes_row": pl.Boolean,
    "is_extension": pl.Boolean,
    C.modelled: pl.Boolean,
    C.failure: pl.String,
    C.uncovered: pl.String,
    C.flops: pl.Float64,
    C.bytes: pl.Float64,
    C.exact_flops: pl.Float64,
    C.exact_bytes: pl.Float64,
    C.compute_spec: pl.String,
    C.perf_params: pl.String,
    C.params: pl.String,
}
_SIGNATURE = (C.name, *ARGUMENTS, C.kernel_names, "annotation")
KERNEL_SEPARATOR = "\n"  # in no kernel name

FormulaOf = Callable[[PerfModel], Formula | None]


def forward(model: PerfModel) -> Formula | None:
    """Return the formula of the op itself."""
    return model.cost


def backward(model: PerfModel) -> Formula | None:
    """Return the formula of the op's backward pass, which takes the forward's arguments."""
    return model.backward


def costs(
    calls: pl.DataFrame,
    work: GpuWork | None = None,
    formula_of: FormulaOf = forward,
    strict: bool = False,
    annotations: pl.DataFrame | None = None,
    registry: Registry = BUILTIN,
    kernel_names: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Return the cost of each call whose name has a formula.

    Args:
        calls: ``uid, name`` and the arguments as JSON text.
        work: GPU work, for models that read the names of the kernels below a call.
        strict: Raise errors of formulas instead of recording them.
        annotations: ``step_annotations`` of the calls.
        kernel_names: ``uid, kernel_names``, replaces ``work``; names are joined by
            KERNEL_SEPARATOR.

    Returns:
        ``uid`` and the columns of COST_SCHEMA, texts as categories. ``modelled`` is false if the
        formula does not cover the call, with the reason in ``uncovered``; ``failure`` is the reason
        why the formula failed. ``flops`` and ``bytes`` follow the sheets, ``exact_*`` are the
        corrected values.
    """
    models = {
        name: model
        for name in calls[C.name].unique()
        if (model := registry.find_model(name)) is not None and formula_of(model) is not None
    }
    candidates = calls.filter(pl.col(C.name).is_in(list(models))).select(C.uid, C.name, *ARGUMENTS)
    need_kernels = [name for name, model in models.items() if model.needs_kernels]
    readers = candidates.filter(pl.col(C.name).is_in(need_kernels))[C.uid]
    if annotations is None:
        annotations = pl.DataFrame(schema=ANNOTATION_SCHEMA)
    if kernel_names is None:
        kernel_names = _kernel_names(readers, work)
    signatures = (
        candidates.join(kernel_names, on=C.uid, how="left", maintain_order="left")
        .join(annotations, on=C.uid, how="left", maintain_order="left")
        .group_by(_SIGNATURE, maintain_order=True)
        .agg(C.uid)
    )
    rows = []
    for row in signatures.select(_SIGNATURE).iter_rows(named=True):
        model = models[row[C.name]]
        origin = {
            "model": model.name,
            "makes_row": model.makes_row,
            "is_extension": model.is_extension,
        }
        rows.append({**origin, **_cost(row, formula_of(model), strict)})
    priced = pl.DataFrame(rows, schema=COST_SCHEMA).with_columns(
        pl.col(pl.String).cast(pl.Categorical)
    )
    return signatures.select(C.uid).hstack(priced).explode(C.uid)


def _kernel_names(readers: pl.Series, work: GpuWork | None) -> pl.DataFrame:
    """Return ``uid, kernel_names`` of the calls with GPU work below them."""
    if work is None:
        return pl.DataFrame(schema={C.uid: pl.Int64, C.kernel_names: pl.String})
    return (
        work.below(readers, (C.name, C.ts_ns))
        .sort(C.owner_uid, C.ts_ns, maintain_order=True)
        .group_by(uid=C.owner_uid)
        .agg(pl.col(C.name).str.join(KERNEL_SEPARATOR).alias(C.kernel_names))
    )


def _cost(row: dict[str, Any], formula: Formula | None, strict: bool) -> dict[str, Any]:
    assert formula is not None
    if row[C.input_dims] is None:
        return {"modelled": True, "failure": NO_ARGUMENTS}
    try:
        columns = _cost_columns(formula(_signature(row)))
    except NoModelForCallError as error:
        return {"modelled": False, "uncovered": str(error)}
    except FORMULA_ERRORS as error:
        if strict:
            raise
        return {"modelled": True, "failure": str(error) or type(error).__name__}
    return {"modelled": True, **columns}


def _signature(row: dict[str, Any]) -> OpSignature:
    dims, types, strides, concrete = (parsed(row[argument]) for argument in ARGUMENTS)
    kernel_names = row[C.kernel_names]
    return OpSignature(
        name=cut(row[C.name]),
        input_dims=dims,
        input_types=types,
        input_strides=strides,
        concrete_inputs=concrete,
        annotation=row["annotation"] and cut(row["annotation"]),
        kernel_names=tuple(map(cut, kernel_names.split(KERNEL_SEPARATOR))) if kernel_names else (),
    )


def _cost_columns(cost: OpCost) -> dict[str, Any]:
    """Return the cost as columns; raise one of FORMULA_ERRORS if its values are invalid."""
    exact = cost.exact()
    params = dict(cost.params)
    for name, value in params.items():
        if isinstance(value, float) and not isfinite(value):
            raise ValueError(f"the parameter {name} is {value}")
    moved = _quantity("bytes", cost.bytes)
    return {
        "failure": "the perf model knows no FLOPs for the call" if cost.flops is None else None,
        "flops": _quantity("FLOPs", cost.flops),
        "bytes": None if cost.flops is None else moved,
        "exact_flops": _quantity("FLOPs", exact.flops),
        "exact_bytes": _quantity("bytes", exact.bytes),
        "compute_spec": cost.compute,
        "perf_params": repr(params) if params else None,
        "params": orjson.dumps(params, option=orjson.OPT_NON_STR_KEYS).decode(),
    }


def _quantity(name: str, value: float | None) -> float | None:
    number = None if value is None else float(value)
    if number is not None and not 0 <= number < inf:
        raise ValueError(f"its {name} would be {number}")
    return number


def sheet_metrics(calls: pl.DataFrame, hardware: HardwareSpec | None) -> pl.DataFrame:
    """Return calls with the metrics of the sheets.

    Rates are null if the time is 0. Roofline columns exist only with hardware and if at least one
    call has a peak.

    Args:
        calls: ``flops, bytes, compute_spec, kernel_time_us``.
    """
    flops, moved = pl.col(C.flops), pl.col(C.bytes)
    time_us = pl.when(pl.col(C.kernel_time_us) > 0).then(C.kernel_time_us)
    rated = calls.with_columns(
        (flops / 1e9).alias(C.gflops),
        (moved / (1 << 20)).alias(C.data_moved_mb),
        pl.when(moved > 0).then(flops / moved).alias(C.flops_per_byte),
        (moved / time_us / 1e6).alias(C.tb_per_s),
        (flops / time_us / 1e6).alias(C.tflops_per_s),
    )
    if hardware is None:
        return rated
    # Multiply instead of dividing: Polars rounds a division by a constant differently for one row
    # than for many, and a re-projected run has fewer rows.
    compute_us = pl.when(flops > 0).then(flops / peak_tflops(hardware, C.compute_spec) * 1e-6)
    memory_us = moved * (1e-3 / hardware.mem_bw_gbps)
    has_roofline = compute_us.is_not_null() & memory_us.is_not_null()
    roofline_us = pl.when(has_roofline).then(pl.max_horizontal(compute_us, memory_us))
    priced = rated.with_columns(
        **{
            C.roofline_time_us: roofline_us,
            C.roofline_bound: pl.when(has_roofline).then(
                first_of({"COMPUTE_BOUND": compute_us >= memory_us}, "MEMORY_BOUND")
            ),
            C.pct_roofline: 100 * roofline_us / time_us,
        },
    )
    return rated if priced[C.roofline_time_us].null_count() == priced.height else priced


def peak_tflops(hardware: HardwareSpec, compute: str) -> pl.Expr:
    """Return the compute peak of each row in TFLOPS; null if the hardware has none."""
    return pl.col(compute).replace_strict(
        hardware.max_achievable_tflops, default=None, return_dtype=pl.Float64
    )
