"""Lanes of a track on which slices are inside each other or disjoint; the loop is compiled.

Trace viewers draw a track from one stack of open slices, and Perfetto drops a slice that ends after
the one around it, and slices that are nested too deeply.
"""

import numpy as np
from numpy.typing import NDArray

from jarvis.trace.jit import kernel, types

__all__ = ["MAX_DEPTH", "assign_lanes"]

MAX_DEPTH = 250
"""Maximum number of slices inside each other on a lane; Perfetto drops those from 255 or, since
2021, 512 on."""

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]

_INT32S = types.Array(types.int32, 1, "C")
_INT64S = types.Array(types.int64, 1, "C")


@kernel(types.void(_INT64S, _INT64S, _INT64S, types.int64, _INT32S, _INT32S, _INT32S, _INT32S))
def assign_lanes(
    track: Int64s,
    start: Int64s,
    end: Int64s,
    max_depth: int,
    lane: Int32s,
    around: Int32s,
    depth: Int32s,
    open_slice: Int32s,
) -> None:
    """Put each slice on the first lane of its track where it is inside another one or none is open.

    Slices without duration at the same time are inside each other, as in Perfetto.

    Args:
        track: Number of the track of each slice, ascending.
        start: Start of each slice; within a track ascending, of equal ones the longest first.
        end: End of each slice.
        max_depth: Maximum number of slices inside each other.
        lane: Receives the lane of each slice in its track, from 0.
        around: Working memory as long as ``lane``: the slice around each slice, or -1.
        depth: Working memory as long as ``lane``.
        open_slice: Working memory as long as ``lane``: the innermost open slice of each lane.
    """
    lanes = 0
    for i in range(track.size):
        if i == 0 or track[i] != track[i - 1]:
            lanes = 0
        found = -1
        for k in range(lanes):
            j = open_slice[k]
            while j >= 0 and end[j] <= start[i]:
                if start[j] == start[i] and end[i] == start[i]:
                    break
                j = around[j]
            open_slice[k] = j
            if j < 0 or (end[i] <= end[j] and depth[j] + 1 < max_depth):
                found = k
                break
        if found < 0:
            found = lanes
            open_slice[found] = -1
            lanes += 1
        outer = open_slice[found]
        around[i] = outer
        depth[i] = depth[outer] + 1 if outer >= 0 else 0
        open_slice[found] = i
        lane[i] = found
