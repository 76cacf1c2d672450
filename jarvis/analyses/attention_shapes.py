"""Classification of attention calls by phase, length and heads, and the cost of cache writes."""

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from jarvis import impact
from jarvis.analyses import kernel_names
from jarvis.analyses.advice import values_of
from jarvis.analyses.base import CategoryData
from jarvis.analyses.operations import (
    MIN_COMPUTE_PCT,
    OperationGroup,
    groups,
    message_column,
    parameter,
)
from jarvis.core.expressions import first_of
from jarvis.core.literals import parse_literal
from jarvis.findings import Finding, Priority, texts_of
from jarvis.schemas.names import C
from jarvis.text.messages import MessageTable

FLASH_NAMES = r"flash_?(?:fwd|bwd|attn|attention|infer|mla)|flash::|fmha|attn_fwd|attn_bwd"
"""Names of fused attention; ``reshape_and_cache_flash`` writes a cache."""

PAGED_NAMES = r"unified_attention|paged_attention|vllm"

CACHE_KERNELS = r"reshape_and_cache|store_kv_?cache"
FORWARD_KERNELS = r"_fwd_kernel|fwd_kernel"
PAGED_KERNELS = r"paged_attention|unified_attention"

STATE_SPACE = "state space"
STATE_SPACE_NAMES = (
    r"causal_conv1d|selective_scan|chunk_(?:scan|state|gated)|mamba|delta_rule|gated_delta"
    r"|lightning_attn|linear_attention|(?:^|[^a-z])(?:gdn|ssd)_"
)
"""Names of causal convolutions, scans and linear attention, which keep a state instead of a
cache."""

USUAL_CACHE_PCT = 5.0
HIGH_CACHE_PCT = 10.0
"""Report cache writes above this share of a paged operator's time; 3 to 5% is usual."""

PREFILL_SHARE = 0.8
DECODE_SHARE = 0.2
"""A step is decode below this share of context-phase tokens, and prefill above PREFILL_SHARE."""

LARGE_HEAD_DIM = 128
"""Fewer kernels are tuned for larger head dimensions."""

BLOCK_QUERIES = 128
"""Queries that a block of a fused attention kernel usually processes, for one head."""

MASK_ARGUMENT = 3
"""The position of the mask in PyTorch's attention operators; other types have a number there."""

DECODE_RATIO = 8
"""Ratio of keys to queries from which a call mostly reads its cache instead of computing."""


@dataclass(frozen=True, slots=True)
class Band:
    """Lengths ``at_least <= N < below`` and their expected share of the compute peak."""

    at_least: int
    below: int | None
    expected_pct: tuple[float, float]

    @property
    def pattern(self) -> str:
        """Return ``N 512-1023``, ``N under 512`` or ``N from 4096``."""
        if self.below is None:
            return f"N from {self.at_least}"
        return f"N {self.at_least}-{self.below - 1}" if self.at_least else f"N under {self.below}"

    @property
    def rule(self) -> str:
        """Return when the band applies, for the documentation."""
        return f"{self.pattern}, the longer of queries and keys per sequence"

    @property
    def is_short(self) -> bool:
        """Return whether the sequence is so short that it limits efficiency."""
        return self.below is not None and self.below <= SHORT_SEQUENCE


SHORT_SEQUENCE = 1024
"""Below this length a fused attention kernel cannot hide its memory traffic."""

BANDS = (
    Band(0, 512, (5.0, 15.0)),
    Band(512, SHORT_SEQUENCE, (8.0, 15.0)),
    Band(SHORT_SEQUENCE, 2048, (20.0, 40.0)),
    Band(2048, 4096, (40.0, 60.0)),
    Band(4096, None, (50.0, 70.0)),
)


_SHARED_HEADS = (
    "; {gqa_ratio} query heads share each of {heads_kv} {heads_kv:either head|heads} of keys and "
    "values"
)
_LONG_HEADS = (
    f"; head dimension {{head_dim}} is above {LARGE_HEAD_DIM}, for which fewer kernels are tuned"
)

MESSAGES = MessageTable(
    "attention",
    {
        "heads.usual": "",
        "heads.shared": _SHARED_HEADS,
        "heads.long": _LONG_HEADS,
        "heads.shared_and_long": f"{_SHARED_HEADS}{_LONG_HEADS}",
        "batch": "Batch more sequences than {b}: with {b} {b:either sequence|sequences} of {n_q} "
        f"{{n_q:either query|queries}} and {{heads_q}} heads, blocks of {BLOCK_QUERIES} queries "
        "are {blocks:count block} for {compute_units} compute units. ",
        "pack": "If the mask excludes padding, pack short sequences together, so that {each} has "
        "more work than {n_q} {n_q:either query|queries} per sequence.",
        "mask": ", and that the mask does not force a slower one than {kernel}",
        "mixed": "Check how the engine mixes prefill and decode: {workload_note}. Larger prefill "
        "chunks, or steps of only one kind, change the workload of {kernel}.",
        "only_decode": "The steps only decode: {workload_note}. More requests fill the GPU, and "
        "fewer bytes per key, such as an 8-bit cache if accuracy allows, are less to read for "
        "{kernel}.",
        "lengths": "Record the step annotations of the engine and the lengths of the requests: "
        "they determine how much work {kernel} has in each step.",
        "counters": "A trace does not show why {kernel} is slow: run the model under the "
        "platform's hardware-counter profiler and compare the bytes that it actually moves with "
        "the modeled {moved_bytes} per call.",
        "phases": "{ctx_tokens} of {tokens} tokens are in the context phase",
        "phases.unknown": "the trace does not record the phase of the tokens",
        "cache.title": "Cache writes: {name}",
        "cache.issue": "Storing new keys and values takes {cache_ms} ({operator_pct}) of the "
        "{time_ms} of {name}; up to {usual_pct:.0f}% is usual.",
        "cache.algorithmic": "Write the cache in the kernel that produces the keys and values of "
        "{arguments} (rotary embedding or projection), and check whether the cache dtype requires "
        "a conversion.",
        "cache.kernel": "Report the cache kernel of the {calls} to the kernel team: it only moves "
        "data and should run as fast as a copy.",
        "cache.verify": "Record the trace again: the cache writes of {name} must take less than "
        "{cache_ms}.",
        "cache.capture": "Measure the cache kernel{on_package} with the platform's "
        "hardware-counter profiler and compare the bytes that it moves with the size of the new "
        "keys and values.",
    },
)


def classify(rows: pl.DataFrame, compute_units: int | None) -> pl.DataFrame:
    """Add shape, phase and pattern to attention calls."""
    names = pl.concat_str(C.name, pl.col(C.main_kernel).fill_null(""), separator=" ")
    lower = names.str.to_lowercase()
    shaped = rows.with_columns(
        b=parameter("B"),
        **{
            C.n_q: parameter("N_Q"),
            C.n_kv: parameter("N_KV"),
            "heads_q": parameter("H_Q"),
            "heads_kv": parameter("H_KV"),
            C.head_dim: parameter("d_h_qk"),
            "causal": pl.col(C.params).str.json_path_match("$.causal"),
            C.ctx_tokens: parameter("c_sq"),
            C.gen_tokens: parameter("g_sq"),
            C.is_flash: lower.str.contains(FLASH_NAMES),
        },
        is_paged=lower.str.contains(PAGED_NAMES),
    )
    tokens = pl.col(C.ctx_tokens) + pl.col(C.gen_tokens)
    # Requests of a step differ in length, so batch size and mask say nothing about each of them.
    of_step = pl.col(C.ctx_tokens).is_not_null()
    derived = shaped.with_columns(
        pl.when(~of_step).then(pl.col("b", "causal")),
        gqa_ratio=pl.when(pl.col("heads_kv") > 0).then(pl.col("heads_q") // pl.col("heads_kv")),
        tokens=tokens,
        **{C.ctx_ratio: pl.when(tokens > 0).then(pl.col(C.ctx_tokens) / tokens)},
    )
    blocks = pl.col("b") * pl.col("heads_q") * -(-pl.col(C.n_q) // BLOCK_QUERIES)
    has_mask = pl.Series([_has_mask(dims) for dims in rows[C.input_dims]], dtype=pl.Boolean)
    return (
        derived.with_columns(
            blocks=blocks,
            **{C.compute_units: pl.lit(compute_units, dtype=pl.Int64)},
            batch_advice=_if(blocks < (compute_units or 0), "batch"),
            pack_advice=_if(has_mask, "pack"),
            mask_note=_if(has_mask, "mask"),
        )
        .with_columns(
            first_of(
                {
                    "GQA": pl.col("heads_kv") < pl.col("heads_q"),
                    "MHA": pl.col("heads_q").is_not_null(),
                }
            ).alias(C.attention_pattern),
            pattern=pl.when(
                pl.col(C.op_category).str.starts_with("SSM") | lower.str.contains(STATE_SPACE_NAMES)
            )
            .then(pl.lit(STATE_SPACE))
            .otherwise(_pattern()),
            is_full=((pl.col("causal") == "false") & (pl.col(C.n_q) == pl.col(C.n_kv))).fill_null(
                value=False
            ),
        )
        .with_columns(
            head_note=message_column(MESSAGES, _heads(), "gqa_ratio", "heads_kv", C.head_dim),
            mixing=first_of(
                {MESSAGES.id("only_decode"): pl.col(C.ctx_tokens) == 0}, MESSAGES.id("mixed")
            ),
            measured=first_of(
                {MESSAGES.id("lengths"): pl.col("tokens").is_null()}, MESSAGES.id("counters")
            ),
            workload_note=message_column(
                MESSAGES,
                first_of({"phases.unknown": pl.col("tokens").is_null()}, "phases"),
                C.ctx_tokens,
                "tokens",
            ),
        )
    )


def _if(holds: pl.Expr | pl.Series, key: str) -> pl.Expr:
    """Return the id of a message where a condition holds, an empty one elsewhere."""
    return first_of({MESSAGES.id(key): holds}, "")


def _has_mask(input_dims: str | None) -> bool:
    """Return whether an argument after query, key and value is a tensor: the mask."""
    dims = parse_literal(input_dims)
    return len(dims) > MASK_ARGUMENT and len(dims[MASK_ARGUMENT]) > 1


def profile_type(ctx_ratio: float) -> str:
    """Return the workload type for a share of context-phase tokens."""
    if ctx_ratio > PREFILL_SHARE:
        return "prefill_heavy"
    return "decode_heavy" if ctx_ratio < DECODE_SHARE else "mixed"


def _pattern() -> pl.Expr:
    share = pl.col(C.ctx_ratio)
    longest = pl.max_horizontal(C.n_q, C.n_kv)
    return first_of(
        {
            "prefill heavy": share > PREFILL_SHARE,
            "decode heavy": share < DECODE_SHARE,
            "mixed prefill and decode": share.is_not_null(),
            "backward": pl.col(C.op_category).str.ends_with("_bwd"),
            None: pl.col(C.n_q) * DECODE_RATIO <= pl.col(C.n_kv),
            **{band.pattern: longest >= band.at_least for band in reversed(BANDS)},
        }
    )


def _heads() -> pl.Expr:
    """Return the key of the note on heads: shared key/value heads or a large head dimension."""
    is_shared, is_long = pl.col("gqa_ratio") > 1, pl.col(C.head_dim) > LARGE_HEAD_DIM
    return first_of(
        {
            "heads.shared_and_long": is_shared & is_long,
            "heads.shared": is_shared,
            "heads.long": is_long,
        },
        "heads.usual",
    )


def cache_writes(data: CategoryData) -> Iterator[Finding]:
    """Paged attention that spends much time on cache writes.

    Symptom: kernels that store new keys and values take more than the usual few percent.
    Rule: kernels named like CACHE_KERNELS take too much of a paged operator's time.
    Threshold: {HIGH_CACHE_PCT}% of the operator's time, of which up to {USUAL_CACHE_PCT}% is usual;
    at least {MIN_COMPUTE_PCT}% of compute.
    """
    rows = data.operations.with_columns(cache_us=kernel_names.time_us(CACHE_KERNELS))
    for group in groups(rows, pl.col("is_paged")):
        cache_ms = float(group.rows["cache_us"].sum()) / 1000
        compute_pct = impact.share_pct(cache_ms, data.totals.compute_time_ms)
        share = impact.share_pct(cache_ms, group.time_ms)
        if share > HIGH_CACHE_PCT and compute_pct >= MIN_COMPUTE_PCT:
            yield _cache_finding(data, group, cache_ms, share)


def _cache_finding(
    data: CategoryData, group: OperationGroup, cache_ms: float, share: float
) -> Finding:
    usual_ms = group.time_ms * USUAL_CACHE_PCT / impact.FULL_PCT
    compute_pct = impact.share_pct(cache_ms, data.totals.compute_time_ms)
    is_relevant = compute_pct > impact.RELEVANT_COMPUTE_PCT
    priority = Priority.MEDIUM if is_relevant else Priority.LOW
    values = values_of(group) | {
        "cache_ms": cache_ms,
        "operator_pct": share,
        "time_ms": group.time_ms,
        "usual_pct": USUAL_CACHE_PCT,
    }
    return Finding(
        check="cache_writes",
        category=data.key,
        **texts_of(MESSAGES, values, prefix="cache"),
        operations=group.operations,
        evidence={
            "cache_write_ms": cache_ms,
            "operator_pct": share,
            "gpu_time_ms": group.time_ms,
            "calls": group.calls,
        },
        priority_local=priority,
        priority=priority,
        impact=impact.bounded_impact(cache_ms, cache_ms - usual_ms, **data.bases),
    )
