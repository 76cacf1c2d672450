"""Attention: fused and paged attention, forward and backward, and attention for inference."""

import polars as pl
from pydantic import JsonValue

from jarvis.analyses.base import Advice, Analysis, CategoryData, Claim, Panel
from jarvis.analyses.checks import SHARED_CHECKS
from jarvis.analyses.operations import parameter
from jarvis.schemas import FLAG, INTEGER, TEXT, Column

SHORT_SEQUENCE = 1024
"""Below this many queries a fused attention kernel cannot hide its memory traffic."""

FLASH_NAMES = r"flash|fmha|attn_fwd|attn_bwd"
PAGED_NAMES = r"unified_attention|paged_attention|vllm"

ADVICE = {
    "short sequence": Advice(
        rule=f"fewer than {SHORT_SEQUENCE} queries per sequence",
        reason="fused attention loses efficiency on short sequences, here of {n_q} queries",
        algorithmic="Batch more sequences or pack short ones together, so that each launch has "
        "more queries.",
        kernel="Compare with another GPU at the same length before tuning, and give a replay "
        "package of {arguments} to the kernel team.",
        expected_pct=(8.0, 15.0),
    ),
    "compute": Advice(
        rule="bound by the compute peak, long sequence",
        reason="the attention kernel stays below what its arithmetic allows",
        algorithmic="Check that the causal flag, head dimension and layout are those that the "
        "fastest attention backend takes, and that no mask forces a slower one.",
        kernel="Give a replay package of {arguments} to the kernel team to compare attention "
        "backends and tile sizes.",
    ),
    "memory": Advice(
        rule="bound by memory bandwidth, as decoding is",
        reason="keys and values are read once per few queries, and bandwidth is left unused",
        algorithmic="Share keys and values between more queries: grouped heads, larger batches, or "
        "a quantized cache.",
        kernel="Give a replay package of {arguments} to the kernel team to split the keys over "
        "more of the GPU.",
    ),
}

DETAILS = (
    Column("n_q", "Queries", INTEGER, format=",d", meaning="queries per sequence"),
    Column("n_kv", "Keys", INTEGER, format=",d", meaning="keys and values per sequence"),
    Column("heads_q", "Heads", INTEGER, format=",d", meaning="query heads"),
    Column("heads_kv", "KV heads", INTEGER, format=",d", meaning="key and value heads"),
    Column("head_dim", "Head dim", INTEGER, format=",d", meaning="length of a query vector"),
    Column("attention_pattern", "Heads share KV", TEXT, meaning="GQA where heads share keys"),
    Column("is_flash", "Fused", FLAG, meaning="the operator or its kernel is a fused attention"),
    Column("is_paged", "Paged", FLAG, meaning="the operator or its kernel reads a paged cache"),
    Column("pattern", "Pattern", TEXT, meaning="what is special about the shape"),
)


def classify(rows: pl.DataFrame, compute_units: int | None) -> pl.DataFrame:
    """Shape and kind of each attention call."""
    names = pl.concat_str("name", pl.col("main_kernel").fill_null(""), separator=" ")
    lower = names.str.to_lowercase()
    return rows.with_columns(
        n_q=parameter("N_Q"),
        n_kv=parameter("N_KV"),
        heads_q=parameter("H_Q"),
        heads_kv=parameter("H_KV"),
        head_dim=parameter("d_h_qk"),
        is_flash=lower.str.contains(FLASH_NAMES),
        is_paged=lower.str.contains(PAGED_NAMES),
    ).with_columns(
        attention_pattern=pl.when(pl.col("heads_kv") < pl.col("heads_q"))
        .then(pl.lit("GQA"))
        .when(pl.col("heads_q").is_not_null())
        .then(pl.lit("MHA")),
        pattern=pl.when((pl.col("n_q") < SHORT_SEQUENCE) & (pl.col("n_kv") < SHORT_SEQUENCE)).then(
            pl.lit("short sequence")
        ),
    )


def measure(data: CategoryData) -> dict[str, JsonValue]:
    """How many rows use fused and paged attention."""
    rows = data.operations
    flash, paged = int(rows["is_flash"].sum()), int(rows["is_paged"].sum())
    return {
        "flash_attention_count": flash,
        "paged_attention_count": paged,
        "has_perf_model_count": int(rows["has_perf_model"].sum()),
        "flash_attention_detected": flash > 0,
        "paged_attention_detected": paged > 0,
    }


ANALYSIS = Analysis(
    title="Attention",
    icon=":material/visibility:",
    claim=Claim(
        op_categories=("SDPA_fwd", "SDPA_bwd", "InferenceAttention"),
        op_names=(
            "*attention*",
            "*fmha*",
            "*flash_attn*",
            "*flashattn*",
            "*attn_fwd*",
            "*attn_bwd*",
            "*mha_fwd*",
            "*mha_bwd*",
            "*sdpa*",
        ),
        order=60,
    ),
    checks=SHARED_CHECKS,
    advice=ADVICE,
    classify=classify,
    details=DETAILS,
    measure=measure,
    panels=(Panel("roofline", "Roofline"), Panel("savings", "Largest savings at the target")),
)
