"""Attention: fused and paged attention, forward and backward, and attention for inference."""

from dataclasses import replace

import polars as pl
from pydantic import JsonValue

from jarvis import impact
from jarvis.analyses import kernel_names
from jarvis.analyses.attention_copies import contiguous_copies
from jarvis.analyses.attention_shapes import (
    BANDS,
    CACHE_KERNELS,
    DECODE_SHARE,
    FORWARD_KERNELS,
    LARGE_HEAD_DIM,
    PAGED_KERNELS,
    PREFILL_SHARE,
    STATE_SPACE,
    Band,
    cache_writes,
    classify,
    profile_type,
)
from jarvis.analyses.base import SHARED_PANELS, Advice, Analysis, CategoryData, Claim
from jarvis.analyses.checks import SHARED_CHECKS
from jarvis.analyses.unfused_attention import TABLES as UNFUSED_TABLES
from jarvis.analyses.unfused_attention import unfused_attention
from jarvis.schemas import NUMBER, Column
from jarvis.schemas.columns import count, flag, integer, text
from jarvis.schemas.names import C


def _of_length(band: Band) -> Advice:
    if not band.is_short:
        return replace(LONG, rule=band.rule, expected_pct=band.expected_pct)
    return Advice(
        rule=band.rule,
        reason="fused attention loses efficiency on short sequences, here of "
        "{n_q} {n_q:either query|queries}{head_note}",
        algorithmic="{batch_advice:message}{pack_advice:message}",
        kernel="Compare {kernel} on another GPU at N={n_q} before tuning, and give "
        "{package} to the kernel team.",
        expected_pct=band.expected_pct,
        expected_of="compute peak",
    )


def _paged(rule: str, reason: str, expected_pct: tuple[float, float]) -> Advice:
    return Advice(
        rule=rule,
        reason=f"{reason}{{head_note}}",
        algorithmic="{mixing:message}",
        kernel="Give {package} to the kernel team to tune block sizes and "
        "the key split of {kernel}.",
        expected_pct=expected_pct,
        expected_of="compute peak",
        capture="{measured:message}",
    )


LONG = Advice(
    rule="bound by the compute peak, length not known",
    reason="the attention kernel runs below the compute peak{head_note}",
    algorithmic="{is_full:either If the attention is causal, pass `is_causal=True` (flash-attn: "
    "`causal=True`), which halves its arithmetic. |}Check that the fastest "
    "attention backend supports causal={causal}, head dimension {head_dim} and the "
    "layout{mask_note:message}.",
    kernel="Give {package} to the kernel team to compare attention backends "
    "and tile sizes with {kernel}.",
    expected_of="compute peak",
)

ADVICE = {
    STATE_SPACE: Advice(
        rule="causal convolutions, scans and linear attention, by op category or name",
        reason="such a layer updates a state in chunks of the sequence, with little arithmetic per "
        "chunk",
        algorithmic="Check that convolution and scan run in one fused operator{place}, and batch "
        "more sequences or longer chunks into {each} of {name}.",
        kernel="Give {package} to the kernel team to tune {kernel}, its chunk length first.",
    ),
    "prefill heavy": _paged(
        f"paged, more than {PREFILL_SHARE:.0%} of the tokens in the context phase",
        "a step of mostly prefill has enough arithmetic for the matrix units",
        (30.0, 50.0),
    ),
    "decode heavy": _paged(
        f"paged, less than {DECODE_SHARE:.0%} of the tokens in the context phase",
        "each generated token reads the whole cache of its request",
        (5.0, 15.0),
    ),
    "mixed prefill and decode": _paged(
        "paged, in between", "long and single-token requests share a step", (10.0, 30.0)
    ),
    "backward": Advice(
        rule="the backward pass",
        reason="the backward pass recomputes the scores and writes three gradients{head_note}",
        algorithmic="If memory allows, checkpoint less around attention, so that its forward pass "
        "is not repeated.",
        kernel="Give {package} to the kernel team to tune {kernel}.",
        caveat="A backward pass usually reaches less than its forward pass.",
        needs={"algorithmic": ("has_checkpointing",)},
    ),
    **{band.pattern: _of_length(band) for band in BANDS},
    "compute": LONG,
    "memory": Advice(
        rule="bound by memory bandwidth, as decoding is",
        reason="keys and values are read for only a few queries, and bandwidth is left "
        "unused{head_note}",
        algorithmic="Share keys and values among more than {n_q} {n_q:either query|queries}: "
        "grouped heads ({heads_q} query heads read {heads_kv} of keys), larger batches, or a "
        "quantized cache.",
        kernel="Give {package} to the kernel team to split "
        "{n_kv} {n_kv:either key|keys} over more of the GPU.",
    ),
}

DETAILS = (
    count(C.n_q, "Queries", "queries per sequence"),
    count(C.n_kv, "Keys", "keys and values per sequence"),
    count("heads_q", "Heads", "query heads"),
    count("heads_kv", "KV heads", "key and value heads"),
    integer("gqa_ratio", "Heads per KV head", "query heads that share one KV head"),
    count(C.head_dim, "Head dim", "length of a query vector"),
    text(C.attention_pattern, "Heads share KV", "GQA where heads share keys"),
    flag(C.is_flash, "Flash", "the operator or its kernel is flash attention"),
    flag("is_paged", "Paged", "the operator or its kernel reads a paged cache"),
    Column(C.ctx_ratio, "Prefill share", NUMBER, meaning="share of tokens in the context phase"),
    text("pattern", "Pattern", "notable property of the shape"),
)


def measure(data: CategoryData) -> dict[str, JsonValue]:
    """Return counts of rows with fused and with paged attention, and the paged kernels and
    workload."""
    rows = data.operations
    flash, paged = int(rows[C.is_flash].sum()), int(rows["is_paged"].sum())
    return {
        "flash_attention_count": flash,
        "paged_attention_count": paged,
        "has_perf_model_count": int(rows[C.has_perf_model].sum()),
        "flash_attention_detected": flash > 0,
        "paged_attention_detected": paged > 0,
        "large_head_dim_count": rows.filter(pl.col(C.head_dim) > LARGE_HEAD_DIM).height,
        "grouped_heads_count": rows.filter(pl.col(C.attention_pattern) == "GQA").height,
        **_paged_metrics(rows.filter("is_paged")),
    }


def _paged_metrics(rows: pl.DataFrame) -> dict[str, JsonValue]:
    if rows.is_empty():
        return {}
    time_us = float(rows[C.kernel_time_us].sum())

    def share(pattern: str) -> float:
        part_us = rows.select(kernel_names.time_us(pattern).sum()).item()
        return impact.share_pct(part_us, time_us)

    metrics: dict[str, JsonValue] = {
        "kernel_breakdown_avg": {
            "avg_reshape_cache_percent": share(CACHE_KERNELS),
            "avg_fwd_kernel_percent": share(FORWARD_KERNELS),
            "avg_paged_attention_percent": share(PAGED_KERNELS),
        }
    }
    known = rows.drop_nulls(C.ctx_ratio)
    if known.height:
        context = int((known["ctx_tokens"] * known[C.operation_count]).sum())
        generated = int((known["gen_tokens"] * known[C.operation_count]).sum())
        ratio = context / (context + generated)
        metrics["workload_profile"] = {
            "total_ctx_tokens": context,
            "total_gen_tokens": generated,
            "ctx_ratio": ratio,
            "profile_type": profile_type(ratio),
        }
    return metrics


ANALYSIS = Analysis(
    title="Attention",
    icon=":material/visibility:",
    claim=Claim(
        op_categories=("SDPA_fwd", "SDPA_bwd", "InferenceAttention", "SSM_fwd", "SSM_bwd"),
        blocks=("attention",),
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
            "*causal_conv1d*",
            "*selective_scan*",
            "*mamba*",
            "*delta_rule*",
        ),
        order=15,
    ),
    checks=(*SHARED_CHECKS, contiguous_copies, cache_writes),
    specific=(unfused_attention,),
    needs=("operations", *UNFUSED_TABLES),
    also_in=UNFUSED_TABLES[:1],
    advice=ADVICE,
    classify=classify,
    details=DETAILS,
    measure=measure,
    panels=SHARED_PANELS,
)
