"""Call paths: the calls around and below a call, from the tree with Python frames."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeGuard

import polars as pl

from jarvis.core.arrays import in_any
from jarvis.perf_report.call_tree.stacks import KIND_OF_CALL, CallStacks, Frame, Kind
from jarvis.perf_report.calls import HostCalls
from jarvis.perf_report.literals import tuples_text
from jarvis.schemas.names import C
from jarvis.text.format import cut


class FrameAbove(NamedTuple):
    """A call around others; ``parent`` is the index of the next one in ``Around.frames``."""

    parent: int | None
    frame: Frame


class CallBelow(NamedTuple):
    """A call below others; ``depth`` is that in the whole tree, arguments are Python text."""

    depth: int
    name: str
    kind: Kind
    dur_us: float
    input_dims: str | None
    input_types: str | None


@dataclass(frozen=True, slots=True)
class Around:
    """Calls shared by several call paths, each stored once, parents and earlier calls first."""

    frames: Sequence[FrameAbove]
    calls: Sequence[CallBelow]


class SubtreeEntry(NamedTuple):
    """One call below, in order of start; ``kernel`` is the first launch of a runtime call."""

    name: str
    kind: Kind
    depth: int
    dur_us: float
    kernel: str | None = None
    kernel_dur_us: float | None = None
    input_dims: str | None = None
    input_types: str | None = None


class LaunchedKernel(NamedTuple):
    """One GPU event of the call; ``call`` is the index of its launch in ``Around.calls``."""

    name: str
    dur_us: float
    stream: int | None
    call: int | None


@dataclass(frozen=True)
class CallPath:
    """The chain of calls above one call, and all calls below it.

    ``frame`` is the index of the innermost call above in ``around.frames``; ``first_call`` and
    ``end_call`` are the index range of the calls below in ``around.calls``.
    """

    around: Around
    uid: int
    op_name: str
    input_dims: str | None
    frame: int | None
    depth: int
    first_call: int
    end_call: int
    nn_module_chain: tuple[str, ...]
    entry_point: str | None
    kernels: tuple[LaunchedKernel, ...]

    def above(self) -> Iterator[Frame]:
        """Return the calls around the call, innermost first."""
        place = self.frame
        while place is not None:
            place, frame = self.around.frames[place]
            yield frame

    def has_below(self, call: int | None) -> TypeGuard[int]:
        """Return whether an index into the calls is below this call."""
        return call is not None and self.first_call <= call < self.end_call

    @property
    def parent_chain(self) -> tuple[Frame, ...]:
        """The calls around the call, outermost first."""
        return tuple(self.above())[::-1]

    @property
    def subtree(self) -> Iterator[SubtreeEntry]:
        """The calls below, each runtime call followed by the GPU work that it launched."""
        launched_by: dict[int | None, list[LaunchedKernel]] = {}
        for kernel in self.kernels:
            launched_by.setdefault(kernel.call, []).append(kernel)
        for place in range(self.first_call, self.end_call):
            call = self.around.calls[place]
            launched = launched_by.get(place, [])
            yield SubtreeEntry(
                name=call.name,
                kind=call.kind,
                depth=call.depth - self.depth,
                dur_us=call.dur_us,
                kernel=launched[0].name if launched else None,
                kernel_dur_us=launched[0].dur_us if launched else None,
                input_dims=call.input_dims,
                input_types=call.input_types,
            )
            for kernel in launched:
                yield SubtreeEntry(
                    name=kernel.name,
                    kind="kernel",
                    depth=call.depth - self.depth + 1,
                    dur_us=kernel.dur_us,
                    kernel=kernel.name,
                    kernel_dur_us=kernel.dur_us,
                )


def call_paths(
    tree: pl.DataFrame,
    host_calls: HostCalls,
    stacks: CallStacks,
    calls: pl.DataFrame,
    work: pl.DataFrame,
) -> dict[int, CallPath]:
    """Return the call paths of calls by uid.

    Args:
        tree: Call tree with Python functions.
        host_calls: Host calls with Python functions.
        stacks: Call stacks of the calls.
        calls: ``uid, source_uid, name, input_dims``.
        work: GPU work of the calls, in launch order: ``owner_uid, launch_uid, name, dur_ns,
            stream``.
    """
    places = tree.select(C.uid, "order", C.subtree_end, C.depth).filter(
        pl.col(C.uid).is_in(calls[C.source_uid].implode())
    )
    place_of = {uid: (order, end, depth) for uid, order, end, depth in places.iter_rows()}
    below = _below(tree, host_calls, places)
    orders = below["order"].to_list()
    call_of = {uid: place for place, uid in enumerate(below[C.uid])}
    frame_of = {uid: place for place, uid in enumerate(stacks.rows)}
    around = Around(
        frames=[
            FrameAbove(None if parent is None else frame_of[parent], frame)
            for parent, frame in stacks.rows.values()
        ],
        calls=[
            CallBelow(depth, cut(name), kind, dur_ns / 1e3, dims, types)
            for depth, name, kind, dur_ns, dims, types in below.drop(C.uid, "order").iter_rows()
        ],
    )
    launched: dict[int, list[LaunchedKernel]] = {}
    for owner, launch, name, dur_ns, stream in work.select(
        C.owner_uid, C.launch_uid, C.name, C.dur_ns, C.stream
    ).iter_rows():
        kernel = LaunchedKernel(cut(name), dur_ns / 1e3, stream, call_of.get(launch))
        launched.setdefault(owner, []).append(kernel)
    paths = {}
    for uid, source, name, input_dims in calls.select(
        C.uid, C.source_uid, C.name, tuples_text(C.input_dims)
    ).iter_rows():
        order, end, depth = place_of.get(source, (0, 0, 0))
        parent = stacks.parent(source)
        paths[uid] = CallPath(
            around=around,
            uid=uid,
            op_name=name,
            input_dims=input_dims,
            frame=None if parent is None else frame_of[parent],
            depth=depth,
            first_call=bisect_left(orders, order + 1),
            end_call=bisect_left(orders, end),
            nn_module_chain=tuple(stacks.modules(source)),
            entry_point=stacks.entry_point(source),
            kernels=tuple(launched.get(uid, ())),
        )
    return paths


def _below(tree: pl.DataFrame, host_calls: HostCalls, places: pl.DataFrame) -> pl.DataFrame:
    """Return all calls below some rows of the tree, by ``order``: ``uid`` and CallBelow."""
    first, end = places["order"].to_numpy() + 1, places[C.subtree_end].to_numpy()
    rows = tree.select(C.uid, "order", C.depth).filter(pl.Series(in_any(tree.height, first, end)))
    columns = (C.name, C.cat, C.dur_ns, C.input_dims, C.input_types)
    return (
        rows.join(host_calls.select(rows[C.uid], *columns), on=C.uid)
        .sort("order")
        .with_columns(
            tuples_text(C.input_dims), tuples_text(C.input_types), KIND_OF_CALL.alias(C.kind)
        )
        .select(C.uid, "order", C.depth, C.name, C.kind, C.dur_ns, C.input_dims, C.input_types)
    )
