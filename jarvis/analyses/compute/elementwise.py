"""Elementwise: arithmetic, copies, casts and activations, bound by memory bandwidth."""

import polars as pl
from pydantic import JsonValue

from jarvis import impact
from jarvis.analyses.base import Advice, Analysis, CategoryData, Claim, Panel
from jarvis.analyses.checks import SHARED_CHECKS
from jarvis.analyses.name_patterns import first_match
from jarvis.analyses.operations import weighted_efficiency
from jarvis.schemas import FLAG, TEXT, Column

BASELINE_OPS = ("aten::add_", "aten::mul", "aten::copy_")
BASELINE_BYTES = 8 * 2**20
"""Simple operators that show what memory bandwidth this trace can reach, from this size on."""

OP_TYPES = (
    ("copy", r"copy|clone|contiguous|_to\b"),
    ("add", r"add"),
    ("multiply", r"mul"),
    ("divide", r"div"),
    ("subtract", r"sub"),
)

ADVICE = {
    "memory": Advice(
        rule="bound by memory bandwidth",
        reason="a plain pass over memory should use most of the bandwidth",
        algorithmic="Fuse it with its neighbours so that the data crosses memory once, for "
        "instance with torch.compile or a fused normalization or activation.",
        kernel="Check strides and dtype casts of {arguments}, and give a replay package to the "
        "kernel team if contiguous tensors are slow too.",
    ),
}

DETAILS = (
    Column("op_type", "Type", TEXT, meaning="what the operator does"),
    Column("is_baseline", "Baseline", FLAG, meaning="counts for the bandwidth baseline"),
)


def classify(rows: pl.DataFrame, compute_units: int | None) -> pl.DataFrame:
    """Type of each operator, and whether it counts for the bandwidth baseline."""
    return rows.with_columns(
        op_type=first_match(pl.col("name"), OP_TYPES, "other"),
        is_baseline=pl.col("name").is_in(BASELINE_OPS)
        & (pl.col("bytes") >= BASELINE_BYTES).fill_null(value=False),
    )


def measure(data: CategoryData) -> dict[str, JsonValue]:
    """The bandwidth that simple operators on large tensors reach, and the naive mean beside it."""
    simple = data.operations.filter(
        pl.col("name").is_in(BASELINE_OPS) & pl.col("tb_per_s").is_not_null()
    )
    large = simple.filter("is_baseline")
    time_us = float(large["kernel_time_us"].sum())
    moved = float((large["tb_per_s"] * large["kernel_time_us"]).sum())
    by_type = data.operations.group_by("op_type").agg(pl.col("kernel_time_us").sum() / 1000)
    return {
        "baseline_bandwidth_tbs": moved / time_us if time_us > 0 else None,
        "baseline_efficiency_percent": weighted_efficiency(large),
        "baseline_row_count": large.height,
        "mean_bandwidth_of_simple_ops_tbs": simple.select(pl.col("tb_per_s").mean()).item(),
        "peak_hbm_bw_tbs": data.peak_tb_per_s,
        "launch_bound_percent": impact.share_pct(
            float(data.operations.filter("is_launch_bound")["kernel_time_us"].sum()),
            float(data.operations["kernel_time_us"].sum()),
        ),
        "time_ms_by_type": dict(by_type.sort("op_type").iter_rows()),
    }


ANALYSIS = Analysis(
    title="Elementwise",
    icon=":material/exposure:",
    claim=Claim(
        op_categories=("elementwise", "multi_tensor_apply", "GroupQuant"),
        op_names=("*elementwise*", "*act_and_mul*", "*silu_and_mul*", "*gelu*", "*memcpy*"),
        order=80,
    ),
    checks=SHARED_CHECKS,
    advice=ADVICE,
    classify=classify,
    details=DETAILS,
    measure=measure,
    panels=(
        Panel("roofline", "Roofline"),
        Panel("savings", "Largest savings at the target"),
        Panel("scatter", "Bandwidth by size", x="bytes", y="tb_per_s", color="op_type"),
    ),
)
