"""Layers that take longer than equal ones, and the many short kernels in layers."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import polars as pl

from jarvis import impact
from jarvis.analyses.base import CategoryData
from jarvis.analyses.system.inference.events import (
    operation_uids,
    share_of_steps_pct,
    step_events,
    time_ms,
)
from jarvis.analyses.system.inference.messages import MESSAGES
from jarvis.core.arrays import Float64s
from jarvis.findings import Finding, Priority, texts_of
from jarvis.perf_report.kernel_blocks import title_of
from jarvis.perf_report.serving.layers import MIN_RATIO as MIN_RATIO
from jarvis.perf_report.serving.layers import ODD_DEVIATIONS as ODD_DEVIATIONS
from jarvis.perf_report.serving.layers import is_regular, odd_layers, slow_group
from jarvis.perf_report.serving.steps import SHORT_KERNEL_NS
from jarvis.preconditions import COMPILED_KERNEL
from jarvis.schemas.names import C
from jarvis.text.messages import Message

SHORT_KERNEL_US = SHORT_KERNEL_NS / 1000
SHORT_TAIL_PCT = 10.0
"""Share of GPU time from which short kernels are a finding: below, a kernel that is fused away
saves less than the noise of a step."""

FLOOR_QUANTILE = 0.1
"""Quantile of the durations of short kernels that a kernel with little work takes."""

FUSED_PAIRS = (
    ("elementwise", "norm"),
    ("norm", "quant"),
    ("rope", "kv_write"),
    ("activation", "quant"),
)
"""Blocks of neighbors in a layer that libraries have as one kernel: addition and normalization,
normalization or activation and quantization, rotary embedding and the write to the cache."""

ADDITION = "(?i)add"
"""Pattern of the elementwise kernels that add."""


def slow_layers(data: CategoryData) -> Iterator[Finding]:
    """Layers that take longer than equal ones.

    Symptom: one layer, or a few, of a kind that repeats takes far longer than the median layer.
    Rule: layers whose kernels exceed the median layer of their kind by more than {ODD_DEVIATIONS}
    median absolute deviations and by {MIN_RATIO:.0%}, unless the slower ones are a second kind in a
    regular order. The saving is what they take beyond the median, in all steps.
    Threshold: {impact.RELEVANT_STEP_PCT}% of the step time.
    """
    for _, events in step_events(data).drop_nulls(C.kind).group_by(C.kind, maintain_order=True):
        replays = events.filter((pl.col(C.layer) == 0) & (pl.col(C.position) == 0)).height
        layers = events.group_by(C.layer).agg(pl.col(C.dur_ns).sum()).sort(C.layer)
        times_us = layers[C.dur_ns].to_numpy() / replays / 1e3
        slow = slow_group(times_us)
        odd = odd_layers(times_us)
        if not odd or (slow is not None and is_regular(slow)):
            continue
        own = events.filter(pl.col(C.layer).is_in(odd))
        median_us = float(np.median(times_us))
        excess_ms = time_ms(own) - len(odd) * replays * median_us / 1e3
        if share_of_steps_pct(data, excess_ms) >= impact.RELEVANT_STEP_PCT:
            yield _slow_layers(data, events, odd, times_us, replays, excess_ms)


def _slow_layers(
    data: CategoryData,
    events: pl.DataFrame,
    odd: list[int],
    times_us: Float64s,
    replays: int,
    excess_ms: float,
) -> Finding:
    own, grown = events.filter(pl.col(C.layer).is_in(odd)), _grown(events, odd)
    median_us = float(np.median(times_us))
    phase, kind = own.select(C.phase, C.kind).row(0)
    rows = data.tables["inference_layers"].drop_nulls(C.kind)
    per_period = rows.filter(pl.col(C.kind) == kind)[C.layer_count][0] // times_us.size
    of = "groups" if per_period > 1 else "layers"
    has_kinds = rows[C.kind].n_unique() > 1
    values = {
        "of_phase": MESSAGES("of_phase", phase=phase) if phase else None,
        "of_kind": MESSAGES("of_kind", kind=str(kind)) if has_kinds else None,
        "numbers": [MESSAGES("number", layer=str(each)) for each in odd],
        "layers": len(odd),
        "of": times_us.size,
        "replays": replays,
        "median_us": median_us,
        "slowest_us": float(times_us.max()),
        "excess_ms": excess_ms,
        "per_period": per_period,
        "grown": MESSAGES("issue.grown", **grown._asdict()),
    }
    listed = [
        MESSAGES("evidence.layer", layer=str(each), time_us=float(times_us[each])) for each in odd
    ]
    return Finding(
        check=slow_layers.__name__,
        category=data.key,
        title=MESSAGES.pick(f"title.{of}", values),
        evidence={
            "layers": MESSAGES("evidence.layers", layers=listed),
            "median_layer_us": median_us,
            "gpu_time_ms": time_ms(own),
            "kernel": grown.kernel,
        },
        issue=MESSAGES.pick(f"issue.{of}", values),
        algorithmic=MESSAGES.pick("algorithmic.layers", values),
        kernel=MESSAGES("kernel.layers"),
        hypothesis=MESSAGES("hypothesis.layers" if replays > 1 else "hypothesis.layers.once"),
        caveat=MESSAGES("caveat.layers"),
        verify=MESSAGES.pick("verify.layers", values),
        capture=MESSAGES("capture.layers") if replays == 1 else None,
        priority_local=Priority.LOW,
        priority=Priority.LOW,
        impact=impact.bounded_impact(time_ms(own), excess_ms, mid_ms=excess_ms, **data.bases),
        shared_uids=operation_uids(own),
        events=tuple(own[C.uid]),
    )


class _Grown(NamedTuple):
    """The position in odd layers that takes most time beyond the median of all layers."""

    kernel: str
    position: int
    grown_us: float
    usual_us: float


def _grown(events: pl.DataFrame, odd: list[int]) -> _Grown:
    duration = pl.col(C.dur_ns)
    usual = duration.median().over(C.position)
    is_odd = pl.col(C.layer).is_in(odd)
    by_position = (
        events.with_columns(usual=usual)
        .filter(is_odd)
        .group_by(C.position)
        .agg(
            pl.col(C.name).first(),
            duration.mean(),
            pl.col("usual").first(),
            excess=(duration - pl.col("usual")).sum(),
        )
        .sort("excess", C.position, descending=[True, False])
    )
    row = by_position.row(0, named=True)
    return _Grown(row[C.name], row[C.position], row[C.dur_ns] / 1e3, row["usual"] / 1e3)


def short_kernel_tail(data: CategoryData) -> Iterator[Finding]:
    """Many kernels that take hardly longer than a kernel without work.

    Symptom: a good part of the GPU time is in kernels of a few microseconds.
    Rule: kernels below {SHORT_KERNEL_US} µs of the steps. Of neighbors in a layer that libraries
    have as one kernel, the middle estimate saves the shorter one; at most, each kernel takes as
    long as the {FLOOR_QUANTILE:.0%} quantile of their durations, and each pair is one kernel.
    Threshold: {SHORT_TAIL_PCT}% of the GPU time of the steps.
    """
    events = step_events(data)
    short = events.filter((pl.col(C.cat) == "kernel") & (pl.col(C.dur_ns) < SHORT_KERNEL_NS))
    share_pct = impact.share_pct(time_ms(short), time_ms(events))
    if short.is_empty() or share_pct < SHORT_TAIL_PCT:
        return
    floor_ms = float(short[C.dur_ns].quantile(FLOOR_QUANTILE) or 0) / 1e6
    pairs = fused_pairs(events)
    pairs_ms = float(pairs["shorter_ns"].sum()) / 1e6
    most_ms = time_ms(short) - floor_ms * (short.height - pairs.height)
    names = short.group_by(C.name).agg(pl.col(C.dur_ns).sum()).sort(C.dur_ns, C.name)[C.name]
    pair_texts = [*_pair_texts(pairs)]
    values = {
        "kernels": short.height,
        "limit_us": SHORT_KERNEL_US,
        "time_ms": time_ms(short),
        "share_pct": share_pct,
        "floor_ms": floor_ms,
        "most_ms": most_ms,
        "pairs": MESSAGES("issue.pairs", pairs=pair_texts, pairs_ms=pairs_ms)
        if pair_texts
        else None,
        "fused": MESSAGES("issue.fused") if pair_texts else None,
    }
    texts = texts_of(MESSAGES, values, suffix="short")
    yield Finding(
        check="short_kernel_tail",
        category=data.key,
        **texts | (texts_of(MESSAGES, suffix="short.pairs") if pair_texts else {}),
        evidence={
            "short_kernels": short.height,
            "gpu_time_ms": time_ms(short),
            "gpu_time_pct": share_pct,
            "floor_us": floor_ms * 1e3,
            "fused_pairs": MESSAGES("evidence.pairs", pairs=pair_texts) if pair_texts else None,
        },
        priority_local=Priority.LOW,
        priority=Priority.LOW,
        impact=impact.bounded_impact(
            time_ms(short),
            most_ms,
            mid_ms=min(pairs_ms, most_ms) if pairs.height else None,
            **data.bases,
        ),
        shared_uids=operation_uids(short),
        kernels=tuple(names.reverse()),
    )


def fused_pairs(events: pl.DataFrame) -> pl.DataFrame:
    """Return ``first, second, shorter_ns`` of FUSED_PAIRS that follow each other in a layer.

    ``first`` and ``second`` are blocks; a kernel is in one pair. Kernels of PyTorch's compiler are
    in none, as it decides on their fusion.
    """
    queue = [C.step, C.graph_launch_uid, C.device, C.stream]
    after = {name: pl.col(name).shift(-1).over(queue) for name in (C.block, C.layer, C.dur_ns)}
    is_compiled = pl.col(C.name).str.contains(COMPILED_KERNEL)
    is_other = (pl.col(C.block) == "elementwise") & ~pl.col(C.name).str.contains(ADDITION)
    pairs = (
        events.sort(C.ts_ns, C.uid)
        .with_row_index("place")
        .with_columns(
            second=after[C.block],
            is_layer=(after[C.layer] == pl.col(C.layer)).fill_null(value=False),
            shorter_ns=pl.min_horizontal(C.dur_ns, after[C.dur_ns]),
            is_left=is_compiled | is_compiled.shift(-1).over(queue) | is_other,
        )
        .filter(pl.col("is_layer") & ~pl.col("is_left"))
        .join(
            pl.DataFrame(FUSED_PAIRS, schema=[C.block, "second"], orient="row"),
            on=[C.block, "second"],
            maintain_order="left",
        )
    )
    # Of three kernels in a row, which are two pairs, the first two are one.
    is_second = (pl.col("place").diff() == 1).fill_null(value=False)
    return pairs.filter(~is_second).select(pl.col(C.block).alias("first"), "second", "shorter_ns")


def _pair_texts(pairs: pl.DataFrame) -> Iterator[Message]:
    """Yield how often each pair occurs, most often first."""
    found = pairs.group_by("first", "second").len()
    for first, second, count in found.sort(
        "len", "first", "second", descending=[True, False, False]
    ).iter_rows():
        yield MESSAGES("pair", count=count, first=title_of(first), second=title_of(second))
