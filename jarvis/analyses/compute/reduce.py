"""Reduce: sums, means, extrema and softmax, bound by memory bandwidth."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import Any

import polars as pl
from pydantic import JsonValue

from jarvis.analyses import bandwidth
from jarvis.analyses.access import reduced_dims, tensor
from jarvis.analyses.bandwidth import baseline_metrics, slow_kernel, time_ms_by
from jarvis.analyses.base import SHARED_PANELS, Advice, Analysis, CategoryData, Claim
from jarvis.analyses.checks import SHARED_CHECKS
from jarvis.analyses.kernel_names import first_match
from jarvis.analyses.operations import (
    HYPOTHESIS,
    KERNEL_FLOOR_US,
    LAUNCH_BOUND,
    LAUNCH_BOUND_RULE,
    PATTERN,
)
from jarvis.schemas.columns import count, flag, text
from jarvis.schemas.names import C
from jarvis.text.messages import MessageTable

SOFTMAX = "softmax"
REDUCE_TYPES = (SOFTMAX, "sum", "mean", "max", "min")

SHORT_AXIS = 128
"""A reduction over fewer elements leaves a block with less than one element per thread."""

ATTENTION_PLACE = r"(?i)attn|attention"
"""Modules and functions that compute attention, by name."""

EXPECTED_PCT = (50.0, 70.0)
"""Efficiency that a reduction over long, contiguous rows usually reaches, in percent."""

MESSAGES = MessageTable(
    "reduce",
    {
        "rows": "{results:count row} of {extent:count element}",
        "rows_unknown": "its rows",
        "few_rows": "Only {results:,} of {compute_units:,} compute units have a row to reduce.",
    },
)

ADVICE = {
    "attention softmax": Advice(
        rule="a softmax inside attention, by call site or by square scores per head",
        reason="a separate softmax reads and writes all {moved_bytes} of attention scores",
        algorithmic="Use a fused attention operator such as `scaled_dot_product_attention`{place}: "
        "it never writes the scores. The attention analysis measures the whole group.",
        kernel="Give {package} to the kernel team to measure how far {kernel} is from the "
        "bandwidth limit.",
        expected_pct=EXPECTED_PCT,
    ),
    SOFTMAX: Advice(
        rule="any other softmax",
        reason="{rows_text:message} are read and written once each",
        algorithmic="Fuse it with the scaling before it or the loss after it{place}, so that the "
        "{moved_bytes} of a call do not move through memory again.",
        kernel="Give {package} to the kernel team: {kernel} should keep a "
        "row on chip between finding its maximum and dividing by its sum.",
        expected_pct=EXPECTED_PCT,
    ),
    "few rows": Advice(
        rule="fewer results than compute units, not launch bound",
        reason="{rows_text:message} are fewer than the {compute_units:,} compute units",
        algorithmic="Reduce while the input is produced{place}, part by part, so that only the "
        "partial results of {arguments} are read again.",
        kernel="Give {package} to the kernel team: {kernel} should split a "
        "row over several blocks and combine their results.",
    ),
    "short axis": Advice(
        rule=f"fewer than {SHORT_AXIS} elements for each result, not launch bound",
        reason="{rows_text:message} are too short to fill one block per row",
        algorithmic="Fuse it with the operator that produces its input{place}, which already "
        "holds the few elements of a row.",
        kernel="Give {package} to the kernel team: {kernel} should process several rows per block.",
    ),
    "strided axis": Advice(
        rule="the elements of a result are not contiguous in memory, not launch bound",
        reason="the {rows_text:message} are not contiguous in memory (strides {strides:joined  "
        "and })",
        algorithmic="Make the reduced axis innermost when the input is produced{place}, or reduce "
        "before the tensor is transposed.",
        kernel="Give {package} to the kernel team: "
        "{kernel} should process neighboring results together.",
    ),
    "one result": Advice(
        rule="all elements become one value, not launch bound",
        reason="all of {arguments} is reduced to one value, which requires synchronization across "
        "the GPU",
        algorithmic="Compute partial sums where the input is produced{place}, so that the "
        "{moved_bytes} are not read again for one value.",
        kernel="Give {package} to the kernel team: {kernel} should combine "
        "the results of its blocks in the same launch.",
    ),
    LAUNCH_BOUND: Advice(
        rule=LAUNCH_BOUND_RULE,
        reason="{moved_bytes} per call is little work, and a kernel is assumed to take at "
        f"least {KERNEL_FLOOR_US:.0f} µs",
        algorithmic="Fuse it into the operator that produces its input{place}, so that it needs "
        "no separate launch.",
        kernel="Leave {kernel} as it is: at {mean_time_ms} per call only fewer launches help, "
        "such as one for several tensors.",
    ),
    "memory": Advice(
        rule="bound by memory bandwidth, long contiguous rows",
        reason="it reads {rows_text:message} once and should use most of the bandwidth",
        algorithmic="Fuse it with the elementwise work before it{place}, so that the "
        "{moved_bytes} of a call are not written and read back.",
        kernel="Give {package} to the kernel team: {kernel} reads long rows "
        "and should reach the bandwidth of a copy.",
        expected_pct=EXPECTED_PCT,
    ),
}

DETAILS = (
    text("reduce_type", "Type", "reduction result"),
    flag("is_softmax", "Softmax", "the operator is a softmax"),
    count("results", "Results", "rows that are reduced independently"),
    count("extent", "Extent", "elements reduced to one result"),
    text("axis", "Axis", "inner: contiguous in memory; outer: strided; all"),
    *bandwidth.DETAILS,
)


def classify(rows: pl.DataFrame, compute_units: int | None) -> pl.DataFrame:
    """Add type, axis and extent of each reduction, and the pattern that determines its
    efficiency."""
    patterns = [(kind, kind) for kind in REDUCE_TYPES]
    typed = bandwidth.rated(rows).with_columns(
        reduce_type=first_match(pl.col(C.name), patterns, "other")
    )
    facts = pl.DataFrame(
        [asdict(_facts(row, compute_units)) for row in typed.iter_rows(named=True)],
        schema={
            "results": pl.Int64,
            "extent": pl.Int64,
            "axis": pl.String,
            "rows_text": pl.String,
            "strides": pl.List(pl.String),
            PATTERN: pl.String,
            HYPOTHESIS: pl.String,
        },
    )
    return (
        typed.drop(PATTERN, HYPOTHESIS)
        .hstack(facts)
        .with_columns(
            is_softmax=pl.col("reduce_type") == SOFTMAX,
            **{C.compute_units: pl.lit(compute_units, dtype=pl.Int64)},
        )
    )


def measure(data: CategoryData) -> dict[str, JsonValue]:
    """Return softmaxes, time by type and rating, and the bandwidth baseline."""
    rows = data.operations
    return {
        "softmax_count": rows.filter("is_softmax").height,
        "softmax_time_ms": float(rows.filter("is_softmax")[C.kernel_time_us].sum()) / 1000,
        "time_ms_by_type": time_ms_by(rows, "reduce_type"),
        "time_ms_by_rating": time_ms_by(rows, "rating"),
        **baseline_metrics(data.baseline),
        "peak_hbm_bw_tbs": data.peak_tb_per_s,
    }


@dataclass(frozen=True, slots=True)
class _Facts:
    """Facts derived from the arguments of one call; None if they are not recorded.

    ``rows_text`` and ``hypothesis`` are ids of messages.
    """

    results: int | None = None
    extent: int | None = None
    axis: str | None = None
    rows_text: str = MESSAGES.id("rows_unknown")
    strides: tuple[str, ...] = ()
    pattern: str | None = None
    hypothesis: str | None = None


def _facts(row: Mapping[str, Any], compute_units: int | None) -> _Facts:
    is_softmax, is_small = row["reduce_type"] == SOFTMAX, row[C.is_launch_bound]
    # the backward pass has the gradient first; it is as large as the output
    recorded = tensor(row[C.input_dims], row[C.input_strides])
    if recorded is None:
        return _Facts(pattern=_softmax_pattern(row, ()) if is_softmax else None)
    shape, strides = recorded
    dims = reduced_dims(row[C.name], row[C.concrete_inputs], len(shape))
    extent = prod(shape[dim] for dim in dims)
    results = prod(shape) // extent if extent else 0
    facts = _Facts(
        results,
        extent,
        _axis(shape, strides, dims),
        rows_text=MESSAGES.id("rows"),
        strides=(f"[{','.join(map(str, strides))}]",),
    )
    if is_softmax:
        return replace(facts, pattern=_softmax_pattern(row, shape))
    if is_small or not row[C.has_perf_model]:
        return facts
    pattern = _pattern(facts, compute_units)
    if pattern != "few rows":
        return replace(facts, pattern=pattern)
    return replace(facts, pattern=pattern, hypothesis=MESSAGES.id("few_rows"))


def _axis(shape: tuple[int, ...], strides: tuple[int, ...], dims: tuple[int, ...]) -> str:
    """Return where the reduced elements lie in memory; dims of one element are ignored."""
    wide = [dim for dim in range(len(shape)) if shape[dim] > 1]
    if all(dim in dims for dim in wide):
        return "all"
    innermost = min(wide, key=lambda dim: strides[dim])
    return "inner" if innermost in dims else "outer"


def _pattern(facts: _Facts, compute_units: int | None) -> str | None:
    if facts.axis == "all":
        return "one result"
    if compute_units is not None and (facts.results or 0) < compute_units:
        return "few rows"
    if facts.axis == "outer":
        return "strided axis"
    return "short axis" if (facts.extent or 0) < SHORT_AXIS else None


def _softmax_pattern(row: Mapping[str, Any], shape: tuple[int, ...]) -> str:
    place = " ".join(filter(None, (row[C.called_from], row[C.entry_point])))
    are_scores = len(shape) == 4 and shape[-1] == shape[-2] > 1
    is_attention = are_scores or re.search(ATTENTION_PLACE, place) is not None
    return "attention softmax" if is_attention else SOFTMAX


ANALYSIS = Analysis(
    title="Reduce",
    icon=":material/compress:",
    claim=Claim(op_categories=("reduce",), op_names=("*softmax*",), order=40),
    specific=(slow_kernel,),
    checks=SHARED_CHECKS,
    advice=ADVICE,
    classify=classify,
    details=DETAILS,
    measure=measure,
    panels=SHARED_PANELS,
)
