"""Convolutions, forward and backward: efficiency by kind, and the cost of layout mismatches."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

import polars as pl
from pydantic import JsonValue

from jarvis.analyses.access import CHANNELS_LAST, channel_order
from jarvis.analyses.bandwidth import time_ms_by
from jarvis.analyses.base import SHARED_PANELS, Advice, Analysis, CategoryData, Claim, Panel
from jarvis.analyses.checks import SHARED_CHECKS
from jarvis.analyses.compute.convolution.overheads import (
    LAYOUT,
    MODERATE_OVERHEAD_PCT,
    fills_and_casts,
    has_transpose_card,
    layout_transposes,
    overhead,
    with_overheads,
)
from jarvis.analyses.fp32 import fp32_products
from jarvis.analyses.operations import PATTERN, parameters
from jarvis.schemas.columns import count, number, text
from jarvis.schemas.names import C

SMALL_KERNEL = 3
"""The largest side of a small filter."""

CHANNEL_BLOCK = 8
"""Input channels that kernels for matrix units take at once: 16 bytes in half precision."""

TRANSPOSED, DEPTHWISE, POINTWISE, PATCHES = "transposed", "depthwise", "1x1", "patches"
DILATED, ASYMMETRIC, SMALL, LARGE = "dilated", "asymmetric", "3x3", "large filter"
FEW_CHANNELS = "few channels"


@dataclass(frozen=True, slots=True)
class ConvolutionFacts:
    """Facts derived from the parameters of one call; None if the trace does not record them."""

    conv_type: str | None = None
    filter: str | None = None
    groups: int | None = None
    dilation: str | None = None
    layout: str | None = None
    channels: str | None = None
    pattern: str | None = None


def convolution_facts(params: Mapping[str, Any]) -> ConvolutionFacts:
    """Return the facts of a convolution from a perf model's parameters."""
    weight, groups = params.get("filter_shape"), params.get("groups")
    if not weight:
        return ConvolutionFacts()
    shape: list[int] = params.get("input_shape") or []
    dilation: list[int] = params.get("dilation") or []
    is_dilated = any(step != 1 for step in dilation)
    is_transposed = bool(params.get("transposed_conv"))
    channels_in, channels_out = weight[:2] if is_transposed else weight[1::-1]
    return ConvolutionFacts(
        conv_type=params.get("convNd"),
        filter=_sides(weight[2:]),
        groups=groups,
        dilation=_sides(dilation) if is_dilated else None,
        layout=channel_order(shape, params.get("input_stride") or []),
        channels=f"{channels_in:,} to {channels_out:,}",
        pattern=TRANSPOSED
        if is_transposed
        else _kind(weight, groups, shape, params, is_dilated=is_dilated),
    )


def _kind(
    weight: Sequence[int],
    groups: int | None,
    shape: Sequence[int],
    params: Mapping[str, Any],
    *,
    is_dilated: bool,
) -> str:
    sides = weight[2:]
    if groups and groups > 1 and len(shape) > 1 and groups == shape[1]:
        return DEPTHWISE
    if prod(sides) == 1:
        return POINTWISE
    if list(params.get("stride") or []) == list(sides) and not any(params.get("padding") or [0]):
        return PATCHES
    if groups == 1 and weight[1] < CHANNEL_BLOCK:
        return FEW_CHANNELS
    if is_dilated:
        return DILATED
    if len(set(sides)) > 1:
        return ASYMMETRIC
    return SMALL if max(sides) <= SMALL_KERNEL else LARGE


def _sides(sides: Sequence[int]) -> str:
    return "x".join(map(str, sides))


ADVICE = {
    FEW_CHANNELS: Advice(
        rule=f"fewer than {CHANNEL_BLOCK} input channels in one group",
        reason="it has few input channels ({channels}), which kernels for matrix units take "
        f"{CHANNEL_BLOCK} at once, so part of their work is padding"
        "{convolving_text:message}",
        algorithmic="{layout_advice:message} For the channels, fold neighboring pixels into them "
        f"(space to depth), or pad the input to {CHANNEL_BLOCK}{{place}}.",
        kernel="Check whether {kernel} is made for few input channels ({channels}): the DNN "
        "libraries have such kernels.",
    ),
    LARGE: Advice(
        rule=f"a side of the filter is longer than {SMALL_KERNEL}",
        reason="a {filter} filter over {channels} channels does much arithmetic per input "
        "element, which optimized kernels exploit{convolving_text:message}",
        algorithmic="{layout_advice:message}",
        kernel="Give {package} to the kernel team to tune the tiles of "
        "{kernel} for a {filter} filter.",
        expected_pct=(60.0, 80.0),
        expected_of="compute peak",
    ),
    SMALL: Advice(
        rule=f"no side of the filter is longer than {SMALL_KERNEL}",
        reason="its {filter} filter ({channels} channels in the heaviest call) is common, so "
        "libraries have optimized kernels for it{convolving_text:message}",
        algorithmic="{layout_advice:message}",
        kernel="Check whether autotuning of the DNN library finds a faster kernel than {kernel}, "
        "and give the kernel team {package}.",
        expected_pct=(50.0, 70.0),
    ),
    POINTWISE: Advice(
        rule="a 1x1 filter",
        reason="a pointwise convolution ({channels} channels) moves much data for its "
        "arithmetic{convolving_text:message}",
        algorithmic="{layout_advice:message}",
        kernel="Compare {kernel} with a plain matrix product of the same size{on_package}: a "
        "pointwise convolution is a matrix product.",
        expected_pct=(40.0, 60.0),
    ),
    DEPTHWISE: Advice(
        rule="as many groups as input channels",
        reason="each of {groups} channels is convolved independently, which leaves little work "
        "per channel",
        algorithmic="Fuse it with the following pointwise convolution{place}, "
        "or use fewer, wider groups than {groups} if the model allows.",
        kernel="Request a kernel specialized for depthwise {filter} filters instead of {kernel}"
        "{reproduced}.",
        expected_pct=(30.0, 50.0),
    ),
    PATCHES: Advice(
        rule="the stride equals the filter size, without padding",
        reason="patches of {filter} do not overlap, so it is a matrix product over patches",
        algorithmic="Compute it as a matrix product: reshape the input into patches of {filter} "
        "and use a linear layer{place}.",
        kernel="Give {package} to the kernel team and compare {kernel} with "
        "a matrix product of the same size.",
        expected_pct=(60.0, 80.0),
        expected_of="compute peak",
    ),
    DILATED: Advice(
        rule="a dilation other than 1; same expectation as a filter of up to 3x3",
        reason="fewer optimized kernels exist for a {filter} filter with dilation {dilation}",
        algorithmic="{layout_advice:message}",
        kernel="Give {package} to the kernel team, with the same call without dilation "
        "{dilation} for comparison.",
        expected_pct=(50.0, 70.0),
    ),
    ASYMMETRIC: Advice(
        rule="sides of different length; same expectation as a filter of up to 3x3",
        reason="a {filter} filter has fewer optimized kernels than a square one",
        algorithmic="If the {filter} filter is one of a pair{place}, compare both with a square "
        "one, which is better optimized.",
        kernel="Give {package} to the kernel team, with a square filter for "
        "comparison with {kernel}.",
        expected_pct=(50.0, 70.0),
    ),
    TRANSPOSED: Advice(
        rule="a transposed (fractionally strided) convolution",
        reason="transposed convolutions with a {filter} filter have fewer optimized kernels",
        algorithmic="Consider upsampling followed by an ordinary {filter} convolution{place} if "
        "the model allows.",
        kernel="Give {package} to the kernel team: {kernel} should gather "
        "each output once instead of scattering each input.",
    ),
}

DETAILS = (
    text("conv_type", "Convolution", "conv1d, conv2d, conv3d, by the weight"),
    text("filter", "Filter", "sides of the filter"),
    text("pattern", "Kind", "what determines the expected efficiency"),
    text("channels", "Channels", "channels of one group, from input to output"),
    count("groups", "Groups", "groups of channels"),
    text("dilation", "Dilation", "dilation of the filter, if not 1"),
    text("layout", "Input layout", "memory layout of the input"),
    number(C.transpose_us, "Transposes (µs)", "µs", "GPU time of layout transposes", ",.1f"),
    count("transpose_count", "Transposes", "their launches"),
    number(C.transpose_pct, "Transposes (%)", "%", "their share of the row's time", ",.1f"),
    number(C.fill_us, "Fills and casts (µs)", "µs", "kernels that only fill or cast", ",.1f"),
    number(
        C.convolving_pct,
        "Efficiency without them (%)",
        "%",
        "efficiency of the convolution kernels alone, without transposes, fills and casts",
        ",.1f",
    ),
)


def classify(rows: pl.DataFrame, compute_units: int | None) -> pl.DataFrame:
    """Add kind, filter and layout from the perf model's parameters, and overheads from the
    kernels."""
    facts = pl.DataFrame(
        [asdict(convolution_facts(params)) for params in parameters(rows)],
        schema={
            "conv_type": pl.String,
            "filter": pl.String,
            "groups": pl.Int64,
            "dilation": pl.String,
            "layout": pl.String,
            "channels": pl.String,
            PATTERN: pl.String,
        },
    )
    described = with_overheads(rows.drop(PATTERN).hstack(facts))
    return described.with_columns(**_layout_advice(described), convolving_text=_convolving_text())


def measure(data: CategoryData) -> dict[str, JsonValue]:
    """Return transposes, fills, kinds, directions and the peaks of the hardware."""
    rows = data.operations
    transpose_ms, overhead_pct = overhead(rows, C.transpose_us)
    fill_ms, fill_pct = overhead(rows, C.fill_us)
    kinds = rows.with_columns(pl.col(PATTERN).fill_null("unknown"))
    return {
        "transpose_count": int(rows["transpose_count"].sum()),
        "transpose_time_ms": transpose_ms,
        "transpose_overhead_percent": overhead_pct,
        "fill_and_cast_time_ms": fill_ms,
        "fill_and_cast_percent": fill_pct,
        "time_ms_by_kind": time_ms_by(kinds, PATTERN),
        "time_ms_by_direction": time_ms_by(rows, C.direction),
        "peak_maf_tflops": data.hardware.peak_tflops("matrix_bf16") if data.hardware else None,
        "peak_hbm_bw_tbs": data.peak_tb_per_s,
    }


def _convolving_text() -> pl.Expr:
    """Return the id of the message on the convolution kernels, if other kernels take part of the
    time."""
    has_others = pl.col(C.transpose_us) + pl.col(C.fill_us) > 0
    is_known = has_others & pl.col(C.convolving_pct).is_not_null()
    return pl.when(is_known).then(_id("convolving")).otherwise(pl.lit(""))


def _layout_advice(rows: pl.DataFrame) -> dict[str, pl.Expr]:
    """Return ids of messages: the heaviest call needs another layout or a fused neighbor.

    The finding of ``layout_transposes``, if any, says how to change the layout.
    """
    is_last = pl.col("layout") == CHANNELS_LAST
    has_transposes = pl.col(C.transpose_pct) >= MODERATE_OVERHEAD_PCT
    has_card = has_transpose_card(rows)
    is_backward = pl.col(C.direction) == "backward"
    # Normalization in training needs the statistics of the whole output before it can be fused.
    is_training = (rows[C.direction] == "backward").any()
    return {
        "layout_advice": pl.when(has_transposes & is_last)
        .then(_id("change_last"))
        .when(has_transposes)
        .then(_id("change"))
        .otherwise(_id("keep")),
        "layout_first": _id("first.card")
        if has_card
        else pl.when(is_last).then(_id("first.weights")).otherwise(_id("first.model")),
        "layout_then": pl.when(is_backward)
        .then(_id("then.backward"))
        .otherwise(_id("then.training" if is_training else "then.forward")),
    }


def _id(key: str) -> pl.Expr:
    return pl.lit(LAYOUT.id(key))


ANALYSIS = Analysis(
    title="Convolution",
    icon=":material/filter_center_focus:",
    claim=Claim(
        op_categories=("CONV_fwd", "CONV_bwd"),
        blocks=("conv",),
        op_names=(
            "*convolution*",
            "*conv1d*",
            "*conv2d*",
            "*conv3d*",
            "*conv_transpose*",
            "*miopen_conv*",
            "*cudnn_conv*",
            "*igemm_*_gtc*",
            "*grouped_conv*",
            "*batched_transpose_*",
            "*subtensorop*",
        ),
        order=30,
    ),
    specific=(fp32_products,),
    checks=(layout_transposes, fills_and_casts, *SHARED_CHECKS),
    advice=ADVICE,
    classify=classify,
    details=DETAILS,
    measure=measure,
    panels=(
        *SHARED_PANELS,
        Panel("bars", "Layout transposes", x=C.transpose_us, y="arguments", color=C.direction),
    ),
)
