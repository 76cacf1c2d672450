"""What a user can choose for a change: findings, operations, host time, waits and collectives."""

from collections.abc import Mapping
from dataclasses import dataclass
from glob import escape

import polars as pl
import streamlit as st

from jarvis.changes import COMPUTE
from jarvis.dashboard.session.state import HASH_OPENED, Opened
from jarvis.perf_report.timeline.host_spans import SYNCHRONIZATION
from jarvis.perf_report.work import COMPUTE as COMPUTE_KIND
from jarvis.reports.ranking import recommendations
from jarvis.run import Run
from jarvis.schemas.names import C
from jarvis.text.format import milliseconds
from jarvis.text.messages import to_text

ALL = "*"
MAX_NAMES = 200
"""Maximum number of operations or owners of host time to choose from, most time first."""

_MAX_CACHED_RUNS = 8

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Suggestions:
    """Names that a change can use, as written in the change, each with its label."""

    findings: Labels
    kernels: Labels
    host: Labels
    waits: Labels
    collectives: Labels


@st.cache_resource(max_entries=_MAX_CACHED_RUNS, show_spinner=False, hash_funcs=HASH_OPENED)
def suggestions_of(now: Opened) -> Suggestions:
    """Return the names that a change of this run can use; the run must have a simulation."""
    run = now.run
    return Suggestions(
        findings={
            each.label: f"{each.label} · {to_text(each.finding.title).replace('`', '')}"
            for each in recommendations(run)
            if each.finding.impact is not None
        },
        kernels=_kernels(run),
        host=_host(run),
        waits=_waits(run),
        collectives=_collectives(run),
    )


def _kernels(run: Run) -> Labels:
    """Return all computation, the categories, and the operations with most time."""
    compute = run.table("gpu_work").filter(pl.col(C.kind) == COMPUTE_KIND)
    if compute.is_empty():
        return {}
    time_ms = pl.col(C.kernel_time_us) / 1e3
    operations = run.table("operations")
    labels = {COMPUTE: f"All computation · {_sum_ms(compute[C.dur_ns], 1e6)} kernel time"}
    for column, meaning in ((C.category, "kernel time (category)"), (C.name, "kernel time")):
        times = operations.group_by(column).agg(pl.col(C.kernel_time_us).sum())
        labels |= {
            name: label
            for name, label in _longest(times, column, time_ms, meaning)
            if name not in labels
        }
    return labels


def _host(run: Run) -> Labels:
    """Return operators, frames and annotations by their own host time, without spans inside."""
    spans = run.table("sim_spans").filter(pl.col(C.cause) != SYNCHRONIZATION)
    marks = run.table("steps")[C.name].drop_nulls().unique()
    owned = own_time(spans.unique(C.uid, keep="first", maintain_order=True))
    by_name = (
        owned.filter(~pl.col(C.name).is_in(marks.implode()))
        .group_by(C.name)
        .agg(pl.col("own_ns").sum())
    )
    found = _longest(by_name, C.name, pl.col("own_ns") / 1e6, "of its own")
    return {escape(name): label for name, label in found}


def own_time(spans: pl.DataFrame) -> pl.DataFrame:
    """Add ``own_ns``: the time of each span without that of the spans directly inside it."""
    length = pl.col(C.end_ns) - pl.col(C.start_ns)
    ordered = spans.sort(C.thread, C.start_ns, length, descending=[False, False, True])
    columns = ordered.select(C.thread, C.start_ns, C.end_ns).iter_rows()
    own: list[int] = []
    around: list[tuple[int, int, int]] = []
    for row, (thread, start, end) in enumerate(columns):
        own.append(end - start)
        while around and (around[-1][0] != thread or around[-1][1] <= start):
            around.pop()
        if around:
            own[around[-1][2]] -= min(end, around[-1][1]) - start
        around.append((thread, end, row))
    return ordered.with_columns(pl.Series("own_ns", own, dtype=pl.Int64))


def _waits(run: Run) -> Labels:
    calls = run.table("sim_spans").filter(pl.col(C.cause) == SYNCHRONIZATION)
    if calls.is_empty():
        return {}
    time_ns = pl.col(C.end_ns) - pl.col(C.start_ns)
    times = calls.group_by(C.name).agg(time_ns.sum().alias(C.dur_ns))
    whole = f"All calls that wait for the GPU · {_sum_ms(times[C.dur_ns], 1e6)}"
    named = _longest(times, C.name, pl.col(C.dur_ns) / 1e6, "in these calls")
    return {ALL: whole, **{escape(name): label for name, label in named}}


def _collectives(run: Run) -> Labels:
    collectives = run.table("collectives")
    if collectives.is_empty():
        return {}
    name = pl.coalesce(C.collective, C.name).alias(C.name)
    times = collectives.group_by(name).agg(pl.col(C.dur_us).sum())
    whole = f"All collectives · {_sum_ms(times[C.dur_us], 1e3)}"
    named = _longest(times, C.name, pl.col(C.dur_us) / 1e3, "kernel time")
    return {ALL: whole, **{escape(each): label for each, label in named}}


def _longest(
    times: pl.DataFrame, name: str, time_ms: pl.Expr, meaning: str
) -> list[tuple[str, str]]:
    """Return the names with most time, each with a label that has its time in ms."""
    found = (
        times.select(name, own_ms=time_ms)
        .drop_nulls()
        .sort("own_ms", name, descending=[True, False])
    )
    return [
        (text, f"{text} · {milliseconds(time)} {meaning}")
        for text, time in found.head(MAX_NAMES).iter_rows()
    ]


def _sum_ms(times: pl.Series, per_ms: float) -> str:
    return milliseconds(float(times.sum()) / per_ms)
