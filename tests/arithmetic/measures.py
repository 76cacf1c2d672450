"""The measures of an analysis, each by its name."""

import math
import re
from collections.abc import Callable, Iterator

from tests.arithmetic.facts_checks import SIMPLE, baseline_rows
from tests.arithmetic.run_directory import Row, RunDirectory
from tests.arithmetic.savings import is_launch_bound
from tests.arithmetic.units import (
    FILL_OR_CAST,
    TRANSPOSE,
    Facts,
    compute_pct,
    efficiency_pct,
    share,
    time_ms,
)

Measure = Callable[[RunDirectory, list[Row]], float | None]
FUSED_ATTENTION = re.compile(r"flash|fmha|attn_fwd|attn_bwd")
PAGED_ATTENTION = re.compile(r"unified_attention|paged_attention|vllm")


def _spent_ms(kind: re.Pattern[str]) -> Measure:
    return lambda run, rows: math.fsum(row.kernel_time_us(kind.search) for row in rows) / 1000


def _spent_pct(kind: re.Pattern[str]) -> Measure:
    spent = _spent_ms(kind)
    return lambda run, rows: share(spent(run, rows) or 0.0, time_ms(rows))


def _count(is_meant: Callable[[Row], bool]) -> Measure:
    return lambda run, rows: sum(is_meant(row) for row in rows)


def _baseline_tb_per_s(run: RunDirectory, rows: list[Row]) -> float | None:
    large = baseline_rows(run)
    moved = math.fsum((row.bytes or 0) * row.calls for row in large)
    return moved / 1e9 / time_ms(large) if large else None


def _simple_tb_per_s(run: RunDirectory, rows: list[Row]) -> float | None:
    """The plain mean over all rows of simple operators, however small."""
    rates = [
        row.bytes * row.calls / row.time_us / 1e6
        for row in rows
        if row.name in SIMPLE and row.bytes is not None and row.time_us and row.hardware
    ]
    return math.fsum(rates) / len(rates) if rates else None


def _peak_tflops(run: RunDirectory, rows: list[Row]) -> float | None:
    return (run.hardware or {}).get("max_achievable_tflops", {}).get("matrix_bf16")


def _peak_tb_per_s(run: RunDirectory, rows: list[Row]) -> float | None:
    return run.hardware["mem_bw_gbps"] / 1000 if run.hardware else None


def _named(kind: re.Pattern[str]) -> Callable[[Row], bool]:
    return lambda row: kind.search(f"{row.name} {row.cells['main_kernel']}".lower()) is not None


def _is_kind(column: str, kind: str) -> Callable[[Row], bool]:
    return lambda row: row.cells[column] == kind


MEASURES: dict[str, Measure] = {
    "baseline_bandwidth_tbs": _baseline_tb_per_s,
    "baseline_efficiency_percent": lambda run, rows: efficiency_pct(baseline_rows(run)),
    "baseline_row_count": lambda run, rows: len(baseline_rows(run)),
    "mean_bandwidth_of_simple_ops_tbs": _simple_tb_per_s,
    "peak_hbm_bw_tbs": _peak_tb_per_s,
    "peak_maf_tflops": _peak_tflops,
    "launch_bound_percent": lambda run, rows: share(
        time_ms(row for row in rows if is_launch_bound([row])), time_ms(rows)
    ),
    "quantized_count": _count(_is_kind("gemm_type", "quantized")),
    "missing_perf_model_count": _count(lambda row: row.bytes is None and row.flops is None),
    "has_perf_model_count": _count(lambda row: row.cells["has_perf_model"].lower() == "true"),
    "flash_attention_count": _count(_named(FUSED_ATTENTION)),
    "paged_attention_count": _count(_named(PAGED_ATTENTION)),
    "large_head_dim_count": _count(lambda row: row.parameters.get("d_h_qk", 0) > 128),
    "grouped_heads_count": _count(
        lambda row: row.parameters.get("H_KV", 0) < row.parameters.get("H_Q", 0)
    ),
    "softmax_count": _count(lambda row: "softmax" in row.name),
    "softmax_time_ms": lambda run, rows: time_ms(row for row in rows if "softmax" in row.name),
    "batch_norm_share_of_compute_pct": lambda run, rows: compute_pct(
        (row for row in rows if re.search("batch_?norm", row.name.lower())), run
    ),
    "transpose_count": lambda run, rows: sum(
        k["count"] for row in rows for k in row.kernels if TRANSPOSE.search(k["name"].lower())
    ),
    "transpose_time_ms": _spent_ms(TRANSPOSE),
    "transpose_overhead_percent": _spent_pct(TRANSPOSE),
    "fill_and_cast_time_ms": _spent_ms(FILL_OR_CAST),
    "fill_and_cast_percent": _spent_pct(FILL_OR_CAST),
    "communication_count": _count(_is_kind("sub_category", "communication")),
    "graph_count": _count(_is_kind("sub_category", "graph")),
    "miscellaneous_count": _count(_is_kind("sub_category", "miscellaneous")),
    "compute_bound_count": _count(lambda row: row.bound == "compute"),
    "memory_bound_count": _count(lambda row: row.bound == "memory"),
    "mixed_bound_count": _count(lambda row: row.bound == "mixed"),
}
"""How each measure comes about."""

OF_SYSTEM: dict[str, str | float] = {
    "gpu_utilization.total_time_ms": "total_ms",
    "gpu_utilization.idle_time_ms": "idle_ms",
    "gpu_utilization.idle_time_percent": "idle_pct",
    "gpu_utilization.computation_percent": "compute_of_total_pct",
    "gpu_utilization.communication_percent": "comm_pct",
    "gpu_utilization.memcpy_percent": "copy_pct",
    "longest_gap_ms": "longest_of_all_ms",
    "kernel_analysis.total_kernel_count": "kernel_count",
    "kernel_analysis.short_kernel_count": "short_kernels",
    "kernel_analysis.short_kernel_percent": "short_pct",
    "kernel_analysis.short_kernel_limit_us": 10.0,
    "kernel_analysis.avg_kernel_time_us": "mean_kernel_us",
    "potential_speedup": "speedup",
    "target_idle_percent": 20.0,
    "nccl_blocking_assessment.exposed_comm_time_ms": "exposed_comm_ms",
    "nccl_blocking_assessment.total_comm_time_ms": "comm_ms",
    "nccl_blocking_assessment.exposed_percent_of_total": "exposed_comm_pct",
    "overlap_assessment.target_percent": 70.0,
    "overlap_assessment.compute_without_communication_ms": "free_compute_ms",
}
"""The fact, or the documented threshold, of each measure of the whole GPU."""


def measure_problems(run: RunDirectory, key: str, facts: Facts) -> Iterator[str]:
    """The measures of an analysis that are not what the tables and events give."""
    result, rows = run.results[key], run.category(key)
    for name, value in result["metrics"].items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if result["tier"] == "compute" and is_number:
            yield from _differs(name, value, MEASURES[name](run, rows))
        if name == "idle_by_cause_ms":
            for cause, idle_ms in value.items():
                yield from _differs(cause, idle_ms, facts[f"{cause}_idle_ms"][0])
        if name == "gap_count_by_cause":
            for cause, count in value.items():
                yield from _differs(cause, count, sum(gap["cause"] == cause for gap in run.gaps))
    for path, fact in OF_SYSTEM.items() if result["tier"] == "system" else ():
        found = result["metrics"]
        for part in path.split("."):
            found = (found or {}).get(part)
        if found is not None:
            yield from _differs(path, found, facts[fact][0] if isinstance(fact, str) else fact)


def _differs(name: str, value: float, expected: float | None) -> Iterator[str]:
    if expected is None or not math.isclose(value, expected, rel_tol=1e-9, abs_tol=1e-9):
        yield f"{name} is {value}; {expected} expected"
