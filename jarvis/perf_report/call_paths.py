"""Where a call stands: what is around it, what runs below it, from the tree with Python frames."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal, NamedTuple

import polars as pl
from pydantic import BaseModel, ConfigDict

from jarvis.perf_report.calls import HostCalls
from jarvis.perf_report.literals import tuples_text
from jarvis.perf_report.subtrees import has_any, in_any
from jarvis.trace.tables import CPU_OP, PYTHON_FUNCTION

MODULE_PREFIX = "nn.Module: "

# A frame reads "path/file.py(12): function".
_PYTHON_FRAME = re.compile(r"^(?P<file>\S.*?\.py)\(\d+\): (?P<function>.*)$")
# Frames that are nobody's entry point: of the framework and of the library under it, and wrappers.
_FRAMEWORK_FILE = re.compile(
    r"(^|/)((torch|triton)/.*|(contextlib|functools|runpy|threading|weakref)\.py)$"
)
_WRAPPERS = frozenset({"wrapper", "wrapped", "inner", "custom_wrapper", "outer_wrapper"})

Kind = Literal["module", "python", "op", "runtime", "kernel"]

KIND_OF_CALL = (
    pl.when(pl.col("cat") == CPU_OP)
    .then(pl.lit("op"))
    .when(pl.col("cat") != PYTHON_FUNCTION)
    .then(pl.lit("runtime"))
    .when(pl.col("name").str.starts_with(MODULE_PREFIX))
    .then(pl.lit("module"))
    .otherwise(pl.lit("python"))
)


class Frame(BaseModel):
    """One call around the call in question."""

    model_config = ConfigDict(frozen=True)

    name: str
    kind: Kind


class SubtreeEntry(BaseModel):
    """One call below, in order of start; ``kernel`` is what a runtime call launched first."""

    model_config = ConfigDict(frozen=True)

    name: str
    kind: Kind
    depth: int
    dur_us: float
    kernel: str | None = None
    kernel_dur_us: float | None = None
    input_dims: str | None = None
    input_types: str | None = None


class LaunchedKernel(BaseModel):
    """One GPU event of the call."""

    model_config = ConfigDict(frozen=True)

    name: str
    dur_us: float
    stream: int | None


class CallPath(BaseModel):
    """The surroundings of one call: the chain above it (outermost first), all below it."""

    model_config = ConfigDict(frozen=True)

    uid: int
    op_name: str
    input_dims: str | None
    parent_chain: tuple[Frame, ...]
    nn_module_chain: tuple[str, ...]
    entry_point: str | None
    subtree: tuple[SubtreeEntry, ...]
    kernels: tuple[LaunchedKernel, ...]


@dataclass(frozen=True)
class CallStacks:
    """The chain of calls above some host calls.

    ``rows`` maps a uid to its parent's uid, its name and its kind, for these calls and all above
    them; ``forwards`` an autograd node among them to the op that it differentiates. The autograd
    thread has no Python frames, so the modules and the entry point of a backward call are those of
    its forward op.
    """

    rows: dict[int, tuple[int | None, str, Kind]]
    forwards: dict[int, int]

    def above(self, uid: int) -> Iterator[Frame]:
        """The calls around a call, innermost first."""
        parent = self.rows[uid][0] if uid in self.rows else None
        while parent is not None:
            parent, name, kind = self.rows[parent]
            yield Frame.model_construct(name=name, kind=kind)

    def modules(self, uid: int) -> list[str]:
        """Names of the modules around a call, outermost first."""
        return [
            frame.name.removeprefix(MODULE_PREFIX)
            for frame in self.above(self._with_python(uid))
            if frame.kind == "module"
        ][::-1]

    def entry_point(self, uid: int) -> str | None:
        """The nearest Python frame outside the framework, or None."""
        for frame in self.above(self._with_python(uid)):
            found = _PYTHON_FRAME.match(frame.name) if frame.kind == "python" else None
            if found and not _is_framework(found):
                return frame.name
        return None

    def _with_python(self, uid: int) -> int:
        """The call itself where Python frames are above it, else its forward op if there is one."""
        forward, node = None, uid
        while node in self.rows:
            parent, _, kind = self.rows[node]
            if kind in ("python", "module"):
                return uid
            forward = self.forwards.get(node) if forward is None else forward
            if parent is None:
                break
            node = parent
        return uid if forward is None else forward


def own_frames(chain: Iterable[Frame]) -> list[str]:
    """The modules and Python functions of a chain, without those of the framework."""
    found = ((frame, _PYTHON_FRAME.match(frame.name)) for frame in chain)
    return [
        frame.name.removeprefix(MODULE_PREFIX)
        for frame, match in found
        if frame.kind == "module" or (match and not _is_framework(match))
    ]


def _is_framework(frame: re.Match[str]) -> bool:
    return frame["function"] in _WRAPPERS or bool(_FRAMEWORK_FILE.search(frame["file"]))


def call_stacks(
    tree: pl.DataFrame, host_calls: HostCalls, backward_links: pl.DataFrame, uids: pl.Series
) -> CallStacks:
    """The chains above the calls ``uids``, and above the forward ops of the autograd nodes in them.

    ``tree`` and ``host_calls`` have Python functions; ``backward_links``: ``Trace.backwards``.
    """
    nodes = _with_ancestors(tree, uids)["uid"]
    links = backward_links.filter(pl.col("backward_uid").is_in(nodes.implode()))
    rows = _with_ancestors(tree, pl.concat([uids, links["forward_uid"]]))
    named = host_calls.select(rows["uid"], "name", "cat").with_columns(kind=KIND_OF_CALL)
    found = rows.join(named, on="uid").select("uid", "parent_uid", "name", "kind")
    return CallStacks(
        {uid: (parent, name, kind) for uid, parent, name, kind in found.iter_rows()},
        dict(links.select("backward_uid", "forward_uid").iter_rows()),
    )


def _with_ancestors(tree: pl.DataFrame, uids: pl.Series) -> pl.DataFrame:
    """``uid, parent_uid`` of these calls and of all calls above them."""
    wanted = tree.select(pl.col("uid").is_in(uids.implode())).to_series().to_numpy()
    is_above = has_any(wanted, tree["order"].to_numpy(), tree["subtree_end"].to_numpy())
    return tree.select("uid", "parent_uid").filter(pl.Series(is_above))


def call_paths(
    tree: pl.DataFrame,
    host_calls: HostCalls,
    stacks: CallStacks,
    calls: pl.DataFrame,
    work: pl.DataFrame,
) -> dict[int, CallPath]:
    """Surroundings of calls by uid.

    ``tree`` and ``host_calls`` have Python functions; ``stacks`` are those of the calls, which have
    ``uid, source_uid, name, input_dims``; ``work``: their GPU work (``owner_uid, launch_uid, name,
    dur_ns, stream``) in launch order.
    """
    places = tree.select("uid", "order", "subtree_end", "depth").filter(
        pl.col("uid").is_in(calls["source_uid"].implode())
    )
    place_of = {uid: (order, end, depth) for uid, order, end, depth in places.iter_rows()}
    below = _below(tree, host_calls, places)
    launched_by: dict[int, list[_Launched]] = {}
    for owner, *launched in work.select(
        "owner_uid", "launch_uid", "name", "dur_ns", "stream"
    ).iter_rows():
        launched_by.setdefault(owner, []).append(_Launched(*launched))
    paths = {}
    for uid, source, name, input_dims in calls.select(
        "uid", "source_uid", "name", tuples_text("input_dims")
    ).iter_rows():
        launches = launched_by.get(uid, [])
        entries = _subtree(below, *place_of[source], launches) if source in place_of else ()
        paths[uid] = CallPath(
            uid=uid,
            op_name=name,
            input_dims=input_dims,
            parent_chain=tuple(stacks.above(source))[::-1],
            nn_module_chain=tuple(stacks.modules(source)),
            entry_point=stacks.entry_point(source),
            subtree=tuple(entries),
            kernels=tuple(
                LaunchedKernel(name=work.name, dur_us=work.dur_ns / 1e3, stream=work.stream)
                for work in launches
            ),
        )
    return paths


class _Launched(NamedTuple):
    """GPU work of a call, and the runtime call that launched it."""

    launch_uid: int
    name: str
    dur_ns: int
    stream: int


class _Below(NamedTuple):
    """A call below another one; the arguments as Python text."""

    order: int
    uid: int
    depth: int
    name: str
    kind: str
    dur_ns: int
    input_dims: str | None
    input_types: str | None


def _below(tree: pl.DataFrame, host_calls: HostCalls, places: pl.DataFrame) -> list[_Below]:
    """All that runs below some places of the tree, by order."""
    first, end = places["order"].to_numpy() + 1, places["subtree_end"].to_numpy()
    rows = tree.select("uid", "order", "depth").filter(pl.Series(in_any(tree.height, first, end)))
    columns = ("name", "cat", "dur_ns", "input_dims", "input_types")
    below = (
        rows.join(host_calls.select(rows["uid"], *columns), on="uid")
        .sort("order")
        .with_columns(tuples_text("input_dims"), tuples_text("input_types"), kind=KIND_OF_CALL)
    )
    return [_Below(*row) for row in below.select(_Below._fields).iter_rows()]


def _subtree(
    below: list[_Below], order: int, subtree_end: int, depth: int, launches: list[_Launched]
) -> Iterator[SubtreeEntry]:
    """What runs below a call, each runtime call followed by the GPU work that it launched."""
    first = bisect_left(below, order + 1, key=attrgetter("order"))
    end = bisect_left(below, subtree_end, key=attrgetter("order"))
    launched_by: dict[int, list[_Launched]] = {}
    for work in launches:
        launched_by.setdefault(work.launch_uid, []).append(work)
    for call in below[first:end]:
        of_call = launched_by.get(call.uid, [])
        level = call.depth - depth
        yield SubtreeEntry(
            name=call.name,
            kind=call.kind,
            depth=level,
            dur_us=call.dur_ns / 1e3,
            kernel=of_call[0].name if of_call else None,
            kernel_dur_us=of_call[0].dur_ns / 1e3 if of_call else None,
            input_dims=call.input_dims,
            input_types=call.input_types,
        )
        for work in of_call:
            us = work.dur_ns / 1e3
            yield SubtreeEntry(
                name=work.name,
                kind="kernel",
                depth=level + 1,
                dur_us=us,
                kernel=work.name,
                kernel_dur_us=us,
            )
