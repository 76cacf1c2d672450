"""Kernels inside convolution operators that do not convolve: layout transposes, fills and casts."""

from collections.abc import Iterator
from typing import Any

import polars as pl

from jarvis import impact
from jarvis.analyses import kernel_names
from jarvis.analyses.access import CHANNELS_LAST
from jarvis.analyses.advice import if_replayed
from jarvis.analyses.base import CategoryData
from jarvis.analyses.operations import MIN_COMPUTE_PCT, OperationGroup
from jarvis.findings import Finding, Priority, Severity, texts_of
from jarvis.schemas.names import C
from jarvis.text.messages import Message, MessageTable

LAYOUT = MessageTable(
    "convolution_layout",
    {
        "convolving": "; without transposes, fills and casts the heaviest call reaches "
        "{convolving_pct}",
        "keep": "Keep the layout, since transposes take hardly any of its time; "
        "{layout_then:message}.",
        "change": "Layout transposes take {transpose_pct:.0f}% of the heaviest call: "
        "{layout_first:message}. Then {layout_then:message}.",
        "change_last": "Layout transposes take {transpose_pct:.0f}% of the heaviest call although "
        "its input is in channels_last: {layout_first:message}. Then {layout_then:message}.",
        "first.card": "change the layout first, as the finding on transposes describes",
        "first.model": "convert the model to channels_last first",
        "first.weights": "convert weights and gradients too",
        "then.forward": "fuse the following normalization and activation into the {filter} "
        "convolution",
        "then.training": "a larger batch gives each call more work",
        "then.backward": "a larger batch gives the products for both gradients more work",
    },
)
"""Parts of the advice that depend on the layout of the heaviest call."""

TO_KERNEL_TEAM = MessageTable(
    "convolution_kernel_team",
    {
        "transposes": "Give a replay package of {arguments} (transposes are {share_pct} of its "
        "time) to the kernel team",
        "fills": "Give a replay package of {arguments} (fills and casts are {share_pct} of its "
        "time) to the kernel team",
        "names": "Report {kernels:names} to the kernel team",
    },
)

TRANSPOSES = MessageTable(
    "layout_transposes",
    {
        "evidence.kernels": "{kernels:names}",
        "title": "Layout transposes around convolutions",
        "issue": "Layout transposes take {transpose_ms}, {overhead_pct} of convolution time "
        "({compute_pct} of compute), in {launches} without arithmetic.",
        "algorithmic.last": "The inputs are already in channels_last: convert weights, gradients "
        "and the remaining modules too, so that no tensor changes its layout between them.",
        "algorithmic.high": "Convert the model and its input to channels_last "
        "(`model.to(memory_format=torch.channels_last)`).",
        "algorithmic.moderate": "Consider converting the model and its input to channels_last "
        "(`model.to(memory_format=torch.channels_last)`).",
        "kernel": "{to_kernel_team}, to select kernels that accept the current layout.",
        "hypothesis.first": "The tensors are in channels-first layout while the selected kernels "
        "expect channels last.",
        "hypothesis.last": "Some tensors, weights or gradients are still in channels-first layout.",
        "caveat": "The low estimate assumes that half of the transposes remain at the borders of "
        "the converted part.",
        "verify": "Record the trace again: the {launches} of {kernels:names} must be "
        "gone from the convolution operators.",
        "capture": "Record one step with the DNN library's log of selected algorithms enabled: it "
        "shows which kernels it uses in either layout for {arguments:?each call}.",
    },
)

FILLS = MessageTable(
    "fills_and_casts",
    {
        "evidence.kernels": "{kernels:names}",
        "title": "Fills and casts around convolutions",
        "issue": "Kernels that only fill or convert tensors take {fill_ms}, {overhead_pct} of "
        "convolution time ({compute_pct} of compute), in {launches}{backward}.",
        "backward": ", {backward_ms} of it backward",
        "algorithmic": "Let the DNN library benchmark its algorithms (benchmark mode), so that "
        "its choice includes the cost of these kernels.",
        "kernel": "{to_kernel_team}, to select kernels that write the final dtype directly.",
        "hypothesis": "The selected kernels accumulate partial sums in a buffer of another dtype, "
        "which is cleared before and converted after.",
        "caveat": "Another algorithm may itself be slower: the saving is an upper bound.",
        "verify": "Record the trace again: the {launches} of {kernels:names} must be "
        "fewer, and convolution time less than {convolution_ms}.",
        "capture": "Record one step with the DNN library's log of selected algorithms enabled: it "
        "names the algorithm and the workspace of every convolution.",
    },
)


LAYOUT_TRANSPOSE = r"batched_transpose|transpose_nchw|transpose_cnhw|nchw2|nhwc2|nchwto|nhwcto"
"""Kernels that only reorder a tensor between layouts, by lower-case name; a *transposed
convolution* is not one."""

FILL_OR_CAST = r"subtensorop|memset|fillfunctor|setzero|set_zero|zero_tensor"
"""Kernels that only fill or convert a tensor, by lower-case name."""

HIGH_OVERHEAD_PCT = 20.0
MODERATE_OVERHEAD_PCT = 10.0
"""Share of convolution time in such kernels: above HIGH_OVERHEAD_PCT, act; above this one, worth
considering; below, acceptable."""


def with_overheads(rows: pl.DataFrame) -> pl.DataFrame:
    """Add time, launches and share of layout transposes, and of fills and casts.

    ``main_kernel`` becomes the longest of the other kernels, ``convolving_pct`` the efficiency that
    these would have alone.
    """
    total_us = pl.col(C.kernel_time_us)
    entry = pl.element().struct.field(C.name)
    convolving = pl.col(C.kernels).list.eval(
        entry.filter(~entry.str.to_lowercase().str.contains(f"{LAYOUT_TRANSPOSE}|{FILL_OR_CAST}"))
    )
    timed = rows.with_columns(
        **{
            C.transpose_us: kernel_names.time_us(LAYOUT_TRANSPOSE),
            "transpose_count": kernel_names.count_of(LAYOUT_TRANSPOSE),
            C.fill_us: kernel_names.time_us(FILL_OR_CAST),
            "fill_count": kernel_names.count_of(FILL_OR_CAST),
            C.main_kernel: pl.coalesce(convolving.list.first(), C.main_kernel),
        },
    )
    convolving_us = total_us - pl.col(C.transpose_us) - pl.col(C.fill_us)
    return timed.with_columns(
        library=kernel_names.library(pl.col(C.main_kernel)),
        **{
            C.transpose_pct: pl.when(total_us > 0).then(100 * pl.col(C.transpose_us) / total_us),
            C.convolving_pct: pl.when(convolving_us > 0).then(
                pl.col(C.pct_roofline) * total_us / convolving_us
            ),
        },
    )


def layout_transposes(data: CategoryData) -> Iterator[Finding]:
    """Kernels around the convolutions that only change the memory layout.

    Symptom: a model in PyTorch's default channels-first layout runs kernels that expect channels
    last, so tensors are transposed before and after each convolution, forward and backward.
    Rule: GPU time of kernels named like LAYOUT_TRANSPOSE inside the convolution operators, divided
    by the GPU time of these operators; the saving is at most that time.
    Threshold: above {HIGH_OVERHEAD_PCT}% high, above {MODERATE_OVERHEAD_PCT}% moderate, else
    acceptable; at least {MIN_COMPUTE_PCT}% of compute.
    """
    rows = _with_time(data, C.transpose_us)
    if not has_transpose_card(data.operations):
        return
    transpose_ms, overhead_pct = overhead(data.operations, C.transpose_us)
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
    last_ms = _ms(rows.filter(pl.col("layout") == CHANNELS_LAST), C.transpose_us)
    is_already_last = last_ms > transpose_ms / 2
    values: dict[str, Any] = {
        "transpose_ms": transpose_ms,
        "overhead_pct": overhead_pct,
        "compute_pct": compute_pct,
        "launches": int(rows["transpose_count"].sum()),
        "kernels": kernel_names.names_by_time(rows, LAYOUT_TRANSPOSE),
        "arguments": rows["arguments"][0] or None,
        "to_kernel_team": _to_kernel_team(rows, "transposes", C.transpose_us, LAYOUT_TRANSPOSE),
    }
    yield Finding(
        check="layout_transposes",
        category=data.key,
        **texts_of(TRANSPOSES, values),
        operations=group.operations,
        evidence={
            "transpose_ms": transpose_ms,
            "convolution_pct": overhead_pct,
            "compute_pct": compute_pct,
            "transpose_launches": values["launches"],
            **_by_direction(rows),
            "convolution_ms": data.gpu_time_ms,
            "channels_last_pct": _layout_pct(last_ms, rows) if rows["layout"].count() else None,
            "transpose_kernels": TRANSPOSES.pick("evidence.kernels", values),
        },
        algorithmic=_layout_action(is_high=is_high, is_already_last=is_already_last),
        priority_local=local if is_high else local.at_most(Priority.MEDIUM),
        priority=priority if is_high else priority.at_most(Priority.MEDIUM),
        severity=Severity.HIGH if is_high else Severity.MEDIUM,
        kernels=tuple(values["kernels"]),
        impact=impact.bounded_impact(
            transpose_ms,
            transpose_ms,
            low_ms=transpose_ms / 2,
            **data.bases,
        ),
        hypothesis=TRANSPOSES("hypothesis.last" if is_already_last else "hypothesis.first"),
    )


def has_transpose_card(rows: pl.DataFrame) -> bool:
    """Return whether transposes of all convolutions take enough time for a separate finding."""
    _, overhead_pct = overhead(rows, C.transpose_us)
    of_compute = pl.col(C.percent_of_compute) * pl.col(C.transpose_pct) / impact.FULL_PCT
    compute_pct = float(rows.select(of_compute.sum()).item() or 0.0)
    return overhead_pct >= MODERATE_OVERHEAD_PCT and compute_pct >= MIN_COMPUTE_PCT


def fills_and_casts(data: CategoryData) -> Iterator[Finding]:
    """Kernels inside the convolutions that only fill or convert tensors.

    Symptom: the DNN library clears a buffer before its kernel and converts the result after it.
    Rule: GPU time of kernels named like FILL_OR_CAST inside the convolution operators, divided by
    the GPU time of these operators; the saving is at most that time.
    Threshold: {MODERATE_OVERHEAD_PCT}% of convolution time; at least {MIN_COMPUTE_PCT}% of compute.
    """
    rows = _with_time(data, C.fill_us)
    fill_ms, overhead_pct = overhead(data.operations, C.fill_us)
    compute_pct = impact.share_pct(fill_ms, data.totals.compute_time_ms)
    if overhead_pct < MODERATE_OVERHEAD_PCT or compute_pct < MIN_COMPUTE_PCT:
        return
    backward_ms = _ms(rows.filter(pl.col(C.direction) == "backward"), C.fill_us)
    values: dict[str, Any] = {
        "fill_ms": fill_ms,
        "overhead_pct": overhead_pct,
        "compute_pct": compute_pct,
        "launches": int(rows["fill_count"].sum()),
        "backward": FILLS("backward", backward_ms=backward_ms) if backward_ms else None,
        "kernels": kernel_names.names_by_time(rows, FILL_OR_CAST),
        "convolution_ms": data.gpu_time_ms,
        "to_kernel_team": _to_kernel_team(rows, "fills", C.fill_us, FILL_OR_CAST),
    }
    priority = Priority.MEDIUM if compute_pct > impact.RELEVANT_COMPUTE_PCT else Priority.LOW
    yield Finding(
        check="fills_and_casts",
        category=data.key,
        **texts_of(FILLS, values),
        operations=OperationGroup(rows).operations,
        evidence={
            "fill_and_cast_ms": fill_ms,
            "convolution_pct": overhead_pct,
            "compute_pct": compute_pct,
            "launches": values["launches"],
            "backward_ms": backward_ms or None,
            "kernels": FILLS.pick("evidence.kernels", values),
        },
        priority_local=priority,
        priority=priority,
        kernels=tuple(values["kernels"]),
        impact=impact.bounded_impact(fill_ms, fill_ms, **data.bases),
    )


def overhead(rows: pl.DataFrame, column: str) -> tuple[float, float]:
    """Return the sum of a time column in ms and its share of the rows' GPU time in percent."""
    time_ms = _ms(rows, column)
    return time_ms, impact.share_pct(time_ms, _ms(rows, C.kernel_time_us))


def _layout_action(*, is_high: bool, is_already_last: bool) -> Message:
    if is_already_last:
        return TRANSPOSES("algorithmic.last")
    return TRANSPOSES("algorithmic.high" if is_high else "algorithmic.moderate")


def _by_direction(rows: pl.DataFrame) -> dict[str, float]:
    """Return transpose time forward and backward, if the operators show the direction."""
    sides = {
        f"{direction}_ms": _ms(rows.filter(pl.col(C.direction) == direction), C.transpose_us)
        for direction in ("forward", "backward")
    }
    return sides if any(sides.values()) else {}


def _layout_pct(last_ms: float, rows: pl.DataFrame) -> float:
    return impact.share_pct(last_ms, _ms(rows, C.transpose_us))


def _with_time(data: CategoryData, column: str) -> pl.DataFrame:
    rows = data.operations.filter(pl.col(column) > 0)
    return rows.sort(column, C.uid, descending=[True, False])


def _to_kernel_team(
    rows: pl.DataFrame, key: str, column: str, pattern: str
) -> tuple[Message, Message]:
    """Return what to give to the kernel team.

    The call with most of this time; if it cannot be replayed, the names of the kernels.
    """
    first = OperationGroup(rows.head(1)).heaviest
    package = TO_KERNEL_TEAM(
        key,
        arguments=first["arguments"],
        share_pct=impact.share_pct(first[column], first[C.kernel_time_us]),
    )
    names = TO_KERNEL_TEAM("names", kernels=kernel_names.names_by_time(rows, pattern))
    return if_replayed(first[C.uid], package), if_replayed(first[C.uid], names, can_be=False)


def _ms(rows: pl.DataFrame, column: str) -> float:
    return float(rows[column].sum()) / 1000
