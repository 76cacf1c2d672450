"""Mixture of experts: routing, expert products and their fused forms."""

import polars as pl
from pydantic import JsonValue

from jarvis.analyses.bandwidth import time_ms_by
from jarvis.analyses.base import SHARED_PANELS, Advice, Analysis, CategoryData, Claim
from jarvis.analyses.checks import SHARED_CHECKS
from jarvis.analyses.operations import HYPOTHESIS, message_column, parameter
from jarvis.core.expressions import first_of
from jarvis.schemas.columns import count, integer, text
from jarvis.schemas.names import C
from jarvis.text.messages import MessageTable

FUSED = r"(?:^|[^n])fused"
ROUTING = r"gate|rout|topk|sort|align|append|permute|dispatch|combine"
TYPES = {
    "MoE_fused": "fused",
    "MoE_unfused": "unfused",
    "MoE_comm_fwd": "routing",
    "MoE_comm_bwd": "routing",
}
"""Types from op categories; other operators are classified by name."""

GOOD_PCT = 50.0
BALANCE_PCT = 30.0
"""Efficiency in percent: expert products usually exceed GOOD_PCT; below BALANCE_PCT, suspect the
kernel as well as the balance."""

_EXPECTED = (GOOD_PCT, 80.0)
_COUNTERS = (
    "Log how many tokens each of the {experts} experts receives per step: a trace does not show "
    "the balance. Then {run_package} under the platform's "
    "hardware-counter profiler with even and with recorded routing."
)
_UNIFORM = (
    "{is_memory_bound:either The modeled bytes assume that tokens are spread evenly over the "
    "experts; an uneven step reads fewer weights than modeled.|}"
)
MESSAGES = MessageTable(
    "moe",
    {
        "experts": "{tokens} tokens, {per_token} of {experts} experts each",
        "experts.unknown": "the numbers of tokens and experts are not known",
        "hypothesis.balance": "Tokens may be spread unevenly over the experts: check the balance "
        "first.",
        "hypothesis.balance_or_kernel": "Tokens are spread unevenly over the experts, or the "
        "kernel does not suit the shape.",
    },
)

ADVICE = {
    "routing": Advice(
        rule="gating, sorting, permuting and dispatch of tokens",
        reason="routing moves little data in many steps",
        algorithmic="Use one fused routing operator instead of {name}{place}, and batch more "
        "tokens into {each}.",
        kernel="Give {package} to the kernel team to merge {kernel} with "
        "the other routing kernels.",
    ),
    "aux": Advice(
        rule="helpers of the expert products, such as quantization of their inputs",
        reason="it writes data that the expert products read again",
        algorithmic="Use a fused operator that does the work of {name} inside the expert products"
        "{place}.",
        kernel="Give {package} to the kernel team to merge {kernel} into the "
        "kernel that reads its output.",
    ),
    "unfused": Advice(
        rule="expert products in stages, each a separate operator",
        reason="each stage writes its result to memory, and the next one reads it ({experts_note})",
        algorithmic="Use a fused operator for all stages of the experts instead of {name}{place}, "
        "and batch more tokens into {each}.",
        kernel="Tune {kernel} for {experts_note}{reproduced}.",
        expected_pct=_EXPECTED,
        caveat=_UNIFORM,
        capture=_COUNTERS,
    ),
    "compute": Advice(
        rule="fused, bound by the compute peak",
        reason="the expert products run below the compute peak ({experts_note})",
        algorithmic="Check the balance of tokens over the experts{place}: an expert with many "
        "tokens delays the others in {each}.",
        kernel="Tune tile sizes of {kernel} for {experts_note}{reproduced}.",
        expected_pct=_EXPECTED,
        capture=_COUNTERS,
    ),
    "memory": Advice(
        rule="fused, bound by memory bandwidth",
        reason="whole weight matrices are read for few tokens per expert ({experts_note})",
        algorithmic="Batch more tokens into {each}{place}, so that each read of an expert's "
        "weights serves more of them.",
        kernel="Give {package} to the kernel team to raise the bandwidth at "
        "which {kernel} loads weights.",
        expected_pct=_EXPECTED,
        caveat=_UNIFORM,
        capture=_COUNTERS,
    ),
}

DETAILS = (
    text("moe_type", "Type", "routing, aux, fused, unfused or expert products"),
    count("tokens", "Tokens", "tokens in one call"),
    count("experts", "Experts", "experts with weights"),
    integer("per_token", "Experts per token", "experts that process each token"),
)


def classify(rows: pl.DataFrame, compute_units: int | None) -> pl.DataFrame:
    """Add type and extents of each operator; a trace does not show the balance of experts."""
    name = pl.col(C.name).str.to_lowercase()
    moe_type = pl.coalesce(
        pl.col(C.op_category).replace_strict(TYPES, default=None, return_dtype=pl.String),
        pl.when(name.str.contains(ROUTING)).then(pl.lit("routing")),
        pl.when(pl.col(C.op_category) == "MoE_aux").then(pl.lit("aux")),
        pl.when(name.str.contains(FUSED)).then(pl.lit("fused")),
        pl.lit("expert"),
    )
    typed = rows.with_columns(
        moe_type=moe_type,
        tokens=parameter("M"),
        experts=parameter("E"),
        per_token=parameter("topk"),
    )
    is_known = pl.all_horizontal(pl.col("tokens", "per_token", "experts").is_not_null())
    is_product = pl.col("moe_type").is_in(["fused", "unfused", "expert"])
    return typed.with_columns(
        pattern=pl.when(pl.col("moe_type").is_in(["routing", "aux", "unfused"])).then("moe_type"),
        is_memory_bound=(pl.col(C.bound) == "memory").fill_null(value=False),
        experts_note=message_column(
            MESSAGES,
            first_of({"experts": is_known}, "experts.unknown"),
            "tokens",
            "per_token",
            "experts",
        ),
        **{HYPOTHESIS: pl.when(is_product).then(_hypothesis())},
    )


def _hypothesis() -> pl.Expr:
    """Return the likely cause of a low efficiency, as the only message of a list."""
    efficiency = pl.col(C.pct_roofline)
    key = first_of(
        {
            "hypothesis.balance_or_kernel": efficiency < BALANCE_PCT,
            "hypothesis.balance": efficiency < GOOD_PCT,
        }
    )
    return pl.when(key.is_not_null()).then(pl.concat_list(message_column(MESSAGES, key)))


def measure(data: CategoryData) -> dict[str, JsonValue]:
    """Return rows and GPU time by type."""
    counts = data.operations["moe_type"].value_counts().sort("moe_type")
    return {
        "rows_by_type": dict(counts.iter_rows()),
        "time_ms_by_type": time_ms_by(data.operations, "moe_type"),
    }


ANALYSIS = Analysis(
    title="MoE",
    icon=":material/account_tree:",
    claim=Claim(
        op_categories=("MoE_fused", "MoE_unfused", "MoE_aux", "MoE_comm_fwd", "MoE_comm_bwd"),
        blocks=("moe_gemm", "moe_route"),
        op_names=("*moe*", "*fmoe*"),
        order=10,
    ),
    checks=SHARED_CHECKS,
    advice=ADVICE,
    classify=classify,
    details=DETAILS,
    measure=measure,
    panels=SHARED_PANELS,
)
