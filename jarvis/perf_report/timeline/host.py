"""What the host's threads do over time, small enough to draw for a trace of any size.

Two tables complete each other. ``host_bins`` holds, for each thread and each of HOST_BINS equal
spans of the recording, how long a runtime call, an operator or only Python code ran: exact, all
calls counted. ``host_slices`` holds single calls, the MAX_SLICES longest ones: a call is longer
than those inside it, so what is kept is whole from the top down, and a view that is wide enough to
need fewer calls than that misses none of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import pairwise

import numpy as np
import polars as pl

from jarvis.perf_report.intervals import Int64s, covered_by_bin, greatest_ns, least_ns
from jarvis.perf_report.literals import tuples_text
from jarvis.trace import Trace

MAX_SLICES = 500_000
"""Calls kept: about 30 MB in memory and a few MB on disk."""

HOST_BINS = 8192
"""Spans of the recording: eight to a pixel of the widest chart, and some MB for many threads."""

MAX_BINS = 64 * HOST_BINS
"""Spans of all threads together: with more than 64 threads each has fewer and wider ones."""

_THREAD = ["pid", "tid"]
_UNKNOWN = "unknown"


class HostCall(StrEnum):
    """Kinds of host calls."""

    RUNTIME = "runtime"
    OPERATOR = "operator"
    PYTHON = "python"
    ANNOTATION = "annotation"


ACTIVE = (HostCall.RUNTIME, HostCall.OPERATOR, HostCall.PYTHON)
"""What keeps a thread busy, innermost first; an annotation only marks a time."""


@dataclass(frozen=True)
class HostTimeline:
    """The tables about host threads of one trace (schemas: ``host_threads`` and so on)."""

    trace: Trace

    @cached_property
    def threads(self) -> pl.DataFrame:
        """The threads, those with most time in operators and runtime calls first."""
        busy = self._bins.group_by("_thread").agg(pl.col(_column(kind)).sum() for kind in ACTIVE)
        kept = self._kept.group_by("_thread").agg(kept_count=pl.len())
        names = self.trace.threads
        processes = names.drop_nulls("process_name").unique("pid", keep="first")
        return (
            self._counted.join(busy, on="_thread", how="left", maintain_order="left")
            .join(kept, on="_thread", how="left", maintain_order="left")
            .join(processes.select("pid", "process_name"), on="pid", how="left", nulls_equal=True)
            .join(
                names.drop_nulls("thread_name")
                .unique(_THREAD, keep="first")
                .select(*_THREAD, "thread_name"),
                on=_THREAD,
                how="left",
                nulls_equal=True,
            )
            .with_columns(pl.col("kept_count", *map(_column, ACTIVE)).fill_null(0))
            .sort(
                pl.sum_horizontal(_column(HostCall.RUNTIME), _column(HostCall.OPERATOR)),
                _column(HostCall.PYTHON),
                "_thread",
                descending=[True, True, False],
            )
            .with_columns(
                pl.col(*_THREAD).cast(pl.String).fill_null(_UNKNOWN),
                thread=pl.int_range(pl.len(), dtype=pl.Int64),
            )
        )

    @cached_property
    def slices(self) -> pl.DataFrame:
        """Single calls by thread and time, the outer ones first."""
        return (
            self._numbered(self._kept)
            .with_columns(tuples_text("input_dims"))
            .sort("thread", "ts_ns", "dur_ns", "uid", descending=[False, False, True, False])
        )

    @cached_property
    def bins(self) -> pl.DataFrame:
        """How long each thread is busy with what in each span; spans without calls are left out."""
        return self._numbered(self._bins).sort("thread", "start_ns")

    def _numbered(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows with the thread's number in the place of the preliminary one."""
        return rows.join(self.threads.select("_thread", "thread"), on="_thread")

    @cached_property
    def _calls(self) -> dict[HostCall, pl.DataFrame]:
        trace = self.trace
        marks = trace.annotations.filter(pl.col("cat") == "user_annotation")
        found = {
            HostCall.RUNTIME: trace.runtime,
            HostCall.OPERATOR: trace.cpu_ops,
            HostCall.PYTHON: trace.python_functions,
            HostCall.ANNOTATION: marks,
        }
        return {kind: calls.drop_nulls(["ts_ns", "dur_ns"]) for kind, calls in found.items()}

    @cached_property
    def _counted(self) -> pl.DataFrame:
        """``pid, tid, call_count`` of all threads with calls, and a preliminary ``_thread``."""
        return (
            pl.concat([calls.select(_THREAD) for calls in self._calls.values()])
            .group_by(_THREAD, maintain_order=True)
            .agg(call_count=pl.len())
            .with_columns(_thread=pl.int_range(pl.len(), dtype=pl.Int64))
        )

    @cached_property
    def _kept(self) -> pl.DataFrame:
        """The longest calls of all kinds together."""
        least_ns = _least_kept_ns([calls["dur_ns"] for calls in self._calls.values()])
        kept = [
            calls.filter(pl.col("dur_ns") >= least_ns).select(
                "uid",
                *_THREAD,
                pl.lit(str(kind)).alias("kind"),
                "name",
                "ts_ns",
                "dur_ns",
                *(["input_dims"] if kind is HostCall.OPERATOR else []),
            )
            for kind, calls in self._calls.items()
        ]
        return self._with_thread(pl.concat(kept, how="diagonal"))

    @cached_property
    def _bins(self) -> pl.DataFrame:
        outermost = self._outermost
        timed = [calls for calls in outermost.values() if not calls.is_empty()]
        if not timed:
            durations = {_column(kind): pl.Int64 for kind in ACTIVE}
            return pl.DataFrame(
                schema={"_thread": pl.Int64, "start_ns": pl.Int64, "dur_ns": pl.Int64, **durations}
            )
        first = least_ns(pl.concat([calls["ts_ns"] for calls in timed])) or 0
        last = greatest_ns(pl.concat([calls["ts_ns"] + calls["dur_ns"] for calls in timed])) or 0
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
        """``_thread, ts_ns, dur_ns`` of calls that none of their kind contains, and of few others.

        Calls that overlap others without being inside them have depth 0 in the tree.
        """
        tree = self.trace.python_call_tree
        is_top = np.zeros(tree["uid"].to_numpy().max(initial=0) + 1, dtype=np.bool_)
        is_top[tree.filter(pl.col("depth") == 0)["uid"].to_numpy()] = True
        is_root = is_top.copy()
        is_root[tree.filter("is_root")["uid"].to_numpy()] = True
        chosen = {
            HostCall.RUNTIME: None,
            HostCall.OPERATOR: is_root,
            HostCall.PYTHON: is_top,
        }
        found = {}
        for kind, flags in chosen.items():
            calls = self._calls[kind]
            if flags is not None:
                calls = calls.filter(pl.Series(flags[calls["uid"].to_numpy()]))
            timed = self._with_thread(calls.select(*_THREAD, "ts_ns", "dur_ns"))
            found[kind] = timed.select("_thread", "ts_ns", "dur_ns")
        return found

    def _with_thread(self, calls: pl.DataFrame) -> pl.DataFrame:
        numbers = self._counted.select(*_THREAD, "_thread")
        return calls.join(numbers, on=_THREAD, nulls_equal=True, maintain_order="left")


def _bins_of(
    thread: int, calls: Sequence[pl.DataFrame], edges: Int64s, width_ns: int
) -> pl.DataFrame:
    """Return the spans of one thread in which it does something; ``calls`` are its own."""
    own = own_ns(calls, edges)
    busy = np.sum(own, axis=0) > 0
    return pl.DataFrame(
        {
            "_thread": np.full(int(busy.sum()), thread, dtype=np.int64),
            "start_ns": edges[:-1][busy],
            "dur_ns": np.full(int(busy.sum()), width_ns, dtype=np.int64),
            **{_column(kind): ns[busy] for kind, ns in zip(ACTIVE, own, strict=True)},
        }
    )


def own_ns(calls: Sequence[pl.DataFrame], edges: Int64s) -> list[Int64s]:
    """How long each kind of call runs between each edge and the next while no earlier kind does.

    ``calls``: ``ts_ns, dur_ns`` of one thread for each kind, the innermost kind first.
    """
    covered = [covered_by_bin(pl.concat(calls[: n + 1]), edges) for n in range(len(calls))]
    return [covered[0], *(outer - inner for inner, outer in pairwise(covered))]


def _column(kind: HostCall) -> str:
    return f"{kind}_ns"


def _least_kept_ns(durations: list[pl.Series]) -> int:
    """The duration from which on calls are kept, so that at most MAX_SLICES are."""
    all_ns = np.concatenate([values.to_numpy() for values in durations])
    too_many = all_ns.size - MAX_SLICES
    if too_many <= 0:
        return int(all_ns.min(initial=0))
    return int(np.partition(all_ns, too_many - 1)[too_many - 1]) + 1
