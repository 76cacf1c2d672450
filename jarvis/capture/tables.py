"""Tables of a merge: how each graph launch was matched, and what each replayed event inherits."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from jarvis.capture.matching import Candidate, Match, replays
from jarvis.capture.merged import MergedTrace
from jarvis.perf_report.call_tree.stacks import call_stacks
from jarvis.perf_report.calls import ARGUMENTS, host_calls
from jarvis.perf_report.kernel_blocks import block_of
from jarvis.perf_report.literals import tuples_text
from jarvis.schemas import conform, dtypes
from jarvis.schemas.names import C
from jarvis.trace import Trace

NO_CAPTURES = "no capture was given"

REPLAYED_PCT = 1.0
"""Above this share of GPU time replayed from graphs without captures, shapes are missing."""


def graph_tables(trace: Trace, in_layers: pl.DataFrame) -> Mapping[str, pl.DataFrame]:
    """Return ``graph_launches`` and ``graph_kernel_map`` of the graphs that a trace replays.

    Args:
        trace: The trace.
        in_layers: ``uid, kind, layer`` of the GPU events in layers.
    """
    matches = (
        trace.matches
        if isinstance(trace, MergedTrace)
        else tuple(Match(replay, None, reason=NO_CAPTURES) for replay in replays(trace))
    )
    return {
        "graph_launches": graph_launches(matches),
        "graph_kernel_map": kernel_map(matches, in_layers),
    }


def graph_launches(matches: Sequence[Match]) -> pl.DataFrame:
    """Return a row for each graph launch with GPU work (schema: ``graph_launches``)."""
    return pl.DataFrame([*map(_launch, matches)], schema=dtypes("graph_launches"))


def _launch(match: Match) -> dict[str, Any]:
    replay, chosen = match.replay, match.chosen
    events = replay.events
    row = {
        C.launch_uid: replay.launch_uid,
        C.graph_key: replay.key,
        C.graph_id: replay.graph_id,
        C.step: replay.annotation,
        C.streams: events[C.stream].unique().sort().to_list(),
        C.kernel_count: events.height,
        C.time_ms: sum(events[C.dur_ns]) / 1e6,
        C.host_time_us: replay.dur_ns / 1e3,
        C.matched_count: 0,
        C.coverage_pct: 0.0,
        C.replayed_only_count: events.height,
        C.confidence: match.confidence or None,
        C.reason: match.reason or None,
    }
    return row if chosen is None else row | _capture(chosen, events.height)


def _capture(chosen: Candidate, events: int) -> dict[str, Any]:
    matched, rule = len(chosen.alignment.pairs), chosen.alignment.rule
    return {
        C.capture_file: chosen.capture.file,
        C.window: chosen.index,
        C.batch: chosen.capture.batch,
        C.mode: chosen.capture.mode,
        C.rule: None if rule is None else rule.name.lower().replace("_", " "),
        C.matched_count: matched,
        C.coverage_pct: 100 * chosen.coverage,
        C.replayed_only_count: events - matched,
        C.captured_only_count: chosen.leftovers,
    }


def kernel_map(matches: Sequence[Match], in_layers: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each event of each distinct graph (schema: ``graph_kernel_map``).

    Args:
        matches: Each launch of a graph.
        in_layers: ``uid, kind, layer`` of the GPU events in layers.
    """
    first: dict[str, Match] = {}
    for match in matches:
        first.setdefault(match.replay.key, match)
    schema = dtypes("graph_kernel_map") | {C.uid: pl.Int64()}
    empty = pl.DataFrame(schema=schema).drop(C.kind, C.layer)
    rows = pl.concat([empty, *map(_kernels, first.values())], how="diagonal_relaxed")
    layers = in_layers.select(C.uid, C.kind, C.layer)
    return conform(rows.join(layers, on=C.uid, how="left"), "graph_kernel_map")


def _kernels(match: Match) -> pl.DataFrame:
    names = match.replay.events[C.name]
    rows = pl.DataFrame(
        {
            C.graph_key: [match.replay.key] * names.len(),
            C.position: range(names.len()),
            C.uid: match.replay.events[C.uid],
            C.kernel: names,
            C.block: [block_of(name) for name in names],
        }
    )
    if match.chosen is None:
        return rows
    pairs = pl.DataFrame(
        match.chosen.alignment.pairs, schema=[C.position, C.dispatch], orient="row"
    )
    window = match.chosen.window
    ops = window.trace.cpu_ops.select(
        pl.col(C.uid).alias(C.op_uid),
        pl.col(C.name).cast(pl.String).alias(C.operation),
        *(tuples_text(argument) for argument in ARGUMENTS),
    )
    calls = window.dispatches.select(
        pl.int_range(pl.len()).alias(C.dispatch), C.uid, C.op_uid
    ).join(ops, on=C.op_uid, how="left")
    calls = calls.hstack([*_callers(match.chosen, calls[C.uid])])
    return rows.join(pairs, on=C.position, how="left").join(calls, on=C.dispatch, how="left")


def _callers(chosen: Candidate, uids: pl.Series) -> Iterator[pl.Series]:
    """Yield the modules around captured calls, and the nearest Python frame outside frameworks."""
    trace = chosen.window.trace
    stacks = call_stacks(
        trace.python_call_tree, host_calls(trace, with_python=True), trace.backwards, uids
    )
    modules: Sequence[list[str]] = [stacks.modules(uid) for uid in uids]
    yield pl.Series(C.nn_module_chain, modules, dtype=pl.List(pl.String))
    yield pl.Series(C.entry_point, [stacks.entry_point(uid) for uid in uids], dtype=pl.String)
