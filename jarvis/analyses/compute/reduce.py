"""Reduce: sums, means, extrema and softmax, bound by memory bandwidth."""

import polars as pl
from pydantic import JsonValue

from jarvis.analyses.base import Advice, Analysis, CategoryData, Claim, Panel
from jarvis.analyses.checks import SHARED_CHECKS
from jarvis.analyses.name_patterns import first_match
from jarvis.schemas import TEXT, Column

REDUCE_TYPES = ("softmax", "sum", "mean", "max", "min")

ADVICE = {
    "softmax": Advice(
        rule="the operator is a softmax",
        reason="a softmax of its own reads and writes the whole matrix of scores",
        algorithmic="Where it belongs to attention, use a fused attention operator "
        "(`scaled_dot_product_attention`), which never writes the scores.",
        kernel="Little to gain in the kernel alone; give a replay package of {arguments} to the "
        "kernel team.",
        expected_pct=(50.0, 70.0),
    ),
    "memory": Advice(
        rule="bound by memory bandwidth",
        reason="a reduction reads its input once and should use most of the bandwidth",
        algorithmic="Fuse it with the elementwise work before and after it, for instance with "
        "torch.compile or a fused normalization.",
        kernel="Give a replay package of {arguments} to the kernel team: reductions over short or "
        "strided axes often need another split of the work.",
        expected_pct=(50.0, 70.0),
    ),
}

DETAILS = (Column("reduce_type", "Type", TEXT, meaning="what is reduced to"),)


def classify(rows: pl.DataFrame, compute_units: int | None) -> pl.DataFrame:
    """Type of each reduction."""
    patterns = [(kind, kind) for kind in REDUCE_TYPES]
    reduce_type = first_match(pl.col("name"), patterns, "other")
    return rows.with_columns(reduce_type=reduce_type).with_columns(
        pattern=pl.when(pl.col("reduce_type") == "softmax").then(pl.lit("softmax"))
    )


def measure(data: CategoryData) -> dict[str, JsonValue]:
    """How many rows are softmaxes."""
    return {
        "softmax_count": data.operations.filter(pl.col("reduce_type") == "softmax").height,
        "peak_hbm_bw_tbs": data.peak_tb_per_s,
    }


ANALYSIS = Analysis(
    title="Reduce",
    icon=":material/compress:",
    claim=Claim(op_categories=("reduce",), op_names=("*softmax*",), order=40),
    checks=SHARED_CHECKS,
    advice=ADVICE,
    classify=classify,
    details=DETAILS,
    measure=measure,
    panels=(Panel("roofline", "Roofline"), Panel("savings", "Largest savings at the target")),
)
