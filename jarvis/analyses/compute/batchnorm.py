"""Normalization: batch, layer, group, instance and RMS norm, forward and backward."""

import polars as pl
from pydantic import JsonValue

from jarvis.analyses.base import Advice, Analysis, CategoryData, Claim, Panel
from jarvis.analyses.checks import SHARED_CHECKS
from jarvis.analyses.name_patterns import first_match
from jarvis.schemas import TEXT, Column

NORM_TYPES = (
    ("batch_norm", r"batch_?norm"),
    ("layer_norm", r"layer_?norm|fused_ln"),
    ("group_norm", r"group_?norm"),
    ("instance_norm", r"instance_?norm"),
    ("rms_norm", r"rms_?norm"),
)

ADVICE = {
    "batch_norm": Advice(
        rule="batch normalization",
        reason="two passes over the activation should use most of the bandwidth",
        algorithmic="Convert the model to channels_last, fold the normalization into the "
        "convolution for inference, or use a layer or group norm if the model allows.",
        kernel="Compare with the bandwidth that large elementwise operators reach in this trace: "
        "if that is high, the kernel is the issue; a replay package of {arguments} shows it.",
    ),
    "memory": Advice(
        rule="bound by memory bandwidth",
        reason="a normalization is a pass or two over memory and should use most of the bandwidth",
        algorithmic="Fuse it with the residual addition and the cast around it, or let "
        "torch.compile do so.",
        kernel="Give a replay package of {arguments} to the kernel team: long rows and few rows "
        "need different splits of the work.",
    ),
}

DETAILS = (Column("norm_type", "Type", TEXT, meaning="kind of normalization"),)


def classify(rows: pl.DataFrame, compute_units: int | None) -> pl.DataFrame:
    """Type of each normalization."""
    norm_type = first_match(pl.col("name"), NORM_TYPES, "other_norm")
    return rows.with_columns(norm_type=norm_type).with_columns(
        pattern=pl.when(pl.col("norm_type") == "batch_norm").then(pl.lit("batch_norm"))
    )


def measure(data: CategoryData) -> dict[str, JsonValue]:
    """GPU time by type."""
    by_type = data.operations.group_by("norm_type").agg(pl.col("kernel_time_us").sum() / 1000)
    return {
        "time_ms_by_type": dict(by_type.sort("norm_type").iter_rows()),
        "peak_hbm_bw_tbs": data.peak_tb_per_s,
    }


ANALYSIS = Analysis(
    title="Normalization",
    icon=":material/equalizer:",
    claim=Claim(
        op_categories=("NORM_fwd", "NORM_bwd", "RMSNorm"),
        op_names=(
            "*batch_norm*",
            "*batchnorm*",
            "*layer_norm*",
            "*layernorm*",
            "*group_norm*",
            "*groupnorm*",
            "*instance_norm*",
            "*rms_norm*",
            "*rmsnorm*",
        ),
        order=20,
    ),
    checks=SHARED_CHECKS,
    advice=ADVICE,
    classify=classify,
    details=DETAILS,
    measure=measure,
    panels=(Panel("roofline", "Roofline"), Panel("savings", "Largest savings at the target")),
)
