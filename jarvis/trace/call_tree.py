"""Build the call tree of host events as a table.

The tree is numbered in preorder, so the descendants of an event are a range of rows:
``order < other.order < subtree_end``.
"""

from collections.abc import Callable

import numpy as np
import polars as pl

from jarvis.core.arrays import Int64s
from jarvis.schemas.names import C
from jarvis.trace import nesting
from jarvis.trace.nesting import BLEED_NS, NONE, OP, PASS_THROUGH, PYTHON, RUNTIME
from jarvis.trace.tables import CPU_OP, PYTHON_FUNCTION

__all__ = ["BLEED_NS", "PASS_THROUGH_OP", "build_call_tree"]

PASS_THROUGH_OP = "execute"
"""An op that only calls other ops; the launcher is searched above it."""

MAX_INTERPRETED_EVENTS = 10_000
"""Up to this number, running plain Python is faster than loading the compiled code."""

_KEY_BITS = 63
_UIDS_ABOVE = (C.parent_uid, C.op_uid, C.launcher_uid)
_NUMBERS = (C.uid, C.depth, C.subtree_end, *_UIDS_ABOVE)
_KIND = (
    pl.when((pl.col(C.cat) == CPU_OP) & (pl.col(C.name) == PASS_THROUGH_OP))
    .then(pl.lit(PASS_THROUGH, pl.UInt8))
    .when(pl.col(C.cat) == CPU_OP)
    .then(pl.lit(OP, pl.UInt8))
    .when(pl.col(C.cat) == PYTHON_FUNCTION)
    .then(pl.lit(PYTHON, pl.UInt8))
    .otherwise(pl.lit(RUNTIME, pl.UInt8))
)


def build_call_tree(host_events: pl.DataFrame) -> pl.DataFrame:
    """Nest host events by time, with one stack per thread.

    Of events with equal start the first in the file is the outer one. An event that ends after its
    parent by BLEED_NS or more is dropped from the tree: its row has no parent and no children.

    Args:
        host_events: ``uid, cat, name, pid, tid, ts_ns, dur_ns`` in any order.

    Returns:
        One row per event in preorder: ``uid, parent_uid, depth, order, subtree_end``, ``op_uid``
        (nearest cpu op above), ``launcher_uid`` (nearest cpu op above that counts as the launcher;
        null if a runtime call is in between), ``is_root`` (a cpu op with no cpu op above) and
        ``is_dropped``.
    """
    columns = (C.uid, C.ts_ns, C.dur_ns, C.pid, C.tid)
    timed = host_events.select(*columns, _KIND.alias(C.kind)).drop_nulls([C.ts_ns, C.dur_ns])
    uid, ts_ns = timed[C.uid].to_numpy(), timed[C.ts_ns].to_numpy()
    thread = _threads(timed)
    visits = _visits(thread, ts_ns, uid)
    tree = {name: np.empty(timed.height, dtype=np.int32) for name in _NUMBERS}
    is_root = np.zeros(timed.height, dtype=np.bool_)
    dropped = np.empty(timed.height, dtype=np.int32)
    placed = _nest(timed.height)(
        visits,
        thread,
        ts_ns,
        timed[C.dur_ns].to_numpy(),
        timed[C.kind].to_numpy(),
        uid,
        tree[C.uid],
        tree[C.parent_uid],
        tree[C.depth],
        tree[C.subtree_end],
        tree[C.op_uid],
        tree[C.launcher_uid],
        is_root,
        dropped,
    )
    dropped = dropped[: timed.height - placed]
    tree[C.uid][placed:] = uid[dropped[np.lexsort((uid[dropped], ts_ns[dropped]))]]
    tree[C.depth][placed:] = 0
    tree[C.subtree_end][placed:] = np.arange(placed + 1, timed.height + 1)
    for name in _UIDS_ABOVE:
        tree[name][placed:] = NONE
    order = pl.int_range(pl.len(), dtype=pl.Int64)
    return pl.DataFrame({**tree, C.is_root: is_root}).select(
        pl.col(C.uid).cast(pl.Int64),
        _or_null(C.parent_uid),
        pl.col(C.depth).cast(pl.Int64),
        order.alias("order"),
        pl.col(C.subtree_end).cast(pl.Int64),
        _or_null(C.op_uid),
        _or_null(C.launcher_uid),
        C.is_root,
        (order >= placed).alias(C.is_dropped),
    )


def _nest(events: int) -> Callable[..., int]:
    if events <= MAX_INTERPRETED_EVENTS:
        return nesting.nest
    from jarvis.trace import compiled_nesting

    return compiled_nesting.nest


def _or_null(name: str) -> pl.Expr:
    return pl.when(pl.col(name) != NONE).then(pl.col(name).cast(pl.Int64)).alias(name)


def _threads(events: pl.DataFrame) -> Int64s:
    """Return the thread number of each event, from 0."""
    process, thread = _codes(events[C.pid]), _codes(events[C.tid])
    return process * (int(thread.max(initial=0)) + 1) + thread


def _codes(names: pl.Series) -> Int64s:
    """Return a number for each distinct name, from 1; 0 for null."""
    numbered = names.cast(pl.Categorical).to_physical().cast(pl.Int64) + 1
    codes: Int64s = numbered.fill_null(0).to_numpy()
    return codes


def _visits(thread: Int64s, ts_ns: Int64s, uid: Int64s) -> Int64s:
    """Return the row order by thread, then time, then position in the file.

    Threads are ordered by their first event.
    """
    if not uid.size:
        return np.empty(0, dtype=np.int64)
    rows = _sorted(thread, ts_ns, uid)
    starts = np.flatnonzero(np.diff(thread[rows], prepend=thread[rows[0]] + 1))
    first = rows[starts]
    parts = np.split(rows, starts[1:])
    return np.concatenate([parts[i] for i in np.lexsort((uid[first], ts_ns[first]))])


def _sorted(thread: Int64s, ts_ns: Int64s, uid: Int64s) -> Int64s:
    """Return the row order by thread number, time and position in the file.

    Thread and time are packed into one sort key if they fit, which is several times faster.
    """
    first_ns = ts_ns.min()
    time_bits = (int(ts_ns.max()) - int(first_ns)).bit_length()
    if time_bits + int(thread.max()).bit_length() > _KEY_BITS:
        return np.lexsort((uid, ts_ns, thread))
    key = (thread << time_bits) | (ts_ns - first_ns)
    in_file_order = np.argsort(uid, kind="stable")
    return in_file_order[np.argsort(key[in_file_order], kind="stable")]
