"""A trace whose replayed graphs have the host calls of their captures.

Captured calls are rows of the event tables like recorded ones. Their times are in a region of their
own behind the last event, one for each replay, and their ids are new, so that neither means
anything together with recorded calls. They nest inside the graph launch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import polars as pl

from jarvis.capture.files import Capture, read_captures
from jarvis.capture.matching import Match, Matcher, replays
from jarvis.capture.windows import Template
from jarvis.perf_report.intervals import END
from jarvis.schemas.names import C
from jarvis.trace import Trace
from jarvis.trace.links import CAPTURE_ROOT
from jarvis.trace.tables import RUNTIME_CATEGORIES, THREAD_KEY

_MARGIN_NS = 1_000
"""Free time between the regions of two replays."""

_LINKS = (C.external_id, "correlation", C.sequence_number)


@dataclass(frozen=True)
class MergedTrace(Trace):
    """A trace with captured calls.

    ``matches`` are all graph launches. ``regions`` has a row for each replay with a capture:
    ``region_ns`` (its begin), and the launch as ``launch_uid, pid, tid, launch_ns, launch_dur_ns``,
    with ``length_ns`` of captured time. ``links`` replaces the link of matched GPU events:
    ``runtime_uid, gpu_uid``. ``captured_functions`` are Python frames.
    """

    replay: Trace
    matches: tuple[Match, ...]
    regions: pl.DataFrame
    links: pl.DataFrame
    captured_functions: pl.DataFrame

    @property
    def recording(self) -> Trace:
        """The trace without captured calls."""
        return self.replay

    @cached_property
    def python_functions(self) -> pl.DataFrame:
        """Frames of the Python stack, captured ones behind the recorded ones."""
        return pl.concat([self.replay.python_functions, self.captured_functions])

    @cached_property
    def launches(self) -> pl.DataFrame:
        """Rows ``link_index, runtime_uid, gpu_uid``; matched events belong to a captured call."""
        recorded = self.replay.launches.select(C.runtime_uid, C.gpu_uid)
        others = recorded.join(self.links, on=C.gpu_uid, how="anti")
        return (
            pl.concat([others, self.links])
            .sort(C.runtime_uid, C.gpu_uid)
            .with_row_index(C.link_index)
            .cast({C.link_index: pl.Int64})
        )

    def shown_times(self, calls: pl.DataFrame) -> pl.DataFrame:
        """Return calls with the times of their graph launch instead of captured ones."""
        times = [name for name in (C.ts_ns, C.dur_ns) if name in calls.columns]
        if C.ts_ns not in times or self.regions.is_empty():
            return calls
        launches = self._launch_of(calls)
        of_launch = {C.ts_ns: "launch_ns", C.dur_ns: "launch_dur_ns"}
        return calls.with_columns(
            launches[of_launch[name]].alias(name).fill_null(calls[name]) for name in times
        )

    def _launch_of(self, calls: pl.DataFrame) -> pl.DataFrame:
        """Return the region of each call by its time; null for recorded calls."""
        starts = self.regions["region_ns"]
        at = starts.search_sorted(calls[C.ts_ns].fill_null(0), side="right").cast(pl.Int64) - 1
        return self.regions.select(pl.all().gather(at.replace(-1, None)))

    def _nested(self, host: pl.DataFrame) -> pl.DataFrame:
        """Return host events whose captured ones are at the begin of their graph launch.

        On a thread with such launches the time of each launch is longer by that of its captured
        calls, and all later times are shifted.
        """
        if self.regions.is_empty():
            return host
        regions = self._launch_of(host)
        captured = pl.Series(regions["launch_uid"].is_not_null())
        placed = host.with_columns(
            regions[C.pid].alias(C.pid).fill_null(host[C.pid]),
            regions[C.tid].alias(C.tid).fill_null(host[C.tid]),
            regions["launch_ns"].alias("anchor_ns").fill_null(host[C.ts_ns]),
            (host[C.ts_ns] - regions["region_ns"]).fill_null(0).alias("offset_ns"),
            captured.alias("is_captured"),
        )
        return pl.concat(
            _stretched(of_thread, self.regions)
            for of_thread in placed.partition_by(THREAD_KEY, maintain_order=True)
        ).select(host.columns)


def _stretched(host: pl.DataFrame, regions: pl.DataFrame) -> pl.DataFrame:
    """Shift the events of a thread by the captured time of the launches before them."""
    thread = host.select(THREAD_KEY).head(1)
    own = regions.join(thread, on=THREAD_KEY, how="semi", nulls_equal=True).sort("launch_ns")
    if own.is_empty():
        return host
    added = pl.concat([pl.Series([0]), own["length_ns"].cum_sum()])
    is_launch = pl.col(C.uid).is_in(own["launch_uid"].implode())
    # A launch of no duration is before its captured calls, too.
    least_ns = pl.when(is_launch).then(1).otherwise(0)
    end_ns = pl.col("anchor_ns") + pl.max_horizontal(C.dur_ns, least_ns)

    def shifted(times: pl.Expr) -> pl.Series:
        recorded = host.select(times).to_series()
        return recorded + added.gather(own["launch_ns"].search_sorted(recorded.fill_null(0)))

    starts, ends = shifted(pl.col("anchor_ns")), shifted(end_ns)
    return host.with_columns(
        (starts + host["offset_ns"]).alias(C.ts_ns),
        pl.when("is_captured").then(C.dur_ns).otherwise(ends - starts).alias(C.dur_ns),
    )


def merge_captures(trace: Trace, places: Sequence[Path]) -> MergedTrace:
    """Return the trace with the calls captured in these files, folders and archives.

    Raises:
        CaptureError: None of the files is a capture trace.
        TraceError: A file cannot be read.
    """
    return with_captures(trace, read_captures(places))


def with_captures(trace: Trace, captures: Sequence[Capture]) -> MergedTrace:
    """Return the trace with the calls of the captures that fit its replayed graphs."""
    matches = Matcher(captures, trace.info.rank).matches([*replays(trace)])
    merged = [match for match in matches if match.chosen is not None]
    templates = {id(m.chosen.window): m.chosen.window.template for m in merged if m.chosen}
    launches = {
        row[C.uid]: row
        for row in trace.runtime.filter(
            pl.col(C.uid).is_in([match.replay.launch_uid for match in merged])
        ).iter_rows(named=True)
    }
    first_uid, region_ns = trace.event_count, _last_ns(trace) + _MARGIN_NS
    rows: dict[str, list[pl.DataFrame]] = {"cpu_ops": [], "runtime": [], "python_functions": []}
    regions, links = [], []
    for match in merged:
        assert match.chosen is not None
        template = templates[id(match.chosen.window)]
        launch = launches[match.replay.launch_uid]
        region = {
            "region_ns": region_ns,
            "launch_uid": launch[C.uid],
            **{name: launch[name] for name in THREAD_KEY},
            "launch_ns": launch[C.ts_ns],
            "launch_dur_ns": launch[C.dur_ns],
            "length_ns": template.length_ns + 2 * _MARGIN_NS,
        }
        regions.append(region)
        for name, tables in rows.items():
            tables.append(_placed(getattr(template, name), first_uid + 1, region_ns + _MARGIN_NS))
        rows["runtime"].append(_root(trace.runtime, first_uid, region))
        links.append(_links(match, template, first_uid + 1))
        first_uid += 1 + template.calls
        region_ns += region["length_ns"] + _MARGIN_NS
    info = trace.info
    if any(captured.height for captured in rows["cpu_ops"]):
        info = info.model_copy(update={"gpu_only": False, "has_shapes": True})
    return MergedTrace(
        info=info,
        event_count=first_uid,
        cpu_ops=_joined(trace.cpu_ops, rows["cpu_ops"]),
        runtime=_joined(trace.runtime, rows["runtime"]),
        gpu_events=trace.gpu_events,
        flows=trace.flows,
        annotations=trace.annotations,
        threads=trace.threads,
        store=trace.store,
        replay=trace,
        matches=tuple(matches),
        regions=pl.DataFrame(regions, schema=_REGIONS),
        links=pl.concat([pl.DataFrame(schema=_LINK), *links]),
        captured_functions=_joined(trace.python_functions.clear(), rows["python_functions"]),
    )


_REGIONS = {
    "region_ns": pl.Int64,
    "launch_uid": pl.Int64,
    C.pid: pl.Categorical,
    C.tid: pl.Categorical,
    "launch_ns": pl.Int64,
    "launch_dur_ns": pl.Int64,
    "length_ns": pl.Int64,
}
_LINK = {C.runtime_uid: pl.Int64, C.gpu_uid: pl.Int64}


def _last_ns(trace: Trace) -> int:
    tables = (
        *(trace.cpu_ops, trace.runtime, trace.python_functions),
        *(trace.gpu_events, trace.annotations),
    )
    ends = (table.select(END.max()).item() for table in tables)
    return max((end for end in ends if end is not None), default=0)


def _placed(rows: pl.DataFrame, first_uid: int, start_ns: int) -> pl.DataFrame:
    """Return rows of a template with their uids and times in the trace, without links."""
    return rows.with_columns(
        pl.col(C.uid) + first_uid,
        pl.col(C.ts_ns) + start_ns,
        *(pl.lit(None, pl.Int64).alias(name) for name in _LINKS if name in rows.columns),
    )


def _root(runtime: pl.DataFrame, uid: int, region: dict[str, int]) -> pl.DataFrame:
    values = {
        C.uid: uid,
        C.name: CAPTURE_ROOT,
        C.cat: RUNTIME_CATEGORIES[0],
        **{name: region[name] for name in THREAD_KEY},
        C.ts_ns: region["region_ns"],
        C.dur_ns: region["length_ns"],
    }
    return pl.DataFrame(
        [{name: values.get(name) for name in runtime.columns}], schema=runtime.schema
    )


def _links(match: Match, template: Template, first_uid: int) -> pl.DataFrame:
    calls = template.dispatches.gather(match.pairs["dispatch"]) + first_uid
    return match.pairs.select(calls.alias(C.runtime_uid), C.gpu_uid).drop_nulls()


def _joined(recorded: pl.DataFrame, captured: Sequence[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat([recorded, *captured]).sort(C.uid)
