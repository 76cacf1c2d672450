"""The rows of a timeline as a browser draws them: marks of a time span, search and positions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

import polars as pl

from jarvis.perf_report.timeline.host import HostCall
from jarvis.perf_report.work import COMMUNICATION
from jarvis.run.timeline import HOST_LABELS, IDLE, PATH, Timeline, Window
from jarvis.run.timeline_events import binned, stacked
from jarvis.schemas.names import C
from jarvis.text.short_names import short_frame_name, short_kernel_name, without_namespaces
from jarvis.trace.links import BACKWARD_PREFIX

MAX_THREADS, MAX_DEPTH = 32, 40
"""Maximum numbers of host threads and of levels of calls."""

MAX_STREAMS, MAX_STREAM_LANES = 32, 16
"""Maximum numbers of GPU streams, and of events at the same time on one of them."""

MAX_MARKS = 20_000
"""Maximum number of single events in a part of the timeline."""

MAX_FOUND = 2_000
"""Maximum number of results of a search."""

MAX_ARROWS = 50
"""Maximum number of arrows from a launch to its kernels."""

_FEW_MARKS = 5_000
"""Spans with fewer events are sent whole; in others, events below a pixel are summed in bins."""

_PIXELS = 3_000
"""Resolution of a span: a screen shows up to a whole span, and at least half of one."""

_MARK_BINS = 800
_MAX_TEXT_CHARS = 160
_NONE = -1
"""The ``uid`` of marks that cannot be selected."""


class HostChoice(StrEnum):
    """The host calls that a timeline shows."""

    OPERATORS = "operators"
    PYTHON = "python"
    ALL = "all"

    @property
    def kinds(self) -> tuple[HostCall, ...]:
        """Return the kinds of calls."""
        return _KINDS[self]


_KINDS: Mapping[HostChoice, tuple[HostCall, ...]] = {
    HostChoice.OPERATORS: (HostCall.ANNOTATION, HostCall.OPERATOR, HostCall.RUNTIME),
    HostChoice.PYTHON: (HostCall.ANNOTATION, HostCall.PYTHON),
    HostChoice.ALL: tuple(HostCall),
}


@dataclass(frozen=True, slots=True)
class Row:
    """A row: its label, its number of lanes, and whether it has bars of busy time instead."""

    label: str
    lanes: int
    is_bar: bool = False


@dataclass(frozen=True)
class TimelineRows:
    """The critical path, idle time, GPU streams, and host threads with calls up to a depth."""

    timeline: Timeline
    causes: Mapping[str, str]
    """Labels of the causes of idle time."""

    host: HostChoice
    threads: int
    depth: int

    @property
    def rows(self) -> tuple[Row, ...]:
        """Return the rows from top to bottom."""
        return self._rows_and_marks[0]

    @property
    def marks(self) -> pl.DataFrame:
        """Return all events of the rows by time: ``row, lane, uid, ts_ns, dur_ns, name, what,
        note``."""
        return self._rows_and_marks[1]

    @cached_property
    def kinds(self) -> frozenset[str]:
        """Return ``what`` of all events of the rows."""
        return frozenset(self.marks["what"].unique())

    @property
    def hidden_streams(self) -> int:
        """Return the number of GPU streams without a row."""
        return max(len(self.timeline.tracks) - MAX_STREAMS, 0)

    @cached_property
    def deeper_count(self) -> int:
        """The number of calls of the shown threads below the shown depth."""
        return self._calls().filter(pl.col("lane") >= self.depth).height

    @property
    def starter_count(self) -> int:
        """Return the number of frames around user code that the chosen calls leave out."""
        return self.timeline.starters.len() if HostCall.PYTHON in self.host.kinds else 0

    def part(self, window: Window) -> dict[str, Any]:
        """Return what to draw of a time span, as columns; times in ns since the recording began.

        ``slices`` are single events; ``bins`` have the busy share of events that are too short, and
        of the bars of threads. ``name``, ``note`` and ``what`` number the texts; a name is a pair
        of short and full name.
        """
        found = window.of(self.marks)
        least_ns = window.length_ns // _PIXELS if found.height > _FEW_MARKS else 0
        is_long = pl.col(C.dur_ns) >= least_ns
        while (slices := found.filter(is_long)).height > MAX_MARKS:
            least_ns = max(2 * least_ns, 1)
            is_long = pl.col(C.dur_ns) >= least_ns
        texts: dict[str, list[Any]] = {}
        slices = slices.with_columns(
            _numbered(slices[column], column, texts) for column in (C.name, "note")
        )
        bins = pl.concat([self._short(found.filter(~is_long), window), self._bars(window)])
        whats = sorted({*slices["what"].unique(), *bins["what"].unique()})
        numbers = {what: number for number, what in enumerate(whats)}
        what = pl.col("what").replace_strict(numbers, return_dtype=pl.Int32)
        return {
            "is_whole": least_ns == 0,
            "names": [[self._short_names[name], _cut(name)] for name in texts[C.name]],
            "notes": [_cut(note) for note in texts["note"]],
            "whats": whats,
            "slices": _columns(
                slices.select(
                    C.row,
                    "lane",
                    C.uid,
                    self._since(C.ts_ns, "start"),
                    length=C.dur_ns,
                    name=C.name,
                    note="note",
                    what=what,
                )
            ),
            "bins": _columns(
                bins.select(
                    C.row,
                    "lane",
                    "low",
                    "share",
                    self._since(C.start_ns, "start"),
                    self._since(C.end_ns, "end"),
                    what=what,
                )
            ),
        }

    def search(self, text: str) -> dict[str, Any]:
        """Return the first MAX_FOUND events whose name contains a text, by time, and their number.

        The critical path is left out, since it repeats events of other rows.
        """
        sought = text.strip().lower()
        names = [
            name
            for name, short in self._short_names.items()
            if sought in name.lower() or sought in short.lower()
        ]
        is_path = [number for number, row in enumerate(self.rows) if row.label == PATH]
        found = self.marks.filter(
            pl.col(C.name).is_in(names), ~pl.col(C.row).is_in(is_path), pl.lit(bool(sought))
        )
        first = found.head(MAX_FOUND)
        columns = first.select(C.row, "lane", C.uid, self._since(C.ts_ns, "start"), length=C.dur_ns)
        return {"count": found.height, **_columns(columns)}

    def statistics(self, window: Window) -> pl.DataFrame:
        """Return ``Timeline.statistics``, with the label of each cause of idle time."""
        found = self.timeline.statistics(window)
        return found.with_columns(pl.col("what").replace(self.causes))

    def place(self, uid: int) -> list[dict[str, int]]:
        """Return where an event is drawn: ``row, lane, start, length``, in each of its rows."""
        found = self.marks.filter(pl.col(C.uid) == uid)
        columns = found.select(C.row, "lane", self._since(C.ts_ns, "start"), length=C.dur_ns)
        return columns.to_dicts()

    def arrows(self, uid: int) -> list[list[dict[str, int]]]:
        """Return the ends of arrows from a launch to its GPU work, of an event at either end."""
        events = self.timeline.gpu_events
        launch = events.filter(pl.col(C.uid) == uid)[C.launch_uid].drop_nulls()
        pairs = [(int(launch[0]), uid)] if launch.len() else []
        if not pairs:
            launched = events.filter(pl.col(C.launch_uid) == uid)[C.uid].head(MAX_ARROWS)
            pairs = [(uid, kernel) for kernel in launched]
        ends = [(self._launch_place(start), self.place(end)) for start, end in pairs]
        return [[start, found[-1]] for start, found in ends if start is not None and found]

    def _launch_place(self, uid: int) -> dict[str, int] | None:
        """Return where a launch is drawn, or in the bar of its thread; None if that is hidden."""
        if found := self.place(uid):
            return found[0]
        call = self.timeline.event(uid)
        if call is None or call.get(C.thread) not in self._threads:
            return None
        row = self._bar_rows[call[C.thread]]
        start = call[C.ts_ns] - self._origin_ns
        return {C.row: row, "lane": 0, "start": start, "length": call[C.dur_ns]}

    @cached_property
    def _rows_and_marks(self) -> tuple[tuple[Row, ...], pl.DataFrame]:
        rows = list(self._marked_rows())
        tables = [
            marks.with_columns(pl.lit(number, pl.Int32).alias(C.row))
            for number, (_, marks) in enumerate(rows)
        ]
        marks = pl.concat(tables).sort(C.ts_ns, C.row, "lane") if tables else pl.DataFrame()
        return tuple(row for row, _ in rows), marks

    def _marked_rows(self) -> Iterator[tuple[Row, pl.DataFrame]]:
        """Yield each row with its ``marks``, without the number of the row."""
        timeline = self.timeline
        if not timeline.path.is_empty():
            yield Row(PATH, 1), _gpu_marks(timeline.path.with_columns(lane=0))
        if not timeline.gpu_events.is_empty():
            yield Row(IDLE, 1), self._gaps()
        events = timeline.gpu_events.with_columns(pl.col("track").alias(C.row))
        tracks = events.select(C.device, C.stream, C.row).unique()
        placed = stacked(events).partition_by(C.row, as_dict=True)
        for track in tracks.sort(C.device, C.stream, nulls_last=True)[C.row].head(MAX_STREAMS):
            own = placed[track,].filter(pl.col("lane") < MAX_STREAM_LANES)
            yield Row(track, _lanes(own)), _gpu_marks(own)
        every = self._calls()
        calls = every.filter(pl.col("lane") < self.depth).partition_by(C.thread, as_dict=True)
        for thread in self._threads:
            yield Row(timeline.thread_label(thread), 1, is_bar=True), _host_marks(every.clear())
            if (thread,) in calls:
                yield Row("", _lanes(calls[thread,])), _host_marks(calls[thread,])

    def _calls(self) -> pl.DataFrame:
        found = self.timeline.host_calls(self.host.kinds)
        return found.filter(pl.col(C.thread).is_in(self._threads))

    @cached_property
    def _threads(self) -> list[int]:
        return self.timeline.shown_threads(self.threads)

    @cached_property
    def _bar_rows(self) -> dict[int, int]:
        bars = (number for number, row in enumerate(self.rows) if row.is_bar)
        return dict(zip(self._threads, bars, strict=True))

    @property
    def _origin_ns(self) -> int:
        recording = self.timeline.recording
        return 0 if recording is None else recording.start_ns

    @cached_property
    def _short_names(self) -> dict[str, str]:
        is_host = pl.col(C.row) > min(self._bar_rows.values(), default=len(self.rows))
        names = self.marks.select(C.name, is_host=is_host).unique().sort("is_host", C.name)
        return {
            name: _short_host_name(name) if of_host else short_kernel_name(name)
            for name, of_host in names.iter_rows()
        }

    def _gaps(self) -> pl.DataFrame:
        """Return the gaps of the GPU as marks, named by their likely cause."""
        launched = pl.col(C.launcher_name).cast(pl.String)
        return self.timeline.gaps.select(
            pl.lit(0, pl.Int32).alias("lane"),
            pl.lit(_NONE, pl.Int64).alias(C.uid),
            pl.col(C.start_ns).alias(C.ts_ns),
            C.dur_ns,
            pl.col(C.cause).replace(self.causes).alias(C.name),
            "what",
            note=pl.format("launched next by {}", launched).fill_null(""),
        )

    def _short(self, events: pl.DataFrame, window: Window) -> pl.DataFrame:
        """Return the busy shares of events that are too short to draw, of each lane."""
        lane = pl.format("{} {}", C.row, "lane").alias(C.row)
        keys = pl.col(C.row).str.split(" ")
        return _merged(
            binned(
                events.select(lane, "what", C.ts_ns, C.dur_ns), window.edges(_MARK_BINS)
            ).with_columns(
                keys.list.first().cast(pl.Int32).alias(C.row),
                lane=keys.list.last().cast(pl.Int32),
            )
        )

    def _bars(self, window: Window) -> pl.DataFrame:
        """Return the busy shares of the bars of threads."""
        bars = self.timeline.host_bins(window, self._threads)
        return _merged(
            bars.with_columns(
                pl.col(C.row).cast(pl.Int64).replace(self._bar_rows).cast(pl.Int32),
                lane=pl.lit(0, pl.Int32),
            )
        )

    def _since(self, column: str, name: str) -> pl.Expr:
        return (pl.col(column) - self._origin_ns).alias(name)


def _short_host_name(name: str) -> str:
    """Return a host call without namespaces and folders; of a node of autograd, its function."""
    return short_frame_name(without_namespaces(name.removeprefix(BACKWARD_PREFIX).strip()))


def _gpu_marks(events: pl.DataFrame) -> pl.DataFrame:
    """Return events as marks; the name of a known collective begins with it and its size."""
    operation, shapes = pl.col("operation").cast(pl.String), pl.col(C.input_dims).str.head(120)
    is_collective = (pl.col(C.kind) == COMMUNICATION) & operation.is_not_null()
    named = pl.when(is_collective).then(pl.format("{} · {}", operation, C.name)).otherwise(C.name)
    note = pl.concat_str(operation, shapes, separator=" ", ignore_nulls=True)
    return _marks(events.with_columns(named.alias(C.name), note=note))


def _host_marks(calls: pl.DataFrame) -> pl.DataFrame:
    note = pl.col(C.input_dims).str.head(120).fill_null("")
    return _marks(calls.with_columns(what=pl.col(C.kind).replace(HOST_LABELS), note=note))


def _marks(events: pl.DataFrame) -> pl.DataFrame:
    """Return only the columns of marks, which are stored for as long as the run is open."""
    lane, uid = pl.col("lane").cast(pl.Int32), pl.col(C.uid).fill_null(_NONE)
    return events.select(lane, uid, C.ts_ns, C.dur_ns, C.name, "what", "note")


def _lanes(events: pl.DataFrame) -> int:
    return int(events["lane"].max()) + 1  # type: ignore[arg-type]


def _merged(bins: pl.DataFrame) -> pl.DataFrame:
    """Return bins with ``share`` in percent above those of the same time (``low``).

    Adjacent bins that look the same become one.
    """
    look = (C.row, "lane", "what", "low", "share")
    length = pl.col(C.end_ns) - pl.col(C.start_ns)
    share = (100 * pl.col(C.busy_ns) / length).round().cast(pl.Int32)
    below = pl.col("share").cum_sum().over(C.row, "lane", C.start_ns) - pl.col("share")
    ordered = (
        bins.with_columns(share=share)
        .with_columns(low=below.cast(pl.Int32))
        .sort(C.row, "lane", "what", C.start_ns)
    )
    is_other = pl.any_horizontal(pl.col(name) != pl.col(name).shift(1) for name in look)
    is_apart = pl.col(C.start_ns) != pl.col(C.end_ns).shift(1)
    run = (is_other | is_apart).fill_null(True).cum_sum().alias("run")
    return (
        ordered.group_by(run, maintain_order=True)
        .agg(pl.col(*look, C.start_ns).first(), pl.col(C.end_ns).last())
        .drop("run")
    )


def _numbered(values: pl.Series, column: str, texts: dict[str, list[Any]]) -> pl.Series:
    """Return the values as numbers of distinct texts, which are added to ``texts``."""
    distinct = values.unique(maintain_order=True)
    texts[column] = distinct.to_list()
    numbers = {text: number for number, text in enumerate(texts[column])}
    return values.replace_strict(numbers, return_dtype=pl.Int32).alias(column)


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT_CHARS else f"{text[: _MAX_TEXT_CHARS - 1]}…"


def _columns(table: pl.DataFrame) -> dict[str, list[Any]]:
    return table.to_dict(as_series=False)
