"""Explore a trace: find calls by name, and the calls around and below them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from jarvis.core.errors import UnknownCallError
from jarvis.perf_report.call_tree.stacks import KIND_OF_CALL, MODULE_PREFIX
from jarvis.perf_report.calls import ARGUMENTS, HostCalls, host_calls
from jarvis.perf_report.intervals import busy_ns, microseconds
from jarvis.perf_report.literals import tuples_text
from jarvis.perf_report.work import GpuWork, gpu_work
from jarvis.schemas.names import C
from jarvis.trace import OnProgress, Trace, read_trace

CALL_SCHEMA: dict[str, pl.DataType] = {
    C.uid: pl.Int64(),
    C.parent_uid: pl.Int64(),
    C.depth: pl.Int64(),
    C.kind: pl.String(),
    C.name: pl.String(),
    **dict.fromkeys(ARGUMENTS, pl.String()),
    C.module: pl.String(),
    C.dur_us: pl.Float64(),
    C.kernel_time_us: pl.Float64(),
    C.stream: pl.Int64(),
}
"""The columns of every table of calls."""

MAX_PAIRS_PER_BATCH = 4_000_000
"""Maximum pairs of a call and GPU work below it in memory at once."""

_NO_MODULE = -1
_PLACE = (C.uid, C.parent_uid, C.depth, "order", C.subtree_end)


@dataclass(frozen=True)
class TraceTree(Trace):
    """A trace with methods to look up calls.

    ``find``, ``parents`` and ``subtree`` return tables of calls (CALL_SCHEMA), one row each:

    - ``uid``: the number of the event, as in ``ex_UID`` of the sheets; ``parent_uid``: that of the
      enclosing call, null at the top.
    - ``depth``: levels below the outermost call of the thread; in a subtree below its first row.
    - ``kind``: ``op``, ``module`` (an ``nn.Module``), ``python`` (a frame), ``runtime`` (a call
      that launches or waits) or ``kernel`` (GPU work, copies too).
    - ``name``, and the recorded arguments as Python text (null if not recorded): ``input_dims``,
      ``input_types``, ``input_strides``, ``concrete_inputs``.
    - ``module``: the innermost module around or at it; for a backward call that of its forward op.
    - ``dur_us``: duration in µs, on the host, or on the GPU for a kernel.
    - ``kernel_time_us``: busy time in µs of GPU work launched below it; overlaps count once.
    - ``stream``: stream of GPU work.
    """

    def find(self, name: str) -> pl.DataFrame:
        """Return the calls and kernels with a name, in file order.

        ``*`` in ``name`` matches any text, and case is ignored: ``aten::*mm``.
        """
        matching = pl.col(C.name).cast(pl.String).str.contains(name_pattern(name))
        tables = (self.cpu_ops, self.runtime, self.python_functions)
        host = pl.concat([table.filter(matching)["uid"] for table in tables])
        launched = self._work.events.filter(matching)
        found = pl.concat([self._calls(self._places(host)), self._kernels(launched)])
        return found.sort(C.uid)

    def parents(self, uid: int) -> pl.DataFrame:
        """Return the calls around a call or kernel, outermost first.

        Raises:
            UnknownCallError: There is no call and no kernel with this uid.
        """
        uid = self._event_uid(uid)
        launch = self._work.events.filter(pl.col(C.uid) == uid)[C.launch_uid]
        inner = int(launch[0]) if launch.len() and launch[0] is not None else uid
        place = self._places(pl.Series([inner]))
        if place.is_empty():
            return self._calls(place)
        order = place["order"][0]
        above = self.python_call_tree.filter(
            pl.col("order") <= order, pl.col(C.subtree_end) > order, pl.col(C.uid) != uid
        )
        return self._calls(above.select(_PLACE))

    def subtree(self, uid: int, depth: int | None = None) -> pl.DataFrame:
        """Return a call and all calls below it in order of start, kernels after their launch.

        Args:
            uid: A call, or a kernel, which is returned alone.
            depth: Maximum levels below the call; unlimited by default.

        Raises:
            UnknownCallError: There is no call and no kernel with this uid.
        """
        uid = self._event_uid(uid)
        place = self._places(pl.Series([uid]))
        if place.is_empty():
            found = self._kernels(self._work.events.filter(pl.col(C.uid) == uid))
        else:
            inside = pl.col("order").is_between(
                place["order"][0], place[C.subtree_end][0], closed="left"
            )
            tree = self.python_call_tree.filter(inside).select(_PLACE)
            launched = self._work.events.filter(pl.col(C.launch_uid).is_in(tree[C.uid].implode()))
            position = tree.select("order", pl.col(C.uid).alias(C.launch_uid))
            under = launched.join(position, on=C.launch_uid, maintain_order="left")
            found = (
                pl.concat(
                    [
                        self._calls(tree).with_columns(tree["order"]),
                        self._kernels(launched).with_columns(under["order"]),
                    ]
                )
                .sort("order", pl.col(C.kind) == "kernel", maintain_order=True)
                .drop("order")
            )
        found = found.with_columns((pl.col(C.depth) - found[C.depth][0]).alias(C.depth))
        return found if depth is None else found.filter(pl.col(C.depth) <= depth)

    @cached_property
    def _work(self) -> GpuWork:
        return gpu_work(self, with_python=True)

    @property
    def _host_calls(self) -> HostCalls:
        return host_calls(self, with_python=True)

    @cached_property
    def _modules(self) -> tuple[NDArray[np.int32], pl.Series]:
        """The module number of each row of the tree, or _NO_MODULE; and the module names."""
        modules = self.python_functions.filter(pl.col(C.name).str.starts_with(MODULE_PREFIX))
        names = modules[C.name].cast(pl.String).str.strip_prefix(MODULE_PREFIX)
        number = pl.DataFrame({C.uid: modules[C.uid]}).with_row_index("number")
        tree = self.python_call_tree
        module_of: NDArray[np.int32] = np.full(tree.height, _NO_MODULE, dtype=np.int32)
        places = tree.join(number, on=C.uid).sort("order")
        for start, end, which in places.select("order", C.subtree_end, "number").iter_rows():
            module_of[start:end] = which
        for start, end, forward in self._backward_spans():
            part = module_of[start:end]
            part[part == _NO_MODULE] = module_of[forward]
        return module_of, names

    def _backward_spans(self) -> list[tuple[int, int, int]]:
        """Return start and end of the subtrees of autograd nodes, innermost first, and the position
        of their forward ops."""
        place = self.python_call_tree.select(C.uid, "order", C.subtree_end)
        forward = place.select(pl.col(C.uid).alias(C.forward_uid), forward_order="order")
        spans = (
            self.backwards.join(place, left_on=C.backward_uid, right_on=C.uid)
            .join(forward, on=C.forward_uid)
            .sort("order", descending=True)
        )
        return spans.select("order", C.subtree_end, "forward_order").rows()

    def _event_uid(self, uid: int) -> int:
        """Return the event with this uid, or the event of a synthetic row of a sheet."""
        if uid >= self.event_count:
            from jarvis.perf_report import PerfReport

            event = PerfReport(self, None).event_of_row(uid)
        else:
            event = uid
        is_host = event is not None and not self._places(pl.Series([event])).is_empty()
        if event is None or not (is_host or self._work.events[C.uid].eq(event).any()):
            raise UnknownCallError(uid, self.info.file_name)
        return event

    def _places(self, uids: pl.Series) -> pl.DataFrame:
        wanted = pl.col(C.uid).is_in(uids.cast(pl.Int64).implode())
        return self.python_call_tree.filter(wanted).select(_PLACE)

    def _calls(self, places: pl.DataFrame) -> pl.DataFrame:
        """Return the host calls at some rows of the tree, in the same order."""
        named = self._host_calls.select(places[C.uid], C.name, C.cat, C.dur_ns, *ARGUMENTS)
        module_of, names = self._modules
        number = pl.Series(module_of[places["order"].to_numpy()])
        rows = (
            places.with_columns(
                names.gather(number.replace(_NO_MODULE, None)).alias(C.module),
            )
            .join(named, on=C.uid, how="left", maintain_order="left")
            .join(self._kernel_times(places), on=C.uid, how="left", maintain_order="left")
            .with_columns(
                *(tuples_text(argument) for argument in ARGUMENTS),
                KIND_OF_CALL.alias(C.kind),
                microseconds(pl.col(C.dur_ns)).alias(C.dur_us),
                microseconds(pl.col(C.busy_ns).fill_null(0)).alias(C.kernel_time_us),
                pl.lit(None).alias(C.stream),
            )
        )
        return rows.select(pl.col(name).cast(dtype) for name, dtype in CALL_SCHEMA.items())

    def _kernel_times(self, places: pl.DataFrame) -> pl.DataFrame:
        """Return ``uid, busy_ns`` of the calls with GPU work below them."""
        order = self._work.launches["order"]
        first, end = (order.search_sorted(places[name]) for name in ("order", C.subtree_end))
        batch = (end - first).cum_sum() // MAX_PAIRS_PER_BATCH
        parts = [
            busy_ns(self._work.below(part[C.uid], (C.ts_ns, C.dur_ns)), [C.owner_uid])
            for part in places.select(C.uid, batch.alias(C.batch)).partition_by(C.batch)
        ]
        times = (
            pl.concat(parts)
            if parts
            else pl.DataFrame(schema={C.owner_uid: pl.Int64, C.busy_ns: pl.Int64})
        )
        return times.select(pl.col(C.busy_ns), pl.col(C.owner_uid).alias(C.uid))

    def _kernels(self, events: pl.DataFrame) -> pl.DataFrame:
        """Return GPU work as rows of calls, in the order of ``events``."""
        parents = self._places(events[C.launch_uid].drop_nulls())
        module_of, names = self._modules
        number = pl.Series(module_of[parents["order"].to_numpy()])
        above = parents.select(
            pl.col(C.uid).alias(C.launch_uid),
            (pl.col(C.depth) + 1).alias(C.depth),
            names.gather(number.replace(_NO_MODULE, None)).alias(C.module),
        )
        rows = events.join(above, on=C.launch_uid, how="left", maintain_order="left").with_columns(
            *(pl.lit(None, pl.String).alias(argument) for argument in ARGUMENTS),
            pl.col(C.launch_uid).alias(C.parent_uid),
            pl.col(C.depth).fill_null(0),
            pl.lit("kernel").alias(C.kind),
            microseconds(pl.col(C.dur_ns)).alias(C.dur_us),
            microseconds(pl.col(C.dur_ns)).alias(C.kernel_time_us),
        )
        return rows.select(pl.col(name).cast(dtype) for name, dtype in CALL_SCHEMA.items())


def read_trace_tree(path: Path | str, on_progress: OnProgress | None = None) -> TraceTree:
    """Read a trace (``.json``, ``.json.gz``, or a ``.zip`` with one) to look up calls.

    Raises:
        TraceError: The file cannot be read, is not a trace, or has no events.
    """
    trace = read_trace(path, on_progress)
    return TraceTree(**{field.name: getattr(trace, field.name) for field in fields(Trace)})


def name_pattern(name: str) -> str:
    """Return a regular expression for names: ``*`` matches any text, case is ignored."""
    parts: Sequence[str] = name.split("*")
    return f"(?is)^{'.*'.join(re.escape(part) for part in parts)}$"
