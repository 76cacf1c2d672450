"""The kinds of edges, their usual weights, and lists of edges under construction."""

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from jarvis.core.arrays import Bools, Int32s, Int64s
from jarvis.simulation.events import Calls, GpuEvents

Kinds = NDArray[np.uint8]

REMOVED = -(1 << 62)
"""Weight of a removed edge; sums with it stay in range."""


class Kind(IntEnum):
    """The kind of an edge."""

    DURATION = 0
    HOST = 1
    LAUNCH = 2
    STREAM = 3
    WAIT = 4
    SYNC = 5
    QUEUE = 6
    BEGIN = 7
    TAIL = 8
    UNLINKED = 9


@dataclass
class Edges:
    """Edges as parallel lists of arrays: source, target, kind, nominal weight in ns.

    ``inferred`` marks edges that nearness in time suggests.
    """

    src: list[Int32s] = field(default_factory=list)
    dst: list[Int32s] = field(default_factory=list)
    kind: list[Kinds] = field(default_factory=list)
    nominal: list[Int64s] = field(default_factory=list)
    inferred: list[Bools] = field(default_factory=list)

    def add(
        self,
        kind: Kind | Kinds,
        src: Int64s | int,
        dst: Int64s | int,
        nominal: Int64s | int,
        inferred: bool | Bools = False,
    ) -> None:
        """Add edges; a number is used for all of them."""
        source, target, weight = map(np.atleast_1d, np.broadcast_arrays(src, dst, nominal))
        self.src.append(source.astype(np.int32))
        self.dst.append(target.astype(np.int32))
        self.nominal.append(weight.astype(np.int64))
        self.kind.append(np.full(source.size, kind, np.uint8))
        self.inferred.append(np.full(source.size, inferred, np.bool_))

    def arrays(self) -> tuple[Int32s, Int32s, Kinds, Int64s, Bools]:
        """Return sources, targets, kinds, nominal weights, and whether they are inferred."""
        # The joined arrays replace their parts, so that the edges are not stored twice.
        self.src = [np.concatenate([np.empty(0, np.int32), *self.src])]
        self.dst = [np.concatenate([np.empty(0, np.int32), *self.dst])]
        self.kind = [np.concatenate([np.empty(0, np.uint8), *self.kind])]
        self.nominal = [np.concatenate([np.empty(0, np.int64), *self.nominal])]
        self.inferred = [np.concatenate([np.empty(0, np.bool_), *self.inferred])]
        return self.src[0], self.dst[0], self.kind[0], self.nominal[0], self.inferred[0]


US = 1_000

DEFAULT_LAUNCH_NS, DEFAULT_SYNC_NS = 5 * US, 5 * US
DEFAULT_GAP_NS, DEFAULT_CALL_NS, DEFAULT_LATE_NS = 1 * US, 2 * US, 0

IMPLAUSIBLE_NS = 50 * US
"""A launch latency above it is waiting time, not latency."""

FALLBACK_LAUNCH_NS, FALLBACK_LATE_NS = 10 * US, 5 * US
"""Latencies used in place of implausible ones."""

BACK_TO_BACK_NS = 20 * US
"""Maximum distance of two GPU events that follow each other without waiting."""

LAUNCHED_AHEAD_NS = 50 * US
"""An event launched that long before the end of its predecessor waits only for that end."""

LONG_LAUNCH = 4
"""A launch call longer than this many launch latencies does more than launch."""


@dataclass(frozen=True)
class Constants:
    """Times in ns that are typical of a trace.

    ``launch``: from the start of a launch call to the start of its work on an idle stream.
    ``late``: from the end of a long launch call to that start. ``gap``: between two GPU events of
    a stream. ``sync``: from the end of awaited work to the end of the waiting call. ``call``: a
    waiting call whose work has ended before.
    """

    launch: int = DEFAULT_LAUNCH_NS
    late: int = DEFAULT_LATE_NS
    gap: int = DEFAULT_GAP_NS
    sync: int = DEFAULT_SYNC_NS
    call: int = DEFAULT_CALL_NS


def launch_constants(calls: Calls, gpu: GpuEvents) -> Constants:
    """Return the constants of launches and streams; the others have their defaults."""
    linked = np.flatnonzero(gpu.launch >= 0)
    launch = gpu.launch[linked]
    start, called, returned = gpu.start[linked], calls.start[launch], calls.end[launch]
    predecessor = gpu.predecessor[linked]
    freed = np.where(predecessor >= 0, gpu.end[predecessor], -(1 << 60))
    is_idle = (freed <= called) & (start >= called)
    latency = _plausible(
        sample_percentile(start[is_idle] - called[is_idle], 10, DEFAULT_LAUNCH_NS),
        FALLBACK_LAUNCH_NS,
    )
    is_late = is_idle & (returned - called > LONG_LAUNCH * latency) & (start >= returned)
    late = sample_percentile(start[is_late] - returned[is_late], 10, DEFAULT_LATE_NS)
    distance = start - freed
    follows: Bools = (predecessor >= 0) & (distance >= 0) & (distance <= BACK_TO_BACK_NS)
    follows &= called <= freed - LAUNCHED_AHEAD_NS
    return Constants(
        launch=latency,
        late=_plausible(late, FALLBACK_LATE_NS),
        gap=sample_percentile(distance[follows], 50, DEFAULT_GAP_NS),
    )


def sample_percentile(samples: Int64s, percentile: int, default: int) -> int:
    """Return a percentile of samples, rounded down to a sample; ``default`` without samples."""
    return int(np.percentile(samples, percentile, method="lower")) if samples.size else default


def _plausible(nanoseconds: int, instead: int) -> int:
    return instead if nanoseconds > IMPLAUSIBLE_NS else nanoseconds
