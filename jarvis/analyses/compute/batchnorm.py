"""Normalization: batch, layer, group, instance and RMS norm, forward and backward."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

import polars as pl
from pydantic import JsonValue

from jarvis import impact
from jarvis.analyses import bandwidth
from jarvis.analyses.access import CHANNELS_FIRST, CHANNELS_LAST, channel_order, tensor
from jarvis.analyses.advice import values_of
from jarvis.analyses.bandwidth import baseline_metrics, slow_kernel, time_ms_by
from jarvis.analyses.base import SHARED_PANELS, Advice, Analysis, CategoryData, Claim
from jarvis.analyses.checks import SHARED_CHECKS
from jarvis.analyses.kernel_names import NATIVE_LIBRARY, first_match
from jarvis.analyses.operations import (
    HYPOTHESIS,
    KERNEL_FLOOR_US,
    LAUNCH_BOUND,
    LAUNCH_BOUND_RULE,
    MIN_COMPUTE_PCT,
    PATTERN,
    OperationGroup,
    parameters,
)
from jarvis.core.dtypes import element_bytes
from jarvis.core.expressions import first_of
from jarvis.core.literals import parse_literal
from jarvis.findings import Finding, texts_of
from jarvis.schemas.columns import count, number, text
from jarvis.schemas.names import C
from jarvis.text.messages import MessageTable

TRAINING, INFERENCE, BACKWARD = "training", "inference", "backward"

PASSES = {TRAINING: 3, INFERENCE: 2, BACKWARD: 5}
"""Passes over memory, in tensors as large as the input. Training: read for the statistics, read
again, write. Inference: read, write. Backward: read gradient and input twice, write the input's
gradient once."""

ESTIMATES = MessageTable(
    "estimated_bandwidth",
    {
        "title": "Low estimated bandwidth: {name}",
        "title_with_mode": "Low estimated bandwidth: {name} ({mode})",
        "issue": "{calls} of {name} take {time_ms} ({compute_pct} of compute); counted as {passes} "
        "passes over the input they reach about {reached_pct} of the memory bandwidth "
        "({tb_per_s:number} TB/s).",
        "algorithmic": "Fuse {name}{place} with the operator that follows it, so that {arguments} "
        "is written one time less.",
        "kernel": "Give {package} to the kernel team; {kernel} takes {mean_time_ms} per call.",
        "caveat": "No perf model covers it: the traffic is an estimate, and the saving is an "
        "upper bound set by the bandwidth.",
        "verify": "Time {arguments} alone and compare the time with {mean_time_ms} per call.",
        "capture": "Measure the bytes that {kernel} moves with the platform's hardware-counter "
        "profiler{on_package}, to replace the estimate.",
    },
)


def estimated_bytes(
    shape: tuple[int, ...], input_types: str | None, mode: str | None
) -> float | None:
    """Return the traffic of one call in bytes; None if the dtype of its first argument is not
    recorded.

    An unknown mode counts as training.
    """
    types = parse_literal(input_types)
    element = element_bytes(str(types[0])) if types else None
    return None if element is None else float(PASSES[mode or TRAINING] * prod(shape) * element)


def estimated_bandwidth(data: CategoryData) -> Iterator[Finding]:
    """Normalizations without a perf model whose estimated bandwidth is far below the peak.

    Symptom: a normalization that no perf model covers takes time.
    Rule: rows without a perf model whose estimated traffic (PASSES times the size of the input) is
    below the threshold, and that together pass the time test of ``low_efficiency``.
    The saving is an upper bound.
    Threshold: {impact.BOTTLENECK_EFFICIENCY_PCT}% of the bandwidth; {impact.BOTTLENECK_TIME_MS} ms
    or {impact.BOTTLENECK_CATEGORY_PCT}% of category time; at least {MIN_COMPUTE_PCT}% of compute.
    """
    if data.peak_tb_per_s is None:
        return
    rows = data.operations.filter(
        ~pl.col(C.has_perf_model) & pl.col("estimated_bytes").is_not_null()
    ).sort(C.kernel_time_us, C.uid, descending=[True, False])
    for part in rows.partition_by(C.name, "mode", maintain_order=True):
        group = OperationGroup(part)
        moved = float((part["estimated_bytes"] * part[C.operation_count]).sum())
        tb_per_s = moved / 1e9 / group.time_ms if group.time_ms > 0 else 0.0
        reached_pct = impact.share_pct(tb_per_s, data.peak_tb_per_s)
        is_slow = 0 < reached_pct < impact.BOTTLENECK_EFFICIENCY_PCT
        is_relevant = impact.is_time_relevant(group.time_ms, group.category_pct)
        if is_slow and is_relevant and group.compute_pct >= MIN_COMPUTE_PCT:
            yield _card(data, group, tb_per_s, reached_pct)


def _card(
    data: CategoryData, group: OperationGroup, tb_per_s: float, reached_pct: float
) -> Finding:
    mode = group.heaviest["mode"]
    gain = impact.bounded_impact(
        group.time_ms, group.time_ms * (1 - reached_pct / impact.FULL_PCT), **data.bases
    )
    passes = PASSES[mode or TRAINING]
    values = values_of(group) | {
        "time_ms": group.time_ms,
        "compute_pct": group.compute_pct,
        "passes": passes,
        "reached_pct": reached_pct,
        "tb_per_s": tb_per_s,
    }
    texts = texts_of(ESTIMATES, values)
    if mode:
        texts["title"] = ESTIMATES.pick("title_with_mode", values)
    return Finding(
        check="estimated_bandwidth",
        category=data.key,
        **texts,
        operations=group.operations,
        evidence={
            "gpu_time_ms": group.time_ms,
            "compute_pct": group.compute_pct,
            "category_pct": group.category_pct,
            "estimated_passes": passes,
            "estimated_tb_per_s": tb_per_s,
            "estimated_bandwidth_pct": reached_pct,
            "calls": group.calls,
        },
        priority_local=impact.local_priority(
            compute_pct=group.compute_pct, efficiency_pct=reached_pct
        ),
        priority=impact.final_priority(
            is_top_operation=group.is_top,
            compute_pct=group.compute_pct,
            category_pct=group.category_pct,
            efficiency_pct=reached_pct,
            saved_compute_pct=gain.compute_pct.mid,
        ),
        impact=gain,
    )


BATCH_NORM = "batch_norm"
GROUPED = ("group_norm", "instance_norm")
NORM_TYPES = (
    (BATCH_NORM, r"batch_?norm"),
    ("layer_norm", r"layer_?norm|fused_ln"),
    ("group_norm", r"group_?norm"),
    ("instance_norm", r"instance_?norm"),
    ("rms_norm", r"rms_?norm"),
)

USUAL_COMPUTE_PCT = (10.0, 50.0)
"""Share of compute that batch normalization usually takes in convolutional networks, in percent."""

NATIVE_KERNEL = r"batch_norm_(?:collect_statistics|backward)_kernel"
"""The framework's own channels-first kernels, which assign one block to each channel."""

MESSAGES = MessageTable(
    "normalization",
    {
        "rows_unknown": "its groups",
        "rows": "{reductions:count row} of {extent:count element}",
        "channels": "{reductions:count channel} of {extent:count element}",
        "fuse": "Fuse it with the following activation, so that its output is written once.",
        "channels_first.backward": "It runs in the layout of the forward pass: with the model in "
        "channels_last, its kernel also splits the {extent:count position} of a channel.",
        "channels_first": "Convert the model and its input to channels_last "
        "(`model.to(memory_format=torch.channels_last)`): kernels for that layout also split the "
        "{extent:count position} of a channel, not only the {reductions:count channel}.",
        "channels_last": "Its input is already in channels_last: if the model can change, a layer "
        "or group normalization needs no statistics over the {extent:count position} of a channel.",
        "fused_kernel": "Select the DNN library's fused batch normalization instead of "
        "{main_kernel:name}. ",
        "one_block": "The framework's own kernel assigns one block per channel, so the heaviest "
        "call uses at most {reductions:,} of {compute_units:,} compute units.",
        **{
            f"share.{place}": "Batch normalization takes {batch_norm_pct} of compute in all, "
            f"{place} the {USUAL_COMPUTE_PCT[0]:.0f}-{USUAL_COMPUTE_PCT[1]:.0f}% usual in "
            "convolutional networks."
            for place in ("below", "within", "above")
        },
    },
)

ADVICE = {
    "training": Advice(
        rule="batch normalization with batch statistics, and its backward pass",
        reason="two or three passes over the activation should use most of the bandwidth",
        algorithmic="{norm_advice:message}",
        kernel="{kernel_advice:message}Give {package} to the kernel team.",
        caveat="{share_note:message}",
    ),
    "inference": Advice(
        rule="batch normalization with running statistics",
        reason="with running statistics it is one multiplication and addition per element",
        algorithmic="Fold it into the preceding convolution{place} when the model is loaded: its "
        "scale and shift are constants, which removes {calls}.",
        kernel="If it cannot be folded, select a convolution kernel that applies scale and shift; "
        "even a faster {kernel} moves {moved_bytes} through memory.",
        caveat="{share_note:message}",
    ),
    "groups": Advice(
        rule="group or instance normalization",
        reason="{rows_text:message} are reduced independently",
        algorithmic="Fuse it with the following activation{place}, so that the {moved_bytes} of a "
        "call move through memory once.",
        kernel="Give {package} to the kernel team: {kernel} should split "
        "large groups over several blocks.",
    ),
    LAUNCH_BOUND: Advice(
        rule=LAUNCH_BOUND_RULE,
        reason="{moved_bytes} per call is little work, and a kernel is assumed to take at "
        f"least {KERNEL_FLOOR_US:.0f} µs",
        algorithmic="Fuse it with the elementwise work before or after it{place}, so that they "
        "share a launch.",
        kernel="Leave {kernel} as it is: at {mean_time_ms} per call only more work per launch "
        "helps, such as a fused addition and normalization.",
    ),
    "memory": Advice(
        rule="bound by memory bandwidth",
        reason="a normalization makes one or two passes over memory and should use most of the "
        "bandwidth",
        algorithmic="Fuse it with the elementwise work before and after it{place}, so that the "
        "{moved_bytes} of a call move through memory once.",
        kernel="Give {package} to the kernel team: {kernel} should spread "
        "{rows_text:message} evenly over the GPU.",
    ),
}

DETAILS = (
    text("norm_type", "Norm", "kind of normalization"),
    text("mode", "Mode", "training, inference or backward; empty if not known"),
    count("reductions", "Reductions", "channels or rows that are reduced independently"),
    count("extent", "Extent", "elements per reduction"),
    text("layout", "Input layout", "memory layout of the input"),
    number(
        "estimated_bytes",
        "Estimated bytes",
        "bytes",
        "passes over the input, if no perf model covers it",
        ",.0f",
    ),
    *bandwidth.DETAILS,
)


def classify(rows: pl.DataFrame, compute_units: int | None) -> pl.DataFrame:
    """Add type, mode, layout, extent and the matching advice of each normalization."""
    typed = bandwidth.rated(rows).with_columns(
        norm_type=first_match(pl.col(C.name), NORM_TYPES, "other_norm")
    )
    calls = zip(typed.iter_rows(named=True), parameters(rows), strict=True)
    facts = pl.DataFrame(
        [asdict(_facts(row, params, compute_units)) for row, params in calls],
        schema={
            "mode": pl.String,
            "layout": pl.String,
            "reductions": pl.Int64,
            "extent": pl.Int64,
            "estimated_bytes": pl.Float64,
            "rows_text": pl.String,
            "norm_advice": pl.String,
            "kernel_advice": pl.String,
            HYPOTHESIS: pl.String,
        },
    )
    described = typed.drop(HYPOTHESIS).hstack(facts)
    batch_norms = described.filter(pl.col("norm_type") == BATCH_NORM)
    share_pct = float(batch_norms[C.percent_of_compute].sum())
    return described.with_columns(
        _pattern(),
        batch_norm_pct=pl.lit(share_pct),
        share_note=pl.lit(_share_note(share_pct)),
        **{C.compute_units: pl.lit(compute_units, dtype=pl.Int64)},
    )


def measure(data: CategoryData) -> dict[str, JsonValue]:
    """Return GPU time by type, the share of batch normalization, and the bandwidth baseline."""
    rows = data.operations
    batch_norms = rows.filter(pl.col("norm_type") == BATCH_NORM)
    return {
        "time_ms_by_type": time_ms_by(rows, "norm_type"),
        "time_ms_by_mode": time_ms_by(rows, "mode"),
        "batch_norm_share_of_compute_pct": float(batch_norms[C.percent_of_compute].sum()),
        **baseline_metrics(data.baseline),
        "peak_hbm_bw_tbs": data.peak_tb_per_s,
    }


@dataclass(frozen=True, slots=True)
class _Facts:
    """Facts derived from the arguments of one call; None if they are not recorded.

    ``rows_text``, ``norm_advice``, ``kernel_advice`` and ``hypothesis`` are ids of messages.
    """

    mode: str | None = None
    layout: str | None = None
    reductions: int | None = None
    extent: int | None = None
    estimated_bytes: float | None = None
    rows_text: str = MESSAGES.id("rows_unknown")
    norm_advice: str = MESSAGES.id("fuse")
    kernel_advice: str = ""
    hypothesis: str | None = None


def _facts(row: Mapping[str, Any], params: Mapping[str, Any], compute_units: int | None) -> _Facts:
    norm_type = row["norm_type"]
    mode = BACKWARD if row[C.direction] == "backward" else None
    if mode is None and norm_type == BATCH_NORM and "is_training" in params:
        mode = TRAINING if params["is_training"] else INFERENCE
    recorded = tensor(row[C.input_dims], row[C.input_strides])
    if recorded is None:
        return _Facts(mode)
    shape, strides = recorded
    layout = channel_order(shape, strides)
    is_modelled = row[C.has_perf_model]
    estimate = None if is_modelled else estimated_bytes(shape, row[C.input_types], mode)
    count = _reductions(norm_type, shape, params.get("num_channels"))
    if not count:
        return _Facts(mode, layout, estimated_bytes=estimate)
    is_native = re.search(NATIVE_KERNEL, row[C.main_kernel] or "") is not None
    is_narrow = is_native and layout == CHANNELS_FIRST and count < (compute_units or 0)
    return _Facts(
        mode,
        layout,
        count,
        prod(shape) // count,
        estimate,
        rows_text=MESSAGES.id("channels" if norm_type == BATCH_NORM else "rows"),
        norm_advice=_norm_advice(layout, is_backward=mode == BACKWARD),
        kernel_advice=MESSAGES.id("fused_kernel") if row["library"] == NATIVE_LIBRARY else "",
        hypothesis=MESSAGES.id("one_block") if is_narrow else None,
    )


def _reductions(norm_type: str, shape: tuple[int, ...], channels: int | None) -> int | None:
    """Return how many parts of the input are reduced independently; None if that is not known."""
    if len(shape) > 1 and norm_type == BATCH_NORM:
        return shape[1]
    if len(shape) > 1 and norm_type == "instance_norm":
        return shape[0] * shape[1]
    if norm_type in ("layer_norm", "rms_norm") and channels:
        return prod(shape) // channels
    return None


def _norm_advice(layout: str | None, *, is_backward: bool) -> str:
    if layout == CHANNELS_FIRST:
        return MESSAGES.id("channels_first.backward" if is_backward else "channels_first")
    return MESSAGES.id("channels_last" if layout == CHANNELS_LAST else "fuse")


def _pattern() -> pl.Expr:
    is_batch_norm = pl.col("norm_type") == BATCH_NORM
    return first_of(
        {
            INFERENCE: is_batch_norm & (pl.col("mode") == INFERENCE),
            TRAINING: is_batch_norm,
            "groups": ~pl.col(C.is_launch_bound) & pl.col("norm_type").is_in(GROUPED),
        }
    ).alias(PATTERN)


def _share_note(share_pct: float) -> str:
    low, high = USUAL_COMPUTE_PCT
    place = "below" if share_pct < low else "above" if share_pct > high else "within"
    return MESSAGES.id(f"share.{place}")


ANALYSIS = Analysis(
    title="Normalization",
    icon=":material/equalizer:",
    claim=Claim(
        op_categories=("NORM_fwd", "NORM_bwd", "RMSNorm"),
        blocks=("norm",),
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
    specific=(slow_kernel, estimated_bandwidth),
    checks=SHARED_CHECKS,
    advice=ADVICE,
    classify=classify,
    details=DETAILS,
    measure=measure,
    panels=SHARED_PANELS,
)
