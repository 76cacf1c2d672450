"""Name where the host is while the GPU idles: Python function, annotation, and copy.

A span belongs to a gap: ``gap, thread, from_ns, to_ns``, as in ``host_spans``.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from jarvis.core.arrays import Int64s
from jarvis.perf_models import step_annotation
from jarvis.perf_report.call_tree.frames import NONE, CallFrames, call_frames
from jarvis.perf_report.call_tree.stacks import is_own_function
from jarvis.perf_report.intervals import greatest_ns, least_ns
from jarvis.perf_report.timeline.host_spans import HostActivity, with_threads
from jarvis.perf_report.work import COPY
from jarvis.schemas.names import C
from jarvis.trace import Trace
from jarvis.trace.metadata import STEP_PREFIX

MIN_SHARE = 0.5
"""Minimum share of a gap, or of the host time before it, that a cause or a function fills."""

_WAITS_FOR_COPY = r"(?i)(stream|event)synchronize"


def with_sources(
    gaps: pl.DataFrame, trace: Trace, events: pl.DataFrame, activity: HostActivity
) -> pl.DataFrame:
    """Return gaps with ``host_frame, host_annotation, host_copy_uid``.

    Args:
        gaps: With causes, ``call_uid`` and ``host_op_uid``; ``device_cause`` is null where the
            host causes the gap.
        trace: The trace.
        events: All GPU events of the trace.
        activity: What its host does.
    """
    by_host = gaps.filter(pl.col("device_cause").is_null())
    functions = python_callers(trace, activity.threads)
    frame, annotation = (
        _during(by_host, callers)
        for callers in (functions, annotations_around(trace, activity.threads))
    )
    named = gaps.join(
        frame.rename({"found": "frame"}), on="gap", how="left", maintain_order="left"
    ).join(
        annotation.rename({"found": C.host_annotation}),
        on="gap",
        how="left",
        maintain_order="left",
    )
    calling = pl.lit(None, pl.String) if functions is None else functions.around(gaps["call_uid"])
    return named.with_columns(
        pl.coalesce(calling, "frame").alias(C.host_frame),
        # The loader is both.
        pl.when(pl.col(C.host_annotation).ne_missing(pl.col(C.host_call))).then(C.host_annotation),
        _copies(gaps, trace, events).alias(C.host_copy_uid),
    ).drop("frame")


def _during(gaps: pl.DataFrame, callers: "Callers | None") -> pl.DataFrame:
    """Return ``gap, found``, on the thread of the launch, else on that of the previous one."""
    to_ns = pl.min_horizontal("to_ns", C.end_ns)
    spans = pl.concat(
        gaps.select("gap", pl.col(thread).alias(C.thread), from_ns=C.start_ns, to_ns=to_ns)
        for thread in ("launch_thread", "before_thread")
    ).filter(pl.col(C.thread).is_not_null() & (pl.col("from_ns") < pl.col("to_ns")))
    if callers is None or spans.is_empty():
        return pl.DataFrame(schema={"gap": pl.Int64, "found": pl.String})
    return callers.during(spans, MIN_SHARE)


def _copies(gaps: pl.DataFrame, trace: Trace, events: pl.DataFrame) -> pl.Series:
    """Return the copy that the call of each gap waits for.

    That is the copy that it launches, or of a call that waits for a stream the last one that its
    operator launched before.
    """
    copies = events.filter((pl.col(C.kind) == COPY) & pl.col(C.linked)).select(
        pl.col(C.uid).alias("copy_uid"), C.launch_uid, C.op_uid
    )
    times = trace.runtime.select(pl.col(C.uid).alias(C.launch_uid), launched_ns=C.ts_ns)
    copies = copies.join(times, on=C.launch_uid).drop_nulls("launched_ns")
    calls = gaps.select(
        "gap", "call_uid", C.host_call, pl.col("host_op_uid").alias(C.op_uid)
    ).drop_nulls("call_uid")
    own = calls.join(copies, left_on="call_uid", right_on=C.launch_uid)
    waiting = calls.filter(pl.col(C.host_call).str.contains(_WAITS_FOR_COPY)).join(
        times.rename({C.launch_uid: "call_uid", "launched_ns": "called_ns"}), on="call_uid"
    )
    earlier = waiting.join(copies, on=C.op_uid).filter(pl.col("launched_ns") <= pl.col("called_ns"))
    found = (
        pl.concat([part.select("gap", "copy_uid", "launched_ns") for part in (own, earlier)])
        .sort("gap", "launched_ns", "copy_uid")
        .unique("gap", keep="last")
    )
    return gaps.join(found, on="gap", how="left", maintain_order="left")["copy_uid"]


@dataclass(frozen=True)
class Callers:
    """Calls of some threads, by position in the call tree, of which some are wanted.

    ``places`` are the positions of these calls by thread and time, ``keys`` their starts as one
    sorted number for thread and time, with ``origin`` and ``reach``. By position: ``start_ns,
    end_ns, names`` (index of a name in ``texts``; NONE if the call is not wanted).
    """

    frames: CallFrames
    places: Int64s
    keys: Int64s
    origin: int
    reach: int
    start_ns: Int64s
    end_ns: Int64s
    names: Int64s
    texts: pl.Series

    def around(self, uids: pl.Series) -> pl.Series:
        """Return the name of the innermost wanted call above each call; null if there is none."""
        known = uids.fill_null(NONE).to_numpy()
        places = self.frames.parent(np.where(known >= 0, self.frames.places(known), NONE))
        return self._named(self._climb(places, np.zeros_like(places), np.zeros_like(places), 0.0))

    def during(self, spans: pl.DataFrame, share: float) -> pl.DataFrame:
        """Return ``gap, found``: the innermost wanted call that fills ``share`` of a span.

        Of several spans of a gap the first counts in which there is such a call.
        """
        from_ns, to_ns = spans["from_ns"].to_numpy(), spans["to_ns"].to_numpy()
        thread = spans[C.thread].to_numpy().astype(np.int64)
        # A call that fills half of a span or more is running in its middle.
        middle = np.clip((from_ns + to_ns) // 2 - self.origin, -1, self.reach - 1)
        before = np.searchsorted(self.keys, thread * self.reach + middle, side="right") - 1
        is_own = (before >= 0) & (middle >= 0)
        if self.keys.size:
            is_own &= self.keys[np.maximum(before, 0)] // self.reach == thread
        places = np.where(is_own, self.places[before], NONE) if self.keys.size else before
        found = self._named(self._climb(places, from_ns, to_ns, share))
        return (
            spans.select("gap", found=found)
            .drop_nulls()
            .unique("gap", keep="first", maintain_order=True)
        )

    def _climb(self, places: Int64s, from_ns: Int64s, to_ns: Int64s, share: float) -> Int64s:
        """Return the nearest position that is wanted and fills ``share`` of the span; the call
        itself counts."""
        while places.size:
            lasts = np.minimum(to_ns, self.end_ns[places]) - np.maximum(
                from_ns, self.start_ns[places]
            )
            is_found = (self.names[places] != NONE) & (
                (share == 0) | (lasts >= share * (to_ns - from_ns))
            )
            is_open = (places >= 0) & ~is_found
            if not is_open.any():
                break
            places = np.where(is_open, self.frames.parent(places), places)
        return places

    def _named(self, places: Int64s) -> pl.Series:
        index = np.where(places >= 0, self.names[places], NONE) if self.names.size else places
        return self.texts.gather(pl.Series(index).replace(NONE, None).cast(pl.UInt32))


def python_callers(trace: Trace, threads: pl.DataFrame) -> Callers | None:
    """Return the Python functions of the user's code and of named libraries, without the framework
    and wrappers; None if no Python functions are recorded."""
    functions = trace.python_functions
    names = functions[C.name].unique()
    wanted = names.filter(pl.Series([is_own_function(name) for name in names], dtype=pl.Boolean))
    return _callers(trace.python_call_tree, functions, wanted, threads)


def annotations_around(trace: Trace, threads: pl.DataFrame) -> Callers | None:
    """Return the annotations except those of steps; None if there are none."""
    marks = trace.host_annotations
    names = marks[C.name].unique()
    is_step = [name.startswith(STEP_PREFIX) or step_annotation.parse(name) for name in names]
    wanted = names.filter(pl.Series([not step for step in is_step], dtype=pl.Boolean))
    return _callers(trace.annotation_tree, marks, wanted, threads)


def _callers(
    tree: pl.DataFrame, calls: pl.DataFrame, wanted: pl.Series, threads: pl.DataFrame
) -> Callers | None:
    texts = wanted.cast(pl.String)
    if texts.is_empty():
        return None
    frames = call_frames(tree)
    numbered = pl.DataFrame({C.name: texts}).with_row_index("index")
    timed = (
        with_threads(
            calls.select(C.uid, C.name, C.pid, C.tid, C.ts_ns, C.dur_ns).drop_nulls(
                [C.ts_ns, C.dur_ns]
            ),
            threads,
        )
        .with_columns(pl.col(C.name).cast(pl.String))
        .join(numbered, on=C.name, how="left", maintain_order="left")
    )
    places = frames.places(timed[C.uid].to_numpy())
    arrays = {name: np.full(frames.uid.size, NONE, dtype=np.int64) for name in "ste"}
    arrays["s"][places] = timed[C.ts_ns].to_numpy()
    arrays["e"][places] = (timed[C.ts_ns] + timed[C.dur_ns]).to_numpy()
    arrays["t"][places] = timed["index"].cast(pl.Int64).fill_null(NONE).to_numpy()
    origin, last = least_ns(timed[C.ts_ns]) or 0, greatest_ns(timed[C.ts_ns]) or 0
    reach = last - origin + 2
    is_placed: NDArray[np.bool_] = ~frames.is_dropped[places]
    starts = (
        timed.select(C.thread, C.ts_ns)
        .with_columns(place=pl.Series(places))
        .filter(pl.Series(is_placed))
        .drop_nulls(C.thread)
        .select("place", key=pl.col(C.thread) * reach + pl.col(C.ts_ns) - origin)
        .sort("key", "place")
    )
    return Callers(
        frames,
        starts["place"].to_numpy(),
        starts["key"].to_numpy(),
        origin,
        reach,
        arrays["s"],
        arrays["e"],
        arrays["t"],
        texts,
    )
