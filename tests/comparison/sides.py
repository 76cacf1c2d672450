"""Sides and their rows for tests of comparisons."""

from collections.abc import Sequence

import polars as pl

from jarvis.comparison import Side
from jarvis.hardware import HardwareSpec
from jarvis.perf_report import PerfReport
from tests.builders import TraceBuilder

SOURCES = {"default": "made up for tests"}
SLOW = HardwareSpec(
    name="Slow",
    memory_gb=80,
    mem_bw_gbps=1000,
    max_achievable_tflops={"matrix_bf16": 100.0, "vector_bf16": 50.0},
    sources=SOURCES,
)
FAST = HardwareSpec(
    name="Fast",
    memory_gb=80,
    mem_bw_gbps=4000,
    max_achievable_tflops={"matrix_bf16": 200.0, "vector_bf16": 100.0},
    sources=SOURCES,
)
TABLES = (
    "gpu_timeline",
    "call_tree",
    "call_tree_operations",
    "collectives",
    "steps",
    "step_gaps",
    "gpu_work",
)


def side(
    built: TraceBuilder,
    hardware: HardwareSpec | None,
    *,
    without: Sequence[str] = (),
) -> Side:
    """One side as a trace gives it; operations have the category ``any``."""
    report = PerfReport(built.read(), hardware)
    tables = {name: report.table(name) for name in TABLES}
    tables["operations"] = report.operations.with_columns(category=pl.lit("any"))
    kept = {name: table for name, table in tables.items() if name not in without}
    return Side(
        hardware.title if hardware else "GPU",
        hardware,
        kept,
        {"any": "Any"},
        bounds=report.totals.step,
    )
