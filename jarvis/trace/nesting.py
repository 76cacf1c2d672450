"""Nest host events in one pass with a stack of open calls.

The loop runs as plain Python for a few thousand events; ``compiled_nesting`` compiles it for more.
"""

import numpy as np
from numpy.typing import NDArray

from jarvis.core.arrays import Bools, Int32s, Int64s

OP, PASS_THROUGH, PYTHON, RUNTIME = 0, 1, 2, 3
"""Kinds of host events: an op, an op that only calls other ops, a Python frame, a runtime call."""

NONE = -1
BLEED_NS = 1_000
"""A child that outlasts its parent by less than this becomes the parent's sibling."""

_LAST_NS = np.iinfo(np.int64).max


def nest(
    rows: Int64s,
    thread: Int64s,
    ts_ns: Int64s,
    dur_ns: Int64s,
    kind: NDArray[np.uint8],
    uid: Int64s,
    out_uid: Int32s,
    parent_uid: Int32s,
    depth: Int32s,
    subtree_end: Int32s,
    op_uid: Int32s,
    launcher_uid: Int32s,
    is_root: Bools,
    dropped: Int32s,
) -> int:
    """Nest events by time and return the number of events placed in the tree.

    Args:
        rows: Indices of the events, by thread and by time within a thread.
        thread, ts_ns, dur_ns, kind, uid: Columns of the events, indexed by ``rows``.
        out_uid, parent_uid, depth, subtree_end, op_uid, launcher_uid, is_root: Output: columns of
            the tree in preorder, ``NONE`` for no value; each as long as ``rows``. Positions in
            ``traceEvents`` fit into 32 bits: a file with more events would exceed 100 GB.
        dropped: Output: the rows without a place in the tree.
    """
    stack = np.empty(rows.size, dtype=np.int32)  # positions in the tree
    ends_ns = np.empty(rows.size, dtype=np.int64)
    kinds = np.empty(rows.size, dtype=np.uint8)
    height = 0
    placed = 0
    lost = 0
    for visit in range(rows.size):
        row = rows[visit]
        start = ts_ns[row]
        duration = dur_ns[row]
        end = _LAST_NS if duration > 0 and start > _LAST_NS - duration else start + duration
        is_other_thread = visit > 0 and thread[row] != thread[rows[visit - 1]]
        until = _LAST_NS if is_other_thread else start
        while height > 0 and until >= ends_ns[height - 1]:
            height -= 1
            subtree_end[stack[height]] = placed
        if height > 0 and end > ends_ns[height - 1]:
            if height < 2 or start <= ends_ns[height - 1] - BLEED_NS:
                dropped[lost] = row
                lost += 1
                continue
            height -= 1
            subtree_end[stack[height]] = placed
        out_uid[placed] = uid[row]
        depth[placed] = height
        parent_uid[placed] = NONE
        op_uid[placed] = NONE
        launcher_uid[placed] = NONE
        if height > 0:
            parent = stack[height - 1]
            parent_kind = kinds[height - 1]
            parent_uid[placed] = out_uid[parent]
            op_uid[placed] = out_uid[parent] if parent_kind <= PASS_THROUGH else op_uid[parent]
            if parent_kind == OP:
                launcher_uid[placed] = out_uid[parent]
            elif parent_kind != RUNTIME:
                launcher_uid[placed] = launcher_uid[parent]
        is_root[placed] = kind[row] <= PASS_THROUGH and op_uid[placed] == NONE
        stack[height] = placed
        ends_ns[height] = end
        kinds[height] = kind[row]
        height += 1
        placed += 1
    for level in range(height):
        subtree_end[stack[level]] = placed
    return placed
