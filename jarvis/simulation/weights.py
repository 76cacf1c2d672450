"""The constants of a trace: usual latencies of launches, and gaps between GPU events."""

from dataclasses import dataclass

import numpy as np

from jarvis.core.arrays import Bools, Int64s
from jarvis.simulation.events import Calls, GpuEvents

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
