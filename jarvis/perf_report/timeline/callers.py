"""Find the Python function, and the annotation, that the host is in during a span of time.

A span belongs to a gap: ``gap, thread, from_ns, to_ns``, as in ``host_spans``.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from jarvis.perf_models import step_annotation
from jarvis.perf_report.call_tree.frames import NONE, CallFrames, call_frames
from jarvis.perf_report.call_tree.stacks import is_own_function
from jarvis.perf_report.intervals import Int64s, greatest_ns, least_ns
from jarvis.perf_report.timeline.host_spans import with_threads
from jarvis.schemas.names import C
from jarvis.trace import Trace
from jarvis.trace.call_tree import build_call_tree
from jarvis.trace.metadata import STEP_PREFIX


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
    marks = trace.annotations.filter(pl.col(C.cat) == "user_annotation")
    names = marks[C.name].unique()
    is_step = [name.startswith(STEP_PREFIX) or step_annotation.parse(name) for name in names]
    wanted = names.filter(pl.Series([not step for step in is_step], dtype=pl.Boolean))
    return _callers(build_call_tree(marks), marks, wanted, threads)


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
