"""Read capture traces: recordings of a program while it builds graphs.

Between the begin and the end of a capture the host calls of a graph are recorded, with operators,
shapes and Python frames, but no GPU work: the calls only add nodes to the graph.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import polars as pl

from jarvis.capture.alignment import COPY, FILL, Captured, token
from jarvis.core.arrays import has_any, in_any
from jarvis.schemas.names import C
from jarvis.trace import Trace, tables
from jarvis.trace.links import GRAPH_LAUNCHES, SUBMITS_WORK
from jarvis.trace.reader import read_raw
from jarvis.trace.tables import THREAD_KEY
from jarvis.trace.trace import tabulate

BEGIN, END = "StreamBeginCapture", "StreamEndCapture"
"""Names of the calls that begin and end a capture, without the prefix of the runtime."""

MAX_LAUNCHED = 0.05
"""Maximum share of the calls in a capture that launch GPU work themselves."""

KERNEL = "kernel"
_BOUND = f"({BEGIN}|{END})$"
_HOST = (C.uid, C.cat, C.name, *THREAD_KEY, C.ts_ns, C.dur_ns)


@dataclass(frozen=True)
class Template:
    """The host calls of a capture that are inserted for each replay of its graph.

    Tables as those of ``Trace``: ``uid`` numbers the calls from 0 by start, outer calls first, and
    ``ts_ns`` is the time since the begin of the capture. ``calls`` is the number of calls with
    those that no table has, ``length_ns`` their time. ``dispatches`` has the ``uid`` of each
    launch.
    """

    cpu_ops: pl.DataFrame
    runtime: pl.DataFrame
    python_functions: pl.DataFrame
    calls: int
    length_ns: int
    dispatches: pl.Series


class Bounds(NamedTuple):
    """The time between the calls that begin and end a capture."""

    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Window:
    """One capture: its trace, whose runtime calls have the column ``kernel``, and its time."""

    trace: Trace
    bounds: Bounds

    @cached_property
    def dispatches(self) -> pl.DataFrame:
        """The runtime calls that added a node, in host order: ``uid, op_uid, kernel``."""
        return (
            _dispatches(self.trace, self.bounds)
            .join(self.trace.call_tree.select(C.uid, C.op_uid), on=C.uid, how="left")
            .sort(C.ts_ns, C.uid)
        )

    @cached_property
    def captured(self) -> Captured:
        """The dispatches as sequences that are compared with the events of a replay."""
        ops = self.dispatches.join(
            self.trace.cpu_ops.select(
                pl.col(C.uid).alias(C.op_uid),
                op=pl.col(C.name).cast(pl.String),
                shapes=pl.col(C.input_dims).cast(pl.String),
            ),
            on=C.op_uid,
            how="left",
            maintain_order="left",
        )
        return Captured(
            tokens=tuple(
                _token(name, kernel)
                for name, kernel in self.dispatches.select(C.name, KERNEL).iter_rows()
            ),
            ops=tuple(ops["op"]),
            shapes=tuple(ops["shapes"]),
        )

    @cached_property
    def template(self) -> Template:
        """The calls inside the capture, with operators of all kinds and Python frames around a
        launch.

        Calls that began before the capture are left out, as are runtime calls outside any other
        call that launch nothing.
        """
        tree = self.trace.python_call_tree
        frames = self.trace.python_functions
        host = pl.concat(
            [table.select(_HOST) for table in (self.trace.cpu_ops, self.trace.runtime, frames)]
        ).filter(pl.col(C.ts_ns) >= self.bounds.start_ns, _end() <= self.bounds.end_ns)
        placed = tree.join(host.select(C.uid, C.cat, *THREAD_KEY, C.ts_ns), on=C.uid).sort("order")
        launches = self.dispatches[C.uid].implode()
        is_launch = tree.select(pl.col(C.uid).is_in(launches)).to_series().to_numpy()
        is_outermost = ~pl.col(C.parent_uid).is_in(placed[C.uid].implode()).fill_null(False)
        tops = placed.filter(
            is_outermost
            & ~pl.col(C.is_dropped)
            & (~pl.col(C.cat).is_in(tables.RUNTIME_CATEGORIES) | pl.col(C.uid).is_in(launches))
        )
        inside = in_any(tree.height, tops["order"].to_numpy(), tops[C.subtree_end].to_numpy())
        launching = has_any(is_launch, placed["order"].to_numpy(), placed[C.subtree_end].to_numpy())
        segment = pl.struct(THREAD_KEY).rank("dense").cast(pl.Int64) - 1
        length_ns = self.bounds.end_ns - self.bounds.start_ns + 1
        numbered = (
            placed.with_columns(
                (pl.col(C.ts_ns) - self.bounds.start_ns).alias(C.start_ns),
                is_launching=pl.Series(launching),
            )
            .filter(pl.Series(inside[placed["order"].to_numpy()]))
            .sort(C.ts_ns, C.depth, "order")
            .with_columns(number=pl.int_range(pl.len()), segment=segment)
            .with_columns(pl.col(C.start_ns) + pl.col("segment") * length_ns)
        )
        number = numbered.select(C.uid, "number", C.start_ns)
        shown = numbered.filter("is_launching")[C.uid].implode()

        def table(rows: pl.DataFrame) -> pl.DataFrame:
            found = rows.join(number, on=C.uid, maintain_order="left")
            return found.with_columns(
                pl.col("number").alias(C.uid), pl.col(C.start_ns).alias(C.ts_ns)
            ).drop("number", C.start_ns)

        return Template(
            cpu_ops=table(self.trace.cpu_ops),
            runtime=table(self.trace.runtime.filter(pl.col(C.uid).is_in(launches)).drop(KERNEL)),
            python_functions=table(frames.filter(pl.col(C.uid).is_in(shown))),
            calls=numbered.height,
            length_ns=length_ns * max(numbered["segment"].n_unique(), 1),
            dispatches=self.dispatches.join(number, on=C.uid, how="left", maintain_order="left")[
                "number"
            ],
        )


def _token(call: str, kernel: str | None) -> str | None:
    lowered = call.lower()
    if COPY in lowered:
        return COPY
    return FILL if FILL in lowered else token(kernel)


def _end() -> pl.Expr:
    return pl.col(C.ts_ns) + pl.col(C.dur_ns)


def capture_bounds(runtime: pl.DataFrame) -> tuple[list[Bounds], int]:
    """Return the captures by start, and the number of begins and ends without a counterpart.

    A begin belongs to the next end of its thread. A capture inside another is left out.
    """
    calls = runtime.filter(pl.col(C.name).cast(pl.String).str.contains(_BOUND)).drop_nulls(
        [C.ts_ns, C.dur_ns]
    )
    found, unpaired = [], 0
    for thread in calls.sort(C.ts_ns, C.uid).partition_by(THREAD_KEY, maintain_order=True):
        start: int | None = None
        depth = 0
        for name, ts_ns, dur_ns in thread.select(C.name, C.ts_ns, C.dur_ns).iter_rows():
            if name.endswith(BEGIN):
                depth += 1
                unpaired += depth > 1
                start = ts_ns + dur_ns if depth == 1 else start
            elif depth == 0:
                unpaired += 1
            else:
                depth -= 1
                if depth == 0 and start is not None:
                    found.append(Bounds(start, ts_ns))
        unpaired += depth > 0
    return sorted(found), unpaired


def _dispatches(trace: Trace, bounds: Bounds) -> pl.DataFrame:
    return trace.runtime.filter(
        pl.col(C.name).cast(pl.String).str.contains(SUBMITS_WORK)
        & pl.col(C.ts_ns).is_between(*bounds)
    )


def is_capture_trace(trace: Trace) -> bool:
    """Return whether a trace records how graphs were captured: calls in it launch no GPU work."""
    bounds, _ = capture_bounds(trace.runtime)
    calls = [_dispatches(trace, each)[C.uid] for each in bounds]
    inside = pl.concat(calls) if calls else pl.Series(dtype=pl.Int64)
    launched = inside.is_in(trace.launches[C.runtime_uid].implode()).sum()
    return not inside.is_empty() and launched < MAX_LAUNCHED * inside.len()


def is_eager_trace(trace: Trace) -> bool:
    """Return whether a trace records a program that launches its kernels one by one: it neither
    captures nor replays graphs."""
    calls = trace.runtime[C.name].cast(pl.String)
    has_graphs = calls.is_in([*GRAPH_LAUNCHES]) | calls.str.contains(_BOUND)
    return not has_graphs.any() and trace.launches.height > 0


def with_launched_kernels(trace: Trace) -> Trace:
    """Return a trace whose calls have the ``kernel`` that they launched, without those that
    launched nothing."""
    launched = (
        trace.launches.sort(C.gpu_uid)
        .unique(C.runtime_uid, keep="first")
        .join(trace.gpu_events.select(pl.col(C.uid).alias(C.gpu_uid), C.name), on=C.gpu_uid)
        .select(pl.col(C.runtime_uid).alias(C.uid), pl.col(C.name).cast(pl.String).alias(KERNEL))
    )
    submits = pl.col(C.name).cast(pl.String).str.contains(SUBMITS_WORK)
    calls = trace.runtime.drop(KERNEL).join(launched, on=C.uid, how="left", maintain_order="left")
    return replace(trace, runtime=calls.filter(~submits | pl.col(KERNEL).is_not_null()))


def read_capture(path: Path) -> Trace:
    """Read a capture trace, with the column ``kernel`` of its runtime calls.

    Raises:
        TraceError: The file cannot be read or is not a trace.
    """
    return tabulate(read_raw(path), runtime_fields=tables.CAPTURED_RUNTIME)
