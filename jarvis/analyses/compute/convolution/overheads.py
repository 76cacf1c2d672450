"""Kernels inside convolutions that convolve nothing: layout transposes, fills and casts."""

from collections.abc import Iterator

import polars as pl

from jarvis import impact
from jarvis.analyses import kernel_names
from jarvis.analyses.access import CHANNELS_LAST
from jarvis.analyses.base import CategoryData
from jarvis.analyses.inefficiency import facts_of
from jarvis.analyses.operations import MIN_COMPUTE_PCT, OperationGroup
from jarvis.analyses.wording import counted, listed, ms, pct, quoted
from jarvis.findings import Finding, Priority, Severity

LAYOUT_TRANSPOSE = r"batched_transpose|transpose_nchw|transpose_cnhw|nchw2|nhwc2|nchwto|nhwcto"
"""Kernels that only reorder a tensor between layouts, by lower-case name; a *transposed
convolution* is none."""

FILL_OR_CAST = r"subtensorop|memset|fillfunctor|setzero|set_zero|zero_tensor"
"""Kernels that only fill or convert a tensor, by lower-case name."""

HIGH_OVERHEAD_PCT = 20.0
MODERATE_OVERHEAD_PCT = 10.0
"""Share of convolution time in such kernels: above, act; between, worth considering; below,
acceptable."""

USUAL_GAIN_PCT = (30, 45)
"""What channels_last usually gives back of convolution time where the overhead is high."""


def with_overheads(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with time, launches and share of layout transposes, and of fills and casts.

    ``main_kernel`` becomes the longest of the other kernels, ``convolving_pct`` the efficiency that
    these would have alone.
    """
    total_us = pl.col("kernel_time_us")
    entry = pl.element().struct.field("name")
    convolving = pl.col("kernels").list.eval(
        entry.filter(~entry.str.to_lowercase().str.contains(f"{LAYOUT_TRANSPOSE}|{FILL_OR_CAST}"))
    )
    timed = rows.with_columns(
        transpose_us=kernel_names.time_us(LAYOUT_TRANSPOSE),
        transpose_count=kernel_names.count_of(LAYOUT_TRANSPOSE),
        fill_us=kernel_names.time_us(FILL_OR_CAST),
        fill_count=kernel_names.count_of(FILL_OR_CAST),
        main_kernel=pl.coalesce(convolving.list.first(), "main_kernel"),
    )
    convolving_us = total_us - pl.col("transpose_us") - pl.col("fill_us")
    return timed.with_columns(
        library=kernel_names.library(pl.col("main_kernel")),
        transpose_pct=pl.when(total_us > 0).then(100 * pl.col("transpose_us") / total_us),
        convolving_pct=pl.when(convolving_us > 0).then(
            pl.col("pct_roofline") * total_us / convolving_us
        ),
    )


def layout_transposes(data: CategoryData) -> Iterator[Finding]:
    """Kernels around the convolutions that only change the memory layout.

    Symptom: a model in PyTorch's default channels-first layout meets kernels that want channels
    last, so tensors are transposed before and after each convolution, forward and backward.
    Rule: GPU time of kernels named like LAYOUT_TRANSPOSE inside the convolution operators, divided
    by the GPU time of these operators; the saving is at most that time.
    Threshold: above {HIGH_OVERHEAD_PCT}% high, above {MODERATE_OVERHEAD_PCT}% moderate, else
    acceptable; at least {MIN_COMPUTE_PCT}% of compute.
    """
    rows = _with_time(data, "transpose_us")
    if not has_transpose_card(data.operations):
        return
    transpose_ms, overhead_pct = overhead(data.operations, "transpose_us")
    compute_pct = impact.share_pct(transpose_ms, data.totals.compute_time_ms)
    is_high = overhead_pct > HIGH_OVERHEAD_PCT
    group = OperationGroup(rows)
    priority = impact.final_priority(
        is_top_operation=group.is_top,
        compute_pct=compute_pct,
        category_pct=overhead_pct,
        efficiency_pct=0.0,
    )
    local = impact.local_priority(compute_pct=compute_pct, efficiency_pct=0.0)
    last_ms = _ms(rows.filter(pl.col("layout") == CHANNELS_LAST), "transpose_us")
    is_already_last = last_ms > transpose_ms / 2
    launches = int(rows["transpose_count"].sum())
    yield Finding(
        check="layout_transposes",
        category=data.key,
        title="Layout transposes around convolutions",
        operations=group.operations,
        evidence={
            "Transpose time (ms)": transpose_ms,
            "Share of convolution time (%)": overhead_pct,
            "Share of compute (%)": compute_pct,
            "Transpose launches": launches,
            **_by_direction(rows),
            "Convolution time (ms)": data.gpu_time_ms,
            **(
                {"Inputs in channels_last (% of transpose time)": _layout_pct(last_ms, rows)}
                if rows["layout"].is_not_null().any()
                else {}
            ),
            "Transpose kernels": _kernels(rows, LAYOUT_TRANSPOSE),
        },
        issue=f"Layout transposes take {ms(transpose_ms)}, {pct(overhead_pct)} of convolution time "
        f"({pct(compute_pct)} of compute), in {counted(launches, 'launch')} that compute nothing.",
        algorithmic=_layout_action(is_high=is_high, is_already_last=is_already_last),
        kernel=f"{_to_kernel_team(rows, 'transpose_us', 'transposes', LAYOUT_TRANSPOSE)}, to "
        "select kernels that take the layout as it is.",
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
        verify=f"Record the trace again: the {launches:,} launches of {_kernels(rows)} must be "
        "gone from the convolution operators.",
        capture="Record one step with the DNN library's log of chosen algorithms switched on: it "
        "says which kernels it takes in either layout for "
        f"{rows['arguments'][0] or 'each call'}.",
    )


def has_transpose_card(rows: pl.DataFrame) -> bool:
    """Whether the transposes of all convolutions take enough time for a finding of their own."""
    _, overhead_pct = overhead(rows, "transpose_us")
    of_compute = pl.col("percent_of_compute") * pl.col("transpose_pct") / impact.FULL_PCT
    compute_pct = float(rows.select(of_compute.sum()).item() or 0.0)
    return overhead_pct >= MODERATE_OVERHEAD_PCT and compute_pct >= MIN_COMPUTE_PCT


def fills_and_casts(data: CategoryData) -> Iterator[Finding]:
    """Kernels inside the convolutions that only fill or convert tensors.

    Symptom: the DNN library clears a buffer before its kernel and converts the result after it.
    Rule: GPU time of kernels named like FILL_OR_CAST inside the convolution operators, divided by
    the GPU time of these operators; the saving is at most that time.
    Threshold: {MODERATE_OVERHEAD_PCT}% of convolution time; at least {MIN_COMPUTE_PCT}% of compute.
    """
    rows = _with_time(data, "fill_us")
    fill_ms, overhead_pct = overhead(data.operations, "fill_us")
    compute_pct = impact.share_pct(fill_ms, data.totals.compute_time_ms)
    if overhead_pct < MODERATE_OVERHEAD_PCT or compute_pct < MIN_COMPUTE_PCT:
        return
    launches = int(rows["fill_count"].sum())
    backward_ms = _ms(rows.filter(pl.col("direction") == "backward"), "fill_us")
    backward = f", {ms(backward_ms)} of it backward" if backward_ms else ""
    priority = Priority.MEDIUM if compute_pct > impact.RELEVANT_COMPUTE_PCT else Priority.LOW
    yield Finding(
        check="fills_and_casts",
        category=data.key,
        title="Fills and casts around convolutions",
        operations=OperationGroup(rows).operations,
        evidence={
            "Fill and cast time (ms)": fill_ms,
            "Share of convolution time (%)": overhead_pct,
            "Share of compute (%)": compute_pct,
            "Launches": launches,
            **({"Backward (ms)": backward_ms} if backward_ms else {}),
            "Kernels": _kernels(rows, FILL_OR_CAST),
        },
        issue=f"Kernels that only fill or convert tensors take {ms(fill_ms)}, "
        f"{pct(overhead_pct)} of convolution time ({pct(compute_pct)} of compute), in "
        f"{counted(launches, 'launch')}{backward}.",
        algorithmic="Let the DNN library try out its algorithms (benchmark mode), so that the cost "
        "of these kernels counts in its choice.",
        kernel=f"{_to_kernel_team(rows, 'fill_us', 'fills and casts', FILL_OR_CAST)}, to select "
        "kernels that write the final dtype at once.",
        priority_local=priority,
        priority=priority,
        impact=impact.bounded_impact(fill_ms, fill_ms, **data.bases),
        hypothesis="The chosen kernels add up parts of the sum in a buffer of another dtype, which "
        "is cleared before and converted after.",
        caveat="Another algorithm may be slower itself: the saving is an upper bound.",
        verify=f"Record the trace again: the {launches:,} launches of "
        f"{_kernels(rows, FILL_OR_CAST)} must be fewer, and convolution time less than "
        f"{ms(data.gpu_time_ms)}.",
        capture="Record one step with the DNN library's log of chosen algorithms switched on: it "
        "names the algorithm and the workspace of every convolution.",
    )


def overhead(rows: pl.DataFrame, column: str) -> tuple[float, float]:
    """The sum of a time column in ms, and its share of the rows' GPU time in percent."""
    time_ms = _ms(rows, column)
    return time_ms, impact.share_pct(time_ms, _ms(rows, "kernel_time_us"))


def _layout_action(*, is_high: bool, is_already_last: bool) -> str:
    if is_already_last:
        return (
            "The inputs are in channels_last already: convert weights, gradients and the remaining "
            "modules too, so that no tensor changes its order on the way."
        )
    low, high = USUAL_GAIN_PCT
    usual = (
        f"; {low}-{high}% of convolution time is what this usually gives back" if is_high else ""
    )
    return (
        f"{'Convert' if is_high else 'Consider converting'} the model and its input to "
        f"channels_last (`model.to(memory_format=torch.channels_last)`){usual}."
    )


def _by_direction(rows: pl.DataFrame) -> dict[str, float]:
    """Transposes forward and backward, where the operators tell."""
    sides = {
        label: _ms(rows.filter(pl.col("direction") == label.lower()), "transpose_us")
        for label in ("Forward", "Backward")
    }
    return (
        {f"{label} (ms)": time_ms for label, time_ms in sides.items()}
        if any(sides.values())
        else {}
    )


def _layout_pct(last_ms: float, rows: pl.DataFrame) -> float:
    return impact.share_pct(last_ms, _ms(rows, "transpose_us"))


def _with_time(data: CategoryData, column: str) -> pl.DataFrame:
    rows = data.operations.filter(pl.col(column) > 0)
    return rows.sort(column, "uid", descending=[True, False])


def _to_kernel_team(rows: pl.DataFrame, column: str, what: str, pattern: str) -> str:
    """What to give to the kernel team: the call with most of this time, or where no arguments are
    recorded, so that nothing can be replayed, the names of the kernels."""
    first = OperationGroup(rows.head(1))
    if first.heaviest["arguments"] is None:
        return f"Name {_kernels(rows, pattern)} to the kernel team"
    share = impact.share_pct(first.heaviest[column], first.heaviest["kernel_time_us"])
    return (
        f"Give a replay package of {facts_of(first)['arguments']} ({what} are {pct(share)} of its "
        "time) to the kernel team"
    )


def _kernels(rows: pl.DataFrame, pattern: str = LAYOUT_TRANSPOSE) -> str:
    """Names of the kernels that match, most time first."""
    kernels = rows.select("kernels").explode("kernels").unnest("kernels")
    matching = kernels.filter(pl.col("name").str.to_lowercase().str.contains(pattern))
    times = matching.group_by("name").agg(pl.col("total_us").sum())
    ordered = times.sort("total_us", "name", descending=[True, False])
    return listed([quoted(name) for name in ordered["name"]])


def _ms(rows: pl.DataFrame, column: str) -> float:
    return float(rows[column].sum()) / 1000
