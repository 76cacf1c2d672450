"""The measures under a category's findings, each by its label."""

import math
import re
from collections.abc import Callable

from tests.arithmetic.facts_checks import SIMPLE, baseline_rows
from tests.arithmetic.run_directory import Row, RunDirectory
from tests.arithmetic.savings import is_launch_bound
from tests.arithmetic.units import FILL_OR_CAST, TRANSPOSE, efficiency_pct, share, time_ms

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


NOTES: dict[str, Measure] = {
    "Baseline bandwidth (TB/s)": _baseline_tb_per_s,
    "Baseline efficiency (%)": lambda run, rows: efficiency_pct(baseline_rows(run)),
    "Baseline row count": lambda run, rows: len(baseline_rows(run)),
    "Mean bandwidth of simple ops (TB/s)": _simple_tb_per_s,
    "Peak HBM bandwidth (TB/s)": _peak_tb_per_s,
    "Peak MAF (TFLOPS/s)": _peak_tflops,
    "Launch bound (%)": lambda run, rows: share(
        time_ms(row for row in rows if is_launch_bound([row])), time_ms(rows)
    ),
    "Quantized count": _count(_is_kind("gemm_type", "quantized")),
    "Missing perf model count": _count(lambda row: row.bytes is None and row.flops is None),
    "Has perf model count": _count(lambda row: row.cells["has_perf_model"].lower() == "true"),
    "Flash attention count": _count(_named(FUSED_ATTENTION)),
    "Paged attention count": _count(_named(PAGED_ATTENTION)),
    "Large head dim count": _count(lambda row: row.parameters.get("d_h_qk", 0) > 128),
    "Grouped heads count": _count(
        lambda row: row.parameters.get("H_KV", 0) < row.parameters.get("H_Q", 0)
    ),
    "Softmax count": _count(lambda row: "softmax" in row.name),
    "Softmax time (ms)": lambda run, rows: time_ms(row for row in rows if "softmax" in row.name),
    "Batch norm share of compute (%)": lambda run, rows: share(
        time_ms(row for row in rows if re.search("batch_?norm", row.name.lower())), run.compute_ms
    ),
    "Transpose count": lambda run, rows: sum(
        k["count"] for row in rows for k in row.kernels if TRANSPOSE.search(k["name"].lower())
    ),
    "Transpose time (ms)": _spent_ms(TRANSPOSE),
    "Transpose overhead (%)": _spent_pct(TRANSPOSE),
    "Fill and cast time (ms)": _spent_ms(FILL_OR_CAST),
    "Fill and cast (%)": _spent_pct(FILL_OR_CAST),
    "Communication count": _count(_is_kind("sub_category", "communication")),
    "Graph count": _count(_is_kind("sub_category", "graph")),
    "Miscellaneous count": _count(_is_kind("sub_category", "miscellaneous")),
    "Compute bound count": _count(lambda row: row.bound == "compute"),
    "Memory bound count": _count(lambda row: row.bound == "memory"),
    "Mixed bound count": _count(lambda row: row.bound == "mixed"),
}
"""How each measure comes about."""
