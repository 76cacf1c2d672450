"""GPU work, idle time and host calls on the clock of the trace, and their times in a window."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import polars as pl

from jarvis.analyses.operations import timeline_window
from jarvis.core.arrays import Int64s
from jarvis.perf_report.intervals import covered_by_bin, greatest_ns, least_ns
from jarvis.perf_report.timeline.host import ACTIVE, HostCall, own_ns
from jarvis.perf_report.timeline.idle_gaps import IdleCause
from jarvis.perf_report.timeline.step_account import StepAccount
from jarvis.perf_report.work import COMMUNICATION, COMPUTE, COPY
from jarvis.preconditions import BYTES_PER_MIB
from jarvis.run.run import Run
from jarvis.run.timeline_events import (
    LATENCY,
    NOT_LINKED,
    PATH_COLUMNS,
    bin_edges,
    binned,
    path_events,
    recorded_gaps,
    stacked,
    starter_frames,
)
from jarvis.schemas.names import C
from jarvis.text.format import byte_size

IDLE, OTHER_WORK = "Idle", "Other operations"
BEFORE = "Work from before the recording"
PATH = "Critical path"
KINDS: Mapping[str, str] = {
    COMPUTE: "Compute",
    COMMUNICATION: "Communication",
    COPY: "Copies",
}
"""The kinds of GPU events; NOT_LINKED (compute without a recorded launch), BEFORE and IDLE
follow."""

_NOT_IDLE = {IdleCause.CARRIED_IN.value: BEFORE, IdleCause.UNLINKED_WORK.value: NOT_LINKED}
"""What the GPU does in gaps of these causes."""

HOST_LABELS: Mapping[str, str] = {
    HostCall.RUNTIME: "Runtime call",
    HostCall.OPERATOR: "Operator",
    HostCall.PYTHON: "Python",
    HostCall.ANNOTATION: "Annotation",
}
MAX_BINS = 1200
"""Maximum number of bins in a row."""

_MIN_BINS = 400
"""Windows with fewer stored bins are drawn from single calls."""


@dataclass(frozen=True, slots=True)
class Window:
    """A time span on the clock of the trace."""

    start_ns: int
    end_ns: int

    @property
    def length_ns(self) -> int:
        """Return its length in ns."""
        return self.end_ns - self.start_ns

    def edges(self, count: int = MAX_BINS) -> Int64s:
        """Return the edges of up to ``count`` equal bins."""
        return bin_edges(self.start_ns, self.end_ns, count)

    def of(self, events: pl.DataFrame, *, start: str = C.ts_ns) -> pl.DataFrame:
        """Return the events (``start``, ``dur_ns``) that overlap the window, unclipped."""
        begin = pl.col(start)
        return events.filter(begin < self.end_ns, begin + pl.col(C.dur_ns) > self.start_ns)

    def longest(self, events: pl.DataFrame, count: int, *, start: str = C.ts_ns) -> pl.DataFrame:
        """Return the ``count`` longest of them, longest first."""
        times = self.of(
            events.select(start, C.dur_ns, pl.int_range(pl.len()).alias(C.row)), start=start
        )
        least_ns = pl.lit(times[C.dur_ns].top_k(count).min(), pl.Int64)
        ordered = times.filter(pl.col(C.dur_ns) >= least_ns).sort(
            C.dur_ns, start, C.row, descending=[True, False, False]
        )
        return events[ordered[C.row].head(count)]


@dataclass(frozen=True)
class Timeline:
    """The timeline of one run. Results that all windows share are cached."""

    run: Run
    _host_calls: dict[tuple[str, ...], pl.DataFrame] = field(default_factory=dict)

    @cached_property
    def recording(self) -> Window | None:
        """Return the span from the first start to the last end of any event; None without
        events."""
        starts = pl.concat(
            [self.gpu_events[C.ts_ns], self._slices[C.ts_ns], self._bins[C.start_ns]]
        )
        durations = pl.concat([e[C.dur_ns] for e in (self.gpu_events, self._slices, self._bins)])
        first, last = least_ns(starts), greatest_ns(starts + durations)
        return None if first is None or last is None else Window(first, max(last, first + 1))

    @cached_property
    def gpu_events(self) -> pl.DataFrame:
        """Return all GPU events by time.

        With ``what`` they do, whether the GPU timeline counts them (``is_counted``), their
        ``track``, and name, shapes and category of their operation; of communication, the
        collective and its message size if recorded.
        """
        work = self.run.table("gpu_work").select(*_GPU_COLUMNS, C.linked)
        operations = self.run.table("operations").select(
            C.input_dims, C.category, pl.col(C.uid).alias(C.operation_uid), operation=C.name
        )
        title = pl.col(C.category).replace_strict(self.categories, default=OTHER_WORK)
        counted = timeline_window(work)[C.uid]
        collectives = self.run.table("collectives").drop_nulls([C.collective, C.message_mb])
        named = {
            uid: f"{name} {byte_size(mib * BYTES_PER_MIB)}"
            for uid, name, mib in collectives.select(C.uid, C.collective, C.message_mb).iter_rows()
        }
        collective = pl.col(C.uid).replace_strict(named, default=None, return_dtype=pl.String)
        return (
            work.join(operations, on=C.operation_uid, how="left", maintain_order="left")
            .with_columns(operation=pl.coalesce(collective, "operation"))
            .with_columns(is_counted=pl.col(C.uid).is_in(counted.implode()))
            .with_columns(
                what=pl.when(pl.col(C.kind) != COMPUTE)
                .then(pl.col(C.kind).replace(KINDS))
                .when(pl.col("is_counted"))
                .then(title)
                .otherwise(pl.lit(NOT_LINKED)),
                track=_track(),
            )
            .drop(C.linked)
            .sort(C.ts_ns, C.uid)
        )

    @cached_property
    def tracks(self) -> frozenset[str]:
        """Return the tracks of the GPU events."""
        return frozenset(self.gpu_events["track"].unique())

    @cached_property
    def categories(self) -> Mapping[str, str]:
        """Return the titles of the run's categories by key, most time first, without the rest."""
        titles = {
            key: analysis.title
            for key, analysis in self.run.analyses.items()
            if analysis.claim is not None and not analysis.claim.rest
        }
        times = {
            key: self.run.results[key].gpu_time_ms for key in titles if key in self.run.results
        }
        largest = sorted((k for k in times if times[k] > 0), key=lambda k: -times[k])
        return {key: titles[key] for key in largest}

    @cached_property
    def steps(self) -> Window | None:
        """Return the span of the marked steps; None without any."""
        if "steps" not in self.run.tables:
            return None
        steps = self.run.table("steps").drop_nulls(C.dur_ns)
        account = StepAccount.of(steps)
        if account is None or not account.is_marked:
            return None
        first, last = least_ns(steps[C.start_ns]), greatest_ns(steps[C.start_ns] + steps[C.dur_ns])
        return None if first is None or last is None else Window(first, last)

    @cached_property
    def gaps(self) -> pl.DataFrame:
        """Return the idle time of the recording (``recorded_gaps``).

        ``what`` is IDLE, or what the GPU does in a gap of the recorded work.
        """
        what = pl.col(C.cause).cast(pl.String).replace_strict(_NOT_IDLE, default=IDLE)
        return recorded_gaps(self.run).with_columns(what.alias("what"))

    @cached_property
    def threads(self) -> pl.DataFrame:
        """Return the table ``host_threads``; empty if the run predates it."""
        return self._optional("host_threads", {C.thread: pl.Int64})

    @cached_property
    def path(self) -> pl.DataFrame:
        """Return the critical path as ``path_events``; empty if step times are not simulated.

        The wait for work from before the recording is BEFORE.
        """
        simulation = self.run.simulation_if_any
        if simulation is None:
            return self.gpu_events.select(PATH_COLUMNS).clear()
        path = path_events(simulation, self.gpu_events)
        middle = pl.col(C.ts_ns) + pl.col(C.dur_ns) // 2
        carried = self.gaps.filter(pl.col("what") == BEFORE)
        is_carried = (pl.col("what") == LATENCY) & pl.any_horizontal(
            pl.lit(False),
            *(
                middle.is_between(start, start + length)
                for start, length in carried.select(C.start_ns, C.dur_ns).iter_rows()
            ),
        )
        return path.with_columns(
            pl.when(is_carried).then(pl.lit(BEFORE)).otherwise(name).alias(name)
            for name in (C.name, "what")
        )

    @property
    def left_out_ns(self) -> int | None:
        """Return the duration in ns below which single host calls are not stored; None if all
        are."""
        if (
            self.threads.is_empty()
            or self.threads[C.kept_count].sum() == self.threads[C.call_count].sum()
        ):
            return None
        return least_ns(self._slices[C.dur_ns])

    def shares_ns(self, window: Window) -> dict[str, int]:
        """Return the time in ns of what the GPU does in the window; the rest is before its first or
        after its last event.

        Time with several kinds of work counts for the first of KINDS, NOT_LINKED, BEFORE, IDLE.
        """
        parts, shares, covered_ns = self._parts(window), {}, 0
        edges = window.edges(1)
        kinds = (*KINDS.values(), NOT_LINKED, BEFORE, IDLE)
        for number, kind in enumerate(kinds, 1):
            covers = parts.filter(pl.col(C.row).is_in(kinds[:number]))
            before_ns, covered_ns = covered_ns, int(covered_by_bin(covers, edges)[0])
            if kind in parts[C.row]:
                shares[kind] = covered_ns - before_ns
        return shares

    def unlinked_ns(self, window: Window, kind: str) -> int:
        """Return the time in ns with GPU work of a kind without a recorded launch."""
        events = self.gpu_events.filter(~pl.col("is_counted"), pl.col(C.kind) == kind)
        return int(covered_by_bin(window.of(events), window.edges(1))[0])

    def statistics(self, window: Window) -> pl.DataFrame:
        """Return ``row, what, count, busy_ns`` of the window: what the GPU does, most time first.

        ``what`` is a category or a kind of work, in the row IDLE a cause of idle time.
        """
        parts = self._parts(window).with_columns(
            pl.when(pl.col(C.row) == IDLE).then(pl.col(C.row)).otherwise(pl.lit("")).alias(C.row)
        )
        if parts.is_empty():
            return pl.DataFrame(schema={**_PART, "count": pl.UInt32, C.busy_ns: pl.Int64})
        found = [
            (row, what, events.height, _covered(events, C.row, window).get(str(row), 0))
            for (row, what), events in parts.group_by(C.row, "what")
        ]
        table = pl.DataFrame(found, [C.row, "what", C.count, C.busy_ns], orient="row")
        return table.sort(C.row, C.busy_ns, "what", descending=[False, True, False])

    def gpu_event_count(self, window: Window) -> int:
        """Return the number of GPU events in the window."""
        return window.of(self.gpu_events.select(C.ts_ns, C.dur_ns)).height

    def host_bins(self, window: Window, threads: Sequence[int]) -> pl.DataFrame:
        """Return the activity of threads: ``row`` (the thread), ``what``, ``start_ns, end_ns,
        busy_ns``.

        A bin has one row per kind of call in it. Wide windows count all calls, narrow ones the
        individually stored ones.
        """
        if self._bins.is_empty() or not threads:
            return binned(pl.DataFrame(schema=_EVENT), window.edges(1))
        width = int(self._bins[C.dur_ns][0])
        if window.length_ns < _MIN_BINS * width:
            parts = [self._narrow_bins(window, thread) for thread in threads]
        else:
            parts = [self._wide_bins(window, thread, width) for thread in threads]
        return pl.concat([part for of_thread in parts for part in of_thread])

    def shown_threads(self, count: int) -> list[int]:
        """Return up to ``count`` threads with calls, busiest first."""
        return self.threads[C.thread].sort().head(count).to_list()

    def host_calls(self, kinds: Sequence[str]) -> pl.DataFrame:
        """Return the stored calls of these kinds, ``host_slices`` with ``lane``.

        Frames of the interpreter around user code are left out (``user_code``).
        """
        key = tuple(kinds)
        if key not in self._host_calls:
            calls = self._slices.filter(
                pl.col(C.kind).is_in(kinds), ~pl.col(C.uid).is_in(self.starters.implode())
            )
            row = pl.col(C.thread).cast(pl.String).alias(C.row)
            self._host_calls[key] = stacked(calls.with_columns(row)).drop(C.row)
        return self._host_calls[key]

    @cached_property
    def starters(self) -> pl.Series:
        """Return the ``uid`` of the frames that start user code."""
        return starter_frames(self._slices.filter(pl.col(C.kind) == HostCall.PYTHON))

    def thread_label(self, thread: int) -> str:
        """Return the name of a thread as a row of the timeline."""
        row = self.threads.row(by_predicate=pl.col(C.thread) == thread, named=True)
        name: str = row[C.thread_name] or f"thread {row[C.tid]}"
        return name

    def event(self, uid: int) -> dict[str, Any] | None:
        """Return a GPU event or host call by ``uid``, as a row of ``gpu_events`` or
        ``host_slices``."""
        for events in (self.gpu_events, self._slices):
            found = events.filter(pl.col(C.uid) == uid)
            if found.height:
                return found.row(0, named=True)
        return None

    def example(self, operation_uid: int, launcher_uids: Sequence[int]) -> pl.DataFrame:
        """Return the GPU events of one call of an operation, by time: of the given launchers' call,
        else of the first call."""
        work = self.gpu_events.filter(pl.col(C.operation_uid) == operation_uid)
        launched = work.filter(pl.col(C.launcher_uid).is_in(list(launcher_uids)))
        return work.head(1) if launched.is_empty() else launched

    def _parts(self, window: Window) -> pl.DataFrame:
        """Return GPU work (``row``: its kind) and idle time (``what``: its cause) of the window."""
        times = self.gpu_events.select("what", C.ts_ns, C.dur_ns, C.kind, "is_counted")
        is_named = pl.col("is_counted") | (pl.col(C.kind) != COMPUTE)
        kind = pl.when(is_named).then(pl.col(C.kind).replace(KINDS)).otherwise(pl.lit(NOT_LINKED))
        gaps = self.gaps.select(
            pl.col("what").alias(C.row),
            pl.col(C.cause).alias("what"),
            pl.col(C.start_ns).alias(C.ts_ns),
            C.dur_ns,
        )
        events = window.of(times).select(kind.alias(C.row), "what", C.ts_ns, C.dur_ns)
        return pl.concat([events, window.of(gaps)])

    @cached_property
    def _slices(self) -> pl.DataFrame:
        return self._optional("host_slices", _SLICE)

    @cached_property
    def _bins(self) -> pl.DataFrame:
        return self._optional(
            "host_bins", {C.thread: pl.Int64, C.start_ns: pl.Int64, C.dur_ns: pl.Int64}
        )

    def _wide_bins(self, window: Window, thread: int, width: int) -> list[pl.DataFrame]:
        group = -(-window.length_ns // (width * MAX_BINS)) * width
        origin = least_ns(self._bins[C.start_ns]) or 0
        bins = window.of(self._bins.filter(pl.col(C.thread) == thread), start=C.start_ns)
        start = (pl.col(C.start_ns) - origin) // group * group + origin
        summed = bins.group_by(start, maintain_order=True).agg(
            pl.col(f"{kind}_ns").sum() for kind in ACTIVE
        )
        return [
            _state_bins(
                summed.select(
                    C.start_ns,
                    (pl.col(C.start_ns) + group).alias(C.end_ns),
                    pl.col(f"{kind}_ns").alias(C.busy_ns),
                ),
                thread,
                kind,
            )
            for kind in ACTIVE
        ]

    def _narrow_bins(self, window: Window, thread: int) -> list[pl.DataFrame]:
        edges = window.edges()
        slices = window.of(self._slices.filter(pl.col(C.thread) == thread))
        calls = [slices.filter(pl.col(C.kind) == kind).select(C.ts_ns, C.dur_ns) for kind in ACTIVE]
        return [
            _state_bins(
                pl.DataFrame({C.start_ns: edges[:-1], C.end_ns: edges[1:], C.busy_ns: ns}),
                thread,
                kind,
            )
            for kind, ns in zip(ACTIVE, own_ns(calls, edges), strict=True)
        ]

    def _optional(self, name: str, empty: Mapping[str, Any]) -> pl.DataFrame:
        return self.run.table(name) if name in self.run.tables else pl.DataFrame(schema=empty)


_GPU_COLUMNS = (
    *(C.uid, C.kind, C.name, C.ts_ns, C.dur_ns, C.device, C.stream, C.bytes, C.direction),
    *(C.launch_uid, C.launcher_uid, C.launcher_name, C.operation_uid),
)
_PART = {C.row: pl.String, "what": pl.String}
_EVENT = {**_PART, C.ts_ns: pl.Int64, C.dur_ns: pl.Int64}
_SLICE = {
    C.uid: pl.Int64,
    C.thread: pl.Int64,
    C.kind: pl.String,
    C.name: pl.String,
    C.ts_ns: pl.Int64,
    C.dur_ns: pl.Int64,
    C.input_dims: pl.String,
}


def _track() -> pl.Expr:
    device = pl.col(C.device).cast(pl.String).fill_null("?")
    return pl.format("GPU {} · stream {}", device, pl.col(C.stream).cast(pl.String).fill_null("?"))


def _covered(events: pl.DataFrame, by: str, window: Window) -> dict[str, int]:
    """Return the time in ns that the events of each group cover in the window."""
    edges = window.edges(1)
    return {
        str(key): int(covered_by_bin(part, edges)[0])
        for (key,), part in events.partition_by(by, as_dict=True).items()
    }


def _state_bins(bins: pl.DataFrame, thread: int, kind: HostCall) -> pl.DataFrame:
    return bins.filter(pl.col(C.busy_ns) > 0).select(
        pl.lit(str(thread)).alias(C.row),
        pl.lit(HOST_LABELS[kind]).alias("what"),
        C.start_ns,
        C.end_ns,
        C.busy_ns,
    )
