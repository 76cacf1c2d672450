"""Parts of the GPU time that are not the model's main work: padding, routing, reductions, head."""

from collections.abc import Iterator

import polars as pl

from jarvis import impact
from jarvis.analyses.base import CategoryData
from jarvis.analyses.system.inference.events import (
    LANGUAGE_PHASES,
    operation_uids,
    step_events,
    time_ms,
)
from jarvis.analyses.system.inference.messages import MESSAGES
from jarvis.findings import Finding, Priority, texts_of
from jarvis.schemas.names import C

PADDING_PCT = 10.0
"""Share of padded rows of a step from which padding is a finding."""

ROUTING_PCT = 15.0
"""Share of routing and sorting in the time of experts."""

REDUCTION_PCT = 10.0
"""Share of reductions in the time of attention: splitting the keys pays as long as they take
little of what it gains."""

HEAD_PCT = 10.0
"""Share of the kernels behind the layers in the GPU time of steps that generate text: with a usual
vocabulary the last product is a few percent of them."""

OF_LAYERS = ("attention", "kv_write")
"""Blocks that only layers have."""

REDUCTION = r"(?i)reduce|combine|merge_?state"
"""Pattern of attention kernels that combine the parts of split keys."""


def padding_waste(data: CategoryData) -> Iterator[Finding]:
    """Rows that only pad the batch of a captured graph.

    Symptom: a graph is captured for more tokens than the step has, and computes all of them.
    Rule: the batch of the capture less the tokens of the step, as a share of the batch, of the
    time of operations with a perf model. At most this share of their time is saved; the middle
    estimate has only those that compute limits, since reading weights takes as long for fewer rows.
    Threshold: {PADDING_PCT}% of the batch.
    """
    padded = _padded_steps(data)
    if padded.is_empty():
        return
    operations = data.tables["operations"].filter(C.has_perf_model)
    rows = operations.select(pl.col(C.uid).alias(C.operation_uid), C.bound)
    events = step_events(data).join(rows, on=C.operation_uid).join(padded, on=C.step)
    wasted = events.with_columns(wasted=pl.col(C.dur_ns) * pl.col("padding"))
    most_ms = float(wasted["wasted"].sum()) / 1e6
    mid_ms = float(wasted.filter(pl.col(C.bound) == "compute")["wasted"].sum()) / 1e6
    padding_pct = 100 * float(padded["padding"].to_numpy().mean())
    values = {
        "steps": padded.height,
        "tokens": int(padded["tokens"].sum()),
        "rows": int(padded[C.batch].sum()),
        "padding_pct": padding_pct,
        "time_ms": time_ms(events),
    }
    yield Finding(
        check="padding_waste",
        category=data.key,
        **texts_of(MESSAGES, values, suffix="padding"),
        evidence={"step_count": padded.height, "padding_pct": padding_pct},
        kernel=(),
        priority_local=Priority.LOW,
        priority=Priority.LOW,
        impact=impact.bounded_impact(time_ms(events), most_ms, mid_ms=mid_ms, **data.bases)
        if events.height
        else None,
        shared_uids=operation_uids(events),
    )


def _padded_steps(data: CategoryData) -> pl.DataFrame:
    """Return ``step, tokens, batch, padding`` (a share) of steps that pad enough.

    The batch is that of the capture, else the one that the engine annotates.
    """
    batches = data.tables["graph_launches"].select(
        pl.col(C.launch_uid).alias(C.graph_launch_uid), C.batch
    )
    captured = (
        data.tables["inference_events"]
        .select(C.step, C.graph_launch_uid)
        .unique()
        .join(batches, on=C.graph_launch_uid)
        .group_by(C.step)
        .agg(pl.col(C.batch).max())
    )
    tokens = pl.sum_horizontal(C.ctx_tokens, C.gen_tokens)
    return (
        data.tables["inference_steps"]
        .filter(pl.col(C.part).is_null())
        .join(captured, on=C.step, how="left")
        .select(
            C.step,
            tokens.alias("tokens"),
            pl.coalesce(C.batch, C.padded_requests).alias(C.batch),
        )
        .filter(pl.col("tokens") > 0)
        .with_columns(padding=1 - pl.col("tokens") / pl.col(C.batch))
        .filter(pl.col("padding") > PADDING_PCT / 100)
    )


def routing_share(data: CategoryData) -> Iterator[Finding]:
    """Routing of tokens to experts that takes long beside the experts.

    Symptom: sorting, counting and scattering tokens takes a good part of a mixture of experts.
    Rule: GPU time of the block `moe_route` as a share of that of `moe_route` and `moe_gemm`. At
    most all of it beyond the threshold is saved.
    Threshold: {ROUTING_PCT}%.
    """
    events = step_events(data)
    routing = events.filter(pl.col(C.block) == "moe_route")
    experts_ms = time_ms(events.filter(pl.col(C.block).is_in(["moe_route", "moe_gemm"])))
    yield from _share(data, "routing", routing, experts_ms, ROUTING_PCT)


def attention_reduction(data: CategoryData) -> Iterator[Finding]:
    """Split attention whose reductions take long.

    Symptom: attention splits the keys, and the kernels that combine the parts take long.
    Rule: kernels of the block `attention` whose names are those of reductions, as a share of the
    block. At most all of their time beyond the threshold is saved.
    Threshold: {REDUCTION_PCT}%.
    """
    attention = step_events(data).filter(pl.col(C.block) == "attention")
    reductions = attention.filter(pl.col(C.name).str.contains(REDUCTION))
    yield from _share(data, "reduction", reductions, time_ms(attention), REDUCTION_PCT)


def head_share(data: CategoryData) -> Iterator[Finding]:
    """Last product and sampling that take long beside the layers.

    Symptom: what runs behind the last layer takes a good part of a step that generates text.
    Rule: GPU events behind the last one of a layer, as a share of the GPU time of these steps, if
    none of them is attention, which would be that of a layer that is not recognized. At most all of
    it beyond the threshold is saved.
    Threshold: {HEAD_PCT}%.
    """
    events = step_events(data).filter(pl.col(C.phase).is_in(LANGUAGE_PHASES))
    last = events.drop_nulls(C.kind).group_by(C.step).agg(pl.col(C.ts_ns).max().alias(C.last_ns))
    in_steps = events.join(last, on=C.step)
    head = in_steps.filter(pl.col(C.ts_ns) > pl.col(C.last_ns))
    if head.filter(pl.col(C.block).is_in(OF_LAYERS)).height:
        return
    yield from _share(data, "head", head, time_ms(in_steps), HEAD_PCT)


def _share(
    data: CategoryData, key: str, part: pl.DataFrame, whole_ms: float, threshold_pct: float
) -> Iterator[Finding]:
    """Yield the finding on a part of some GPU time that takes more than a share of it."""
    share_pct = impact.share_pct(time_ms(part), whole_ms)
    if share_pct <= threshold_pct:
        return
    beyond_ms = time_ms(part) - whole_ms * threshold_pct / 100
    longest = part.group_by(C.name).agg(pl.col(C.dur_ns).sum())
    names = longest.sort(C.dur_ns, C.name, descending=[True, False])[C.name]
    values = {
        "time_ms": time_ms(part),
        "share_pct": share_pct,
        "whole_ms": whole_ms,
        "kernels": part.height,
        "names": names.to_list(),
        "threshold_pct": threshold_pct,
    }
    yield Finding(
        check=_CHECKS[key],
        category=data.key,
        **texts_of(MESSAGES, values, suffix=key),
        **texts_of(MESSAGES, values, suffix="share"),
        evidence={
            "gpu_time_ms": time_ms(part),
            "share_pct": share_pct,
            "kernels": part.height,
            "longest_kernels": MESSAGES.pick("evidence.names", values),
        },
        priority_local=Priority.LOW,
        priority=Priority.LOW,
        impact=impact.bounded_impact(time_ms(part), beyond_ms, **data.bases),
        shared_uids=operation_uids(part),
        kernels=tuple(names),
    )


_CHECKS = {
    "routing": routing_share.__name__,
    "reduction": attention_reduction.__name__,
    "head": head_share.__name__,
}
