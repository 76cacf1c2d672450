"""Operators that are called repeatedly for less time than a launch takes."""

from collections.abc import Iterator

import polars as pl

from jarvis import impact
from jarvis.analyses.advice import values_of
from jarvis.analyses.base import CategoryData
from jarvis.analyses.operations import MIN_COMPUTE_PCT, SHORT_CALL_US, OperationGroup
from jarvis.findings import Finding, Priority, texts_of
from jarvis.schemas.names import C
from jarvis.text.messages import MessageTable, action

MANY_CALLS = 100
"""Number of short calls of one operator from which batching is worthwhile."""

MESSAGES = MessageTable(
    "small_calls",
    {
        "title": "Many short calls: {name}",
        "of_all": ", of {all_calls:,} in all,",
        "issue": "{calls} of {name}{of_all} take {mean_us:number} µs of GPU time on average, so "
        "launching takes about as long as the work of {time_ms}.",
        "algorithmic": "Batch the {calls} of {name}{place} or let a compiler fuse them, so that "
        "one launch does the work of many.",
        "kernel": [
            action(
                "Replay the {launches} from a GPU graph.",
                "not has_graph_replay",
            ),
            action(
                "Use a multi-tensor or grouped kernel for the calls that follow one another.",
                "calls_are_independent",
            ),
        ],
        "caveat": "The saving is not quantified: the gaps between launches are GPU idle time, not "
        "time of this operator.",
        "verify": "Record the trace again: {name} must have fewer than {calls}, and the idle time "
        "of the GPU must fall.",
        "capture": [
            action(
                "Record with `with_stack=True` to find the loop that makes the {calls}{place}.",
                "not has_stacks",
            ),
            action(
                "Record with CPU activity to see the gaps between their launches.",
                "not has_host_calls",
            ),
        ],
    },
)


def many_small_calls(data: CategoryData) -> Iterator[Finding]:
    """Many calls that are shorter than a launch.

    Symptom: one operator is called repeatedly for a few microseconds each.
    Rule: an operator with at least {MANY_CALLS} calls, of equal arguments or groups of them whose
    mean GPU time is below {SHORT_CALL_US} µs, among the rows that no ``low_efficiency`` finding
    covers and no graph replays, and that passes its time test.
    Threshold: {MANY_CALLS} calls, {SHORT_CALL_US} µs; {impact.BOTTLENECK_TIME_MS} ms or
    {impact.BOTTLENECK_CATEGORY_PCT}% of category time; at least {MIN_COMPUTE_PCT}% of compute.
    """
    is_low = impact.has_efficiency() & (pl.col(C.pct_roofline) < impact.BOTTLENECK_EFFICIENCY_PCT)
    is_replayed = pl.col(C.uid).is_in(data.replayed_uids)
    is_reported = is_low | is_replayed | pl.col(C.uid).is_in(data.explained_uids)
    can_be_short = _is_short() | (pl.col(C.populations).list.len() > 0)
    calls = pl.col(C.operation_count).filter(can_be_short & ~is_reported).sum().over(C.name)
    compute_pct = pl.col(C.percent_of_compute).filter(~is_reported).sum().over(C.name)
    is_candidate = ~is_reported & (calls >= MANY_CALLS) & (compute_pct >= MIN_COMPUTE_PCT)
    candidates = (  # only the rows with short calls are copied with all of their columns
        data.operations.select(
            C.name,
            C.kernel_time_us,
            C.uid,
            is_candidate=is_candidate,
            can_be_short=can_be_short,
            place=pl.int_range(pl.len()),
        )
        .filter("is_candidate")
        .sort(C.kernel_time_us, C.uid, descending=[True, False])
        .group_by(C.name, maintain_order=True)
        .agg("place", short=pl.col("place").filter("can_be_short"))
    )
    for place, short in zip(candidates["place"], candidates["short"], strict=True):
        group = OperationGroup(_short_part(data.operations[short]))
        if group.calls < MANY_CALLS or group.compute_pct < MIN_COMPUTE_PCT:
            continue
        if impact.is_time_relevant(group.time_ms, group.category_pct):
            yield _small_calls(data, OperationGroup(data.operations, place), group)


def _is_short() -> pl.Expr:
    """Return whether the mean call of a row is short."""
    return pl.col(C.kernel_time_us) < SHORT_CALL_US * pl.col(C.operation_count)


def _short_part(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with only their groups of short calls: counts, times and shares."""
    each = pl.element().struct
    is_short = each.field(C.mean_us) < SHORT_CALL_US
    groups = {C.count: C.operation_count, C.total_us: C.kernel_time_us}
    in_groups = {
        column: pl.col(C.populations).list.agg(each.field(field).filter(is_short).sum())
        for field, column in groups.items()
    }
    short = {
        column: pl.when(pl.col(C.populations).list.len() > 0)
        .then(part)
        .otherwise(pl.when(_is_short()).then(pl.col(column)).otherwise(0))
        for column, part in in_groups.items()
    }
    of_calls = short[C.operation_count] / pl.col(C.operation_count)
    of_time = short[C.kernel_time_us] / pl.col(C.kernel_time_us)
    scaled = {
        C.kernel_count: (pl.col(C.kernel_count) * of_calls).round().cast(pl.Int64),
        C.percent_of_category: pl.col(C.percent_of_category) * of_time,
        C.percent_of_compute: pl.col(C.percent_of_compute) * of_time,
    }
    part = rows.with_columns(**short, **scaled).filter(pl.col(C.operation_count) > 0)
    return part.with_columns(pl.lit(None, dtype=rows[C.populations].dtype).alias(C.populations))


def _small_calls(data: CategoryData, every: OperationGroup, group: OperationGroup) -> Finding:
    """Return the finding on the short calls (``group``) of ``every`` call of an operator."""
    priority = Priority.MEDIUM if group.compute_pct > impact.RELEVANT_COMPUTE_PCT else Priority.LOW
    mean_us = 1000 * group.time_ms / group.calls
    is_all = group.calls == every.calls
    values = values_of(group) | {
        "launches": group.launches,
        "mean_us": mean_us,
        "time_ms": group.time_ms,
        "of_all": None if is_all else MESSAGES("of_all", all_calls=every.calls),
    }
    uids = set(group.rows[C.uid])
    return Finding(
        check="many_small_calls",
        category=data.key,
        **texts_of(MESSAGES, values),
        operations=tuple(each for each in every.operations if each.uid in uids),
        evidence={
            "calls": group.calls,
            "launches": group.launches,
            "mean_gpu_time_us": mean_us,
            "gpu_time_ms": group.time_ms,
            "compute_pct": group.compute_pct,
        },
        priority_local=priority,
        priority=priority,
    )
