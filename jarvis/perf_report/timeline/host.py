"""Activity of host threads over time, reduced to a size that can be charted for any trace.

``host_bins`` has, for each thread and each of HOST_BINS equal spans of the recording, the time in
runtime calls, operators, and Python code only, from all calls. ``host_slices`` has the MAX_SLICES
longest calls: calls are longer than those inside them, so no stored call lacks its caller, and a
zoomed-out view lacks none of the calls that it can show.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import pairwise

import numpy as np
import polars as pl

from jarvis.core.arrays import Int64s
from jarvis.perf_report.intervals import covered_by_bin, greatest_ns, least_ns
from jarvis.perf_report.literals import tuples_text
from jarvis.schemas.names import C
from jarvis.trace import Trace
from jarvis.trace.tables import THREAD_KEY

MAX_SLICES = 500_000
"""Maximum number of stored calls: about 30 MB in memory and a few MB on disk."""

HOST_BINS = 8192
"""Spans of the recording: eight per pixel of the widest chart, and a few MB for many threads."""

MAX_BINS = 64 * HOST_BINS
"""Maximum spans of all threads; with more than 64 threads each has fewer and wider ones."""

_UNKNOWN = "unknown"


class HostCall(StrEnum):
    """Kinds of host calls."""

    RUNTIME = "runtime"
    OPERATOR = "operator"
    PYTHON = "python"
    ANNOTATION = "annotation"


ACTIVE = (HostCall.RUNTIME, HostCall.OPERATOR, HostCall.PYTHON)
"""Kinds of calls that keep a thread busy, innermost first; annotations do not."""


@dataclass(frozen=True)
class HostTimeline:
    """Tables about the host threads of one trace (schemas: ``host_threads`` etc.)."""

    trace: Trace

    @cached_property
    def threads(self) -> pl.DataFrame:
        """The threads, most time in operators and runtime calls first."""
        busy = self._bins.group_by("_thread").agg(pl.col(_column(kind)).sum() for kind in ACTIVE)
        stored = self._stored.group_by("_thread").agg(pl.len().alias(C.kept_count))
        names = self.trace.threads
        processes = names.drop_nulls(C.process_name).unique(C.pid, keep="first")
        return (
            self._counted.join(busy, on="_thread", how="left", maintain_order="left")
            .join(stored, on="_thread", how="left", maintain_order="left")
            .join(processes.select(C.pid, C.process_name), on=C.pid, how="left", nulls_equal=True)
            .join(
                names.drop_nulls(C.thread_name)
                .unique(THREAD_KEY, keep="first")
                .select(*THREAD_KEY, C.thread_name),
                on=THREAD_KEY,
                how="left",
                nulls_equal=True,
            )
            .with_columns(pl.col(C.kept_count, *map(_column, ACTIVE)).fill_null(0))
            .sort(
                pl.sum_horizontal(_column(HostCall.RUNTIME), _column(HostCall.OPERATOR)),
                _column(HostCall.PYTHON),
                "_thread",
                descending=[True, True, False],
            )
            .with_columns(
                pl.col(*THREAD_KEY).cast(pl.String).fill_null(_UNKNOWN),
                pl.int_range(pl.len(), dtype=pl.Int64).alias(C.thread),
            )
        )

    @cached_property
    def slices(self) -> pl.DataFrame:
        """Single calls by thread and time, outer calls first."""
        return (
            self._numbered(self._stored)
            .with_columns(tuples_text(C.input_dims))
            .sort(
                *(C.thread, C.ts_ns, C.dur_ns, C.uid),
                descending=[False, False, True, False],
                maintain_order=True,  # merges the calls of each kind, which are in order
            )
        )

    @cached_property
    def bins(self) -> pl.DataFrame:
        """Busy time of each thread by activity in each span; spans without calls are omitted."""
        return self._numbered(self._bins).sort(C.thread, C.start_ns)

    def _numbered(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows with the final thread number."""
        numbers = self.threads.sort("_thread")[C.thread]
        return rows.with_columns(numbers.gather(rows["_thread"]).alias(C.thread))

    @cached_property
    def _calls(self) -> dict[HostCall, pl.DataFrame]:
        trace = self.trace
        marks = trace.host_annotations
        tables = {
            HostCall.RUNTIME: trace.runtime,
            HostCall.OPERATOR: trace.cpu_ops,
            HostCall.PYTHON: trace.python_functions,
            HostCall.ANNOTATION: marks,
        }
        return {kind: calls.drop_nulls([C.ts_ns, C.dur_ns]) for kind, calls in tables.items()}

    @cached_property
    def _counted(self) -> pl.DataFrame:
        """``pid, tid, call_count`` of all threads with calls, and a preliminary ``_thread``."""
        return (
            pl.concat([calls.select(THREAD_KEY) for calls in self._calls.values()])
            .group_by(THREAD_KEY, maintain_order=True)
            .agg(pl.len().alias(C.call_count))
            .with_columns(_thread=pl.int_range(pl.len(), dtype=pl.Int64))
        )

    @cached_property
    def _stored(self) -> pl.DataFrame:
        """The longest calls of all kinds."""
        min_ns = _min_stored_ns([calls[C.dur_ns] for calls in self._calls.values()])
        stored = [
            calls.filter(pl.col(C.dur_ns) >= min_ns).select(
                C.uid,
                *THREAD_KEY,
                pl.lit(str(kind)).alias(C.kind),
                C.name,
                C.ts_ns,
                C.dur_ns,
                *([C.input_dims] if kind is HostCall.OPERATOR else []),
            )
            for kind, calls in self._calls.items()
        ]
        return self._with_thread(pl.concat(stored, how="diagonal"))

    @cached_property
    def _bins(self) -> pl.DataFrame:
        outermost = self._outermost
        timed = [calls for calls in outermost.values() if not calls.is_empty()]
        if not timed:
            durations = {_column(kind): pl.Int64 for kind in ACTIVE}
            return pl.DataFrame(
                schema={"_thread": pl.Int64, C.start_ns: pl.Int64, C.dur_ns: pl.Int64, **durations}
            )
        first = least_ns(pl.concat([calls[C.ts_ns] for calls in timed])) or 0
        last = greatest_ns(pl.concat([calls[C.ts_ns] + calls[C.dur_ns] for calls in timed])) or 0
        threads = pl.concat([calls.select("_thread") for calls in timed]).unique()["_thread"].sort()
        count = max(1, min(HOST_BINS, MAX_BINS // len(threads)))
        width = max(-(-(last - first) // count), 1)
        edges = np.arange(count + 1, dtype=np.int64) * width + first
        by_thread = [
            outermost[kind].partition_by("_thread", as_dict=True, maintain_order=True)
            for kind in ACTIVE
        ]
        nothing = timed[0].clear()
        return pl.concat(
            _bins_of(thread, [calls.get((thread,), nothing) for calls in by_thread], edges, width)
            for thread in threads
        )

    @cached_property
    def _outermost(self) -> dict[HostCall, pl.DataFrame]:
        """``_thread, ts_ns, dur_ns`` of calls that are not inside others of their kind.

        A few others are included: overlapping calls that are dropped from the tree have depth 0.
        """
        tree = self.trace.python_call_tree
        is_top = np.zeros(tree[C.uid].to_numpy().max(initial=0) + 1, dtype=np.bool_)
        is_top[tree.filter(pl.col(C.depth) == 0)[C.uid].to_numpy()] = True
        is_root = is_top.copy()
        is_root[tree.filter(C.is_root)[C.uid].to_numpy()] = True
        chosen = {
            HostCall.RUNTIME: None,
            HostCall.OPERATOR: is_root,
            HostCall.PYTHON: is_top,
        }
        outermost = {}
        for kind, flags in chosen.items():
            calls = self._calls[kind]
            if flags is not None:
                calls = calls.filter(pl.Series(flags[calls[C.uid].to_numpy()]))
            timed = self._with_thread(calls.select(*THREAD_KEY, C.ts_ns, C.dur_ns))
            outermost[kind] = timed.select("_thread", C.ts_ns, C.dur_ns)
        return outermost

    def _with_thread(self, calls: pl.DataFrame) -> pl.DataFrame:
        numbers = self._counted.select(*THREAD_KEY, "_thread")
        keys = calls.select(THREAD_KEY)  # the other columns need not be copied
        of_calls = keys.join(numbers, on=THREAD_KEY, nulls_equal=True, maintain_order="left")
        return calls.with_columns(of_calls["_thread"])


def _bins_of(
    thread: int, calls: Sequence[pl.DataFrame], edges: Int64s, width_ns: int
) -> pl.DataFrame:
    """Return the spans with activity of one thread; ``calls`` are those of the thread."""
    own = own_ns(calls, edges)
    busy = np.sum(own, axis=0) > 0
    return pl.DataFrame(
        {
            "_thread": np.full(int(busy.sum()), thread, dtype=np.int64),
            C.start_ns: edges[:-1][busy],
            C.dur_ns: np.full(int(busy.sum()), width_ns, dtype=np.int64),
            **{_column(kind): ns[busy] for kind, ns in zip(ACTIVE, own, strict=True)},
        }
    )


def own_ns(calls: Sequence[pl.DataFrame], edges: Int64s) -> list[Int64s]:
    """Return the time of each kind of call, without that of earlier kinds, between the edges.

    Args:
        calls: ``ts_ns, dur_ns`` of one thread for each kind, innermost kind first.
        edges: Edges of the spans in ns.
    """
    covered = [covered_by_bin(pl.concat(calls[: n + 1]), edges) for n in range(len(calls))]
    return [covered[0], *(outer - inner for inner, outer in pairwise(covered))]


def _column(kind: HostCall) -> str:
    return f"{kind}_ns"


def _min_stored_ns(durations: list[pl.Series]) -> int:
    """Return the minimum duration of stored calls, so that at most MAX_SLICES are stored."""
    all_ns = np.concatenate([values.to_numpy() for values in durations])
    excess = all_ns.size - MAX_SLICES
    if excess <= 0:
        return int(all_ns.min(initial=0))
    return int(np.partition(all_ns, excess - 1)[excess - 1]) + 1
