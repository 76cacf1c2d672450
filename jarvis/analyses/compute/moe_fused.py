"""Mixture of experts: routing, expert products and their fused forms."""

import polars as pl
from pydantic import JsonValue

from jarvis.analyses.base import Advice, Analysis, CategoryData, Claim, Panel
from jarvis.analyses.checks import SHARED_CHECKS
from jarvis.schemas import TEXT, Column

FUSED = r"(?:^|[^n])fused"
ROUTING = r"gate|rout|topk|sort|align|append|permute|dispatch|combine|aux"

ADVICE = {
    "routing": Advice(
        rule="gating, sorting and dispatch of tokens",
        reason="routing moves little data in many steps",
        algorithmic="Use a fused routing operator, and batch more tokens per step.",
        kernel="Give a replay package of {arguments} to the kernel team.",
    ),
    "compute": Advice(
        rule="bound by the compute peak",
        reason="the expert products stay below what their arithmetic allows",
        algorithmic="Check the balance of tokens over experts, and use a fused operator where the "
        "experts run as separate products.",
        kernel="Tune tile sizes for the tokens per expert of {arguments}; a replay package "
        "reproduces it.",
    ),
    "memory": Advice(
        rule="bound by memory bandwidth",
        reason="few tokens per expert read whole weight matrices; the modelled bytes assume that "
        "tokens spread evenly over experts",
        algorithmic="Batch more tokens per step so that each expert's weights are read for more of "
        "them.",
        kernel="Give a replay package of {arguments} to the kernel team to raise the bandwidth "
        "that weight loading reaches.",
    ),
}

DETAILS = (Column("moe_type", "Type", TEXT, meaning="routing, expert products or fused"),)


def classify(rows: pl.DataFrame, compute_units: int | None) -> pl.DataFrame:
    """Type of each operator; the balance of experts cannot be seen in a trace."""
    text = pl.concat_str("name", "op_category", separator=" ").str.to_lowercase()
    is_routing = text.str.contains(ROUTING)
    return rows.with_columns(
        moe_type=pl.when(is_routing)
        .then(pl.lit("routing"))
        .when(text.str.contains(FUSED))
        .then(pl.lit("fused"))
        .otherwise(pl.lit("expert")),
        pattern=pl.when(is_routing).then(pl.lit("routing")),
    )


def measure(data: CategoryData) -> dict[str, JsonValue]:
    """GPU time by type."""
    by_type = data.operations.group_by("moe_type").agg(pl.col("kernel_time_us").sum() / 1000)
    return {"time_ms_by_type": dict(by_type.sort("moe_type").iter_rows())}


ANALYSIS = Analysis(
    title="MoE",
    icon=":material/account_tree:",
    claim=Claim(
        op_categories=("MoE_fused", "MoE_unfused", "MoE_aux", "MoE_comm_fwd", "MoE_comm_bwd"),
        op_names=("*moe*",),
        order=10,
    ),
    checks=SHARED_CHECKS,
    advice=ADVICE,
    classify=classify,
    details=DETAILS,
    measure=measure,
    panels=(Panel("roofline", "Roofline"), Panel("savings", "Largest savings at the target")),
)
