"""Rows of the operations table and slices of them, so that a test of a check is three lines.

category("gemm", operation("aten::mm", time_us=900, pct_roofline=31.0, bound="compute"))
"""

import json
from typing import Any

import polars as pl

from jarvis.analyses import load_analyses
from jarvis.analyses.base import CategoryData
from jarvis.analyses.baseline import Baseline, measure_baseline
from jarvis.analyses.operations import describe
from jarvis.hardware import HardwareSpec, load_hardware
from jarvis.perf_report import Totals
from jarvis.schemas import columns

MI300X = load_hardware().get("MI300X")


def totals(
    compute_ms: float = 10.0,
    *,
    exposed_comm_ms: float = 0.0,
    exposed_copy_ms: float = 0.0,
    idle_ms: float = 0.0,
    comm_ms: float | None = None,
    copy_ms: float | None = None,
) -> Totals:
    """A GPU timeline whose parts add up; communication and copies are all exposed by default."""
    busy_ms = compute_ms + exposed_comm_ms + exposed_copy_ms
    return Totals(
        compute_time_ms=compute_ms,
        exposed_comm_time_ms=exposed_comm_ms,
        exposed_memcpy_time_ms=exposed_copy_ms,
        busy_time_ms=busy_ms,
        idle_time_ms=idle_ms,
        total_time_ms=busy_ms + idle_ms,
        total_comm_time_ms=exposed_comm_ms if comm_ms is None else comm_ms,
        total_memcpy_time_ms=exposed_copy_ms if copy_ms is None else copy_ms,
        linked_pct=100.0,
    )


def operation(name: str, *, time_us: float, count: int = 1, **values: Any) -> dict[str, Any]:
    """One row; what is not given is null, or follows from the rest.

    ``params`` is a dict; ``kernels`` are (name, total µs) pairs, one launch per call each.
    """
    kernels = values.pop("kernels", [("some_kernel", time_us)])
    params = values.pop("params", None)
    row = {
        "name": name,
        "op_category": "other",
        "operation_count": count,
        "kernel_time_us": time_us,
        "kernel_time_us_mean": time_us / count,
        "host_time_us": time_us,
        "kernel_count": count * len(kernels),
        "comm_time_us": 0.0,
        "has_perf_model": values.get("pct_roofline") is not None,
        "params": None if params is None else json.dumps(params),
        "kernels": [_kernel(kernel, us, count) for kernel, us in kernels],
        "launcher_names": [name],
        "launcher_uids": [],
        "module_path": [],
    }
    if values.get("bound") == "memory":
        row |= {"peak_tb_per_s": 5.3, "bytes": 1e6}
    elif values.get("bound") == "compute":
        row |= {"compute": "matrix_bf16", "peak_tflops": 708.0, "flops": 1e9}
    return row | values


def operations(*rows: dict[str, Any], base: Totals | None = None) -> pl.DataFrame:
    """The operations table of these rows; uids count up, shares follow from ``base``."""
    base = base or totals()
    schema = {column.name: column.dtype for column in columns("operations")}
    table = pl.DataFrame(
        [{"uid": uid, **row} for uid, row in enumerate(rows, start=1)], schema=schema, orient="row"
    )
    time_us = pl.col("kernel_time_us")
    return table.with_columns(
        percent_of_compute=time_us / (10 * base.compute_time_ms),
        percent_of_total=time_us / (10 * base.total_time_ms),
    )


def category(
    key: str,
    *rows: dict[str, Any],
    base: Totals | None = None,
    hardware: HardwareSpec | None = MI300X,
    top: set[int] | None = None,
    compute_units: int | None = 304,
    target_pct: float = 80.0,
    baseline: Baseline | None = None,
) -> CategoryData:
    """What the analysis ``key`` sees of these rows; ``top`` are uids of top operations.

    ``baseline`` is by default that of the rows themselves.
    """
    analysis = load_analyses()[key]
    table = describe(operations(*rows, base=base), frozenset(top or ()), hardware)
    table = table.sort("kernel_time_us", descending=True)
    if analysis.classify:
        table = analysis.classify(table, compute_units)
    return CategoryData(
        key=key,
        title=analysis.title,
        operations=table,
        totals=base or totals(),
        hardware=hardware,
        advice=analysis.advice,
        target_pct=target_pct,
        baseline=baseline or measure_baseline(table),
    )


def system(
    key: str, base: Totals, *, tables: dict[str, pl.DataFrame] | None = None
) -> CategoryData:
    """What a system analysis sees."""
    return CategoryData(
        key=key,
        title=load_analyses()[key].title,
        operations=operations().head(0),
        totals=base,
        hardware=MI300X,
        tables=tables or {},
    )


def table(name: str, *rows: dict[str, Any]) -> pl.DataFrame:
    """A table of the report with these rows; what is not given is null."""
    return pl.DataFrame(rows, schema={c.name: c.dtype for c in columns(name)}, orient="row")


def _kernel(name: str, total_us: float, count: int) -> dict[str, Any]:
    mean = total_us / count
    return {
        "name": name,
        "stream": 0,
        "count": count,
        "total_us": total_us,
        "mean_us": mean,
        "min_us": mean,
        "max_us": mean,
    }
