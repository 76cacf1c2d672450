"""Convolutions, forward and backward: efficiency by kind, and the cost of a mismatched layout."""

from collections.abc import Iterator
from math import prod
from typing import Any

import polars as pl
from pydantic import JsonValue

from jarvis import impact
from jarvis.analyses import kernel_names
from jarvis.analyses.base import Advice, Analysis, CategoryData, Claim, Panel
from jarvis.analyses.checks import SHARED_CHECKS
from jarvis.analyses.operations import MIN_COMPUTE_PCT, OperationGroup, parameters
from jarvis.analyses.wording import counted, ms, pct
from jarvis.findings import Finding, Priority, Severity
from jarvis.schemas import INTEGER, NUMBER, TEXT, Column

LAYOUT_TRANSPOSE = r"batched_transpose|transpose_nchw|transpose_cnhw|nchw2|nhwc2|nchwto|nhwcto"
"""Kernels that only reorder a tensor between layouts, by lower-case name; a *transposed
convolution* is none."""

HIGH_OVERHEAD_PCT = 20.0
MODERATE_OVERHEAD_PCT = 10.0
"""Share of convolution time in layout transposes: above, channels_last is strongly advised;
between, worth considering; below, acceptable."""

SMALL_KERNEL = 3
"""The largest side of a filter that does not count as large."""

CHANNELS_LAST, CHANNELS_FIRST = "channels_last", "channels_first"

ADVICE = {
    "large filter": Advice(
        rule=f"a side of the filter is longer than {SMALL_KERNEL}",
        reason="large filters are usually well served by the DNN library",
        algorithmic="{layout_advice} Beyond that little is to gain in the model, unless stacked "
        "3x3 convolutions would do.",
        kernel="Give a replay package of {arguments} to the kernel team, since it stays below what "
        "optimized convolutions of filter {filter} reach.",
        expected_pct=(60.0, 80.0),
    ),
    "3x3": Advice(
        rule=f"no side of the filter is longer than {SMALL_KERNEL}",
        reason="the common filter {filter} has optimized kernels that should be chosen here",
        algorithmic="{layout_advice} Fuse it with the neighbouring normalization and activation.",
        kernel="Check which algorithm the DNN library selected (autotuning on) and give a replay "
        "package of {arguments} to the kernel team.",
        expected_pct=(50.0, 70.0),
    ),
    "1x1": Advice(
        rule="a filter of a single point",
        reason="a pointwise convolution moves much data for its arithmetic",
        algorithmic="{layout_advice} Fuse it with the neighbouring elementwise and normalization "
        "work, so that the activation crosses memory once.",
        kernel="Give a replay package of {arguments} to the kernel team to improve its memory "
        "access; it is a plain matrix product, which the vendor GEMM library may do faster.",
        expected_pct=(40.0, 60.0),
    ),
    "depthwise": Advice(
        rule="as many groups as input channels",
        reason="each channel is convolved alone, which leaves little parallel work",
        algorithmic="Limited potential: fuse it with the pointwise convolution that follows, or "
        "use fewer, wider groups if the model allows.",
        kernel="Ask for a kernel specialized for depthwise convolutions and give a replay package "
        "of {arguments}.",
        expected_pct=(30.0, 50.0),
    ),
    "transposed": Advice(
        rule="a transposed (fractionally strided) convolution",
        reason="transposed convolutions have fewer optimized kernels",
        algorithmic="Consider upsampling followed by an ordinary convolution if the model allows.",
        kernel="Give a replay package of {arguments} to the kernel team.",
    ),
}

DETAILS = (
    Column("conv_type", "Convolution", TEXT, meaning="conv1d, conv2d, conv3d, by the weight"),
    Column("filter", "Filter", TEXT, meaning="sides of the filter"),
    Column("pattern", "Kind", TEXT, meaning="what decides the efficiency to expect"),
    Column("groups", "Groups", INTEGER, format=",d", meaning="groups of channels"),
    Column("dilation", "Dilation", TEXT, meaning="step inside the filter, where not 1"),
    Column("layout", "Input layout", TEXT, meaning="order of the input in memory"),
    Column("transpose_us", "Transposes (µs)", NUMBER, "µs", ",.1f", "kernels that change a layout"),
    Column("transpose_count", "Transposes", INTEGER, format=",d", meaning="their launches"),
    Column("transpose_pct", "Transposes (%)", NUMBER, "%", ",.1f", "their share of the row's time"),
)


def classify(rows: pl.DataFrame, compute_units: int | None) -> pl.DataFrame:
    """Kind, filter and layout from the perf model's parameters; transposes from the kernels."""
    facts = pl.DataFrame(
        [_facts(p) for p in parameters(rows)],
        schema={
            "conv_type": pl.String,
            "filter": pl.String,
            "groups": pl.Int64,
            "dilation": pl.String,
            "layout": pl.String,
            "pattern": pl.String,
        },
        orient="row",
    )
    transpose_us = kernel_names.time_us(LAYOUT_TRANSPOSE)
    described = (
        rows.drop("pattern")
        .hstack(facts)
        .with_columns(
            transpose_us=transpose_us,
            transpose_count=kernel_names.count_of(LAYOUT_TRANSPOSE),
            transpose_pct=pl.when(pl.col("kernel_time_us") > 0).then(
                100 * transpose_us / pl.col("kernel_time_us")
            ),
        )
    )
    return described.with_columns(layout_advice=_row_layout_advice())


def layout_transposes(data: CategoryData) -> Iterator[Finding]:
    """Kernels around the convolutions that only change the memory layout.

    Symptom: a model in PyTorch's default channels-first layout meets kernels that want channels
    last, so tensors are transposed before and after each convolution, forward and backward.
    Rule: GPU time of kernels named like LAYOUT_TRANSPOSE inside the convolution operators, divided
    by the GPU time of these operators; the saving is at most that time.
    Threshold: above 20% high, 10 to 20% moderate, below 10% acceptable; at least 0.5% of compute.
    """
    rows = data.operations.filter(pl.col("transpose_us") > 0)
    transpose_ms, overhead_pct = _overhead(data)
    compute_pct = impact.share_pct(transpose_ms, data.totals.compute_time_ms)
    if overhead_pct < MODERATE_OVERHEAD_PCT or compute_pct < MIN_COMPUTE_PCT:
        return
    is_high = overhead_pct > HIGH_OVERHEAD_PCT
    priority = impact.final_priority(
        is_top_operation=OperationGroup(rows).is_top,
        compute_pct=compute_pct,
        category_pct=overhead_pct,
        efficiency_pct=0.0,
    )
    local = impact.local_priority(compute_pct=compute_pct, efficiency_pct=0.0)
    last_ms = _transpose_ms(rows.filter(pl.col("layout") == CHANNELS_LAST))
    is_already_last = last_ms > transpose_ms / 2
    launches = int(rows["transpose_count"].sum())
    yield Finding(
        check="layout_transposes",
        category=data.key,
        title="Layout transposes around convolutions",
        operations=OperationGroup(rows).operations,
        evidence={
            "Transpose time (ms)": transpose_ms,
            "Share of convolution time (%)": overhead_pct,
            "Share of compute (%)": compute_pct,
            "Transpose launches": launches,
            "Forward (ms)": _transpose_ms(rows.filter(pl.col("direction") == "forward")),
            "Backward (ms)": _transpose_ms(rows.filter(pl.col("direction") == "backward")),
            "Convolution time (ms)": data.gpu_time_ms,
            "Inputs in channels_last (% of transpose time)": impact.share_pct(
                last_ms, transpose_ms
            ),
        },
        issue=f"Layout transposes take {ms(transpose_ms)}, {pct(overhead_pct)} of convolution time "
        f"({pct(compute_pct)} of compute), in {counted(launches, 'launch')} that compute nothing.",
        algorithmic=_layout_advice(is_high=is_high, is_already_last=is_already_last),
        kernel="Generate replay packages of the convolutions with most transposes, so that the "
        "kernel team can select kernels that take the layout as it is.",
        priority_local=local if is_high else local.at_most(Priority.MEDIUM),
        priority=priority if is_high else priority.at_most(Priority.MEDIUM),
        severity=Severity.HIGH if is_high else Severity.MEDIUM,
        impact=impact.bounded_impact(
            transpose_ms,
            transpose_ms,
            low_ms=transpose_ms / 2,
            mid_ms=transpose_ms,
            **data.bases,
        ),
        hypothesis="The tensors are in channels-first order while the selected kernels want "
        "channels last."
        if not is_already_last
        else "Some tensors, weights or gradients are still in channels-first order.",
        caveat="Low assumes that half of the transposes stay at the borders of the converted part.",
        verify="Record the trace again after the change: the transpose kernels must be gone from "
        "the convolution operators.",
    )


def measure(data: CategoryData) -> dict[str, JsonValue]:
    """Transposes, kinds and the peaks of the hardware."""
    rows = data.operations
    transpose_ms, overhead_pct = _overhead(data)
    by_kind = rows.group_by("pattern").agg(pl.col("kernel_time_us").sum() / 1000).sort("pattern")
    return {
        "transpose_count": int(rows["transpose_count"].sum()),
        "transpose_time_ms": transpose_ms,
        "transpose_overhead_percent": overhead_pct,
        "time_ms_by_kind": {kind or "unknown": time for kind, time in by_kind.iter_rows()},
        "peak_maf_tflops": data.hardware.peak_tflops("matrix_bf16") if data.hardware else None,
        "peak_hbm_bw_tbs": data.peak_tb_per_s,
    }


def _layout_advice(*, is_high: bool, is_already_last: bool) -> str:
    if is_already_last:
        return (
            "The inputs are in channels_last already: convert weights, gradients and the remaining "
            "modules too, so that no tensor changes its order on the way."
        )
    urge = "Convert" if is_high else "Consider converting"
    return (
        f"{urge} the model and its input to channels_last "
        "(`model.to(memory_format=torch.channels_last)`), which lets the kernels read the tensors "
        "as they are."
    )


def _row_layout_advice() -> pl.Expr:
    share = pl.col("transpose_pct").round(0).cast(pl.Int64)
    is_last = pl.col("layout") == CHANNELS_LAST
    has_transposes = pl.col("transpose_pct") >= MODERATE_OVERHEAD_PCT
    return (
        pl.when(has_transposes & is_last)
        .then(
            pl.format(
                "{}% of the heaviest call are layout transposes although its input is in "
                "channels_last: convert weights and gradients too.",
                share,
            )
        )
        .when(has_transposes)
        .then(
            pl.format(
                "{}% of the heaviest call are layout transposes: convert the model to "
                "channels_last first.",
                share,
            )
        )
        .otherwise(pl.lit("Keep the layout: hardly any of its time goes to transposes."))
    )


def _overhead(data: CategoryData) -> tuple[float, float]:
    transpose_ms = _transpose_ms(data.operations)
    return transpose_ms, impact.share_pct(transpose_ms, data.gpu_time_ms)


def _transpose_ms(rows: pl.DataFrame) -> float:
    return float(rows["transpose_us"].sum()) / 1000


def _facts(params: dict[str, Any]) -> tuple[Any, ...]:
    """Conv type, filter, groups, dilation, layout and kind; None where the trace does not say."""
    weight, groups = params.get("filter_shape"), params.get("groups")
    if not weight:
        return (None,) * 6
    sides = weight[2:]
    shape: list[int] = params.get("input_shape") or []
    dilation: list[int] = params.get("dilation") or []
    return (
        params.get("convNd"),
        "x".join(map(str, sides)),
        groups,
        "x".join(map(str, dilation)) if any(step != 1 for step in dilation) else None,
        _layout(shape, params.get("input_stride") or []),
        _kind(sides, groups, shape, is_transposed=bool(params.get("transposed_conv"))),
    )


def _kind(sides: list[int], groups: int | None, shape: list[int], *, is_transposed: bool) -> str:
    if is_transposed:
        return "transposed"
    if groups and groups > 1 and len(shape) > 1 and groups == shape[1]:
        return "depthwise"
    if prod(sides) == 1:
        return "1x1"
    return "3x3" if max(sides) <= SMALL_KERNEL else "large filter"


def _layout(shape: list[int], stride: list[int]) -> str | None:
    """The order of an input in memory; None where both orders would look the same."""
    if len(stride) != len(shape) or len(shape) < 3 or shape[1] == 1 or prod(shape[2:]) == 1:
        return None
    return CHANNELS_LAST if stride[1] == 1 else CHANNELS_FIRST


ANALYSIS = Analysis(
    title="Convolution",
    icon=":material/filter_center_focus:",
    claim=Claim(
        op_categories=("CONV_fwd", "CONV_bwd"),
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
        ),
        order=30,
    ),
    checks=(layout_transposes, *SHARED_CHECKS),
    advice=ADVICE,
    classify=classify,
    details=DETAILS,
    measure=measure,
    panels=(
        Panel("roofline", "Roofline"),
        Panel("savings", "Largest savings at the target"),
        Panel("bars", "Layout transposes", x="transpose_us", y="arguments", color="direction"),
    ),
)
