"""Host events -> the call tree, as columns.

The tree is numbered in preorder, so the descendants of an event are the rows with
``order < other.order < subtree_end``: a range, not a walk.
"""

from collections.abc import Callable

import numpy as np
import polars as pl

from jarvis.trace import nesting
from jarvis.trace.nesting import BLEED_NS, NONE, OP, PASS_THROUGH, PYTHON, RUNTIME, Int64s
from jarvis.trace.tables import CPU_OP, PYTHON_FUNCTION

__all__ = ["BLEED_NS", "PASS_THROUGH_OP", "build_call_tree"]

PASS_THROUGH_OP = "execute"
"""An op that only hands over to others; the launcher is looked for above it."""

FEW_EVENTS = 10_000
"""Up to so many, loading machine code takes longer than doing without it."""

_KEY_BITS = 63
_UIDS_ABOVE = ("parent_uid", "op_uid", "launcher_uid")
_NUMBERS = ("uid", "depth", "subtree_end", *_UIDS_ABOVE)
_KIND = (
    pl.when((pl.col("cat") == CPU_OP) & (pl.col("name") == PASS_THROUGH_OP))
    .then(pl.lit(PASS_THROUGH, pl.UInt8))
    .when(pl.col("cat") == CPU_OP)
    .then(pl.lit(OP, pl.UInt8))
    .when(pl.col("cat") == PYTHON_FUNCTION)
    .then(pl.lit(PYTHON, pl.UInt8))
    .otherwise(pl.lit(RUNTIME, pl.UInt8))
)


def build_call_tree(host_events: pl.DataFrame) -> pl.DataFrame:
    """Nest host events by time, one stack for each thread.

    ``host_events``: ``uid, cat, name, pid, tid, ts_ns, dur_ns`` in any order. At equal start the
    earlier event of the file is the outer one. An event that ends after its parent by BLEED_NS or
    more is dropped from the tree (it keeps a row of its own, without parent or children).

    Returns a row for each event in preorder: ``uid, parent_uid, depth, order, subtree_end``,
    ``op_uid`` (nearest cpu op above), ``launcher_uid`` (nearest cpu op above that counts as the
    launcher; null where another runtime call stands between), ``is_root`` (a cpu op with no cpu
    op above) and ``is_dropped``.
    """
    columns = ("uid", "ts_ns", "dur_ns", "pid", "tid")
    timed = host_events.select(*columns, kind=_KIND).drop_nulls(["ts_ns", "dur_ns"])
    uid, ts_ns = timed["uid"].to_numpy(), timed["ts_ns"].to_numpy()
    thread = _threads(timed)
    visits = _visits(thread, ts_ns, uid)
    found = {name: np.empty(timed.height, dtype=np.int32) for name in _NUMBERS}
    is_root = np.zeros(timed.height, dtype=np.bool_)
    dropped = np.empty(timed.height, dtype=np.int32)
    placed = _nest(timed.height)(
        visits,
        thread,
        ts_ns,
        timed["dur_ns"].to_numpy(),
        timed["kind"].to_numpy(),
        uid,
        found["uid"],
        found["parent_uid"],
        found["depth"],
        found["subtree_end"],
        found["op_uid"],
        found["launcher_uid"],
        is_root,
        dropped,
    )
    dropped = dropped[: timed.height - placed]
    found["uid"][placed:] = uid[dropped[np.lexsort((uid[dropped], ts_ns[dropped]))]]
    found["depth"][placed:] = 0
    found["subtree_end"][placed:] = np.arange(placed + 1, timed.height + 1)
    for name in _UIDS_ABOVE:
        found[name][placed:] = NONE
    order = pl.int_range(pl.len(), dtype=pl.Int64)
    return pl.DataFrame({**found, "is_root": is_root}).select(
        pl.col("uid").cast(pl.Int64),
        _or_null("parent_uid"),
        pl.col("depth").cast(pl.Int64),
        order.alias("order"),
        pl.col("subtree_end").cast(pl.Int64),
        _or_null("op_uid"),
        _or_null("launcher_uid"),
        "is_root",
        is_dropped=order >= placed,
    )


def _nest(events: int) -> Callable[..., int]:
    if events <= FEW_EVENTS:
        return nesting.nest
    from jarvis.trace import compiled_nesting

    return compiled_nesting.nest


def _or_null(name: str) -> pl.Expr:
    return pl.when(pl.col(name) != NONE).then(pl.col(name).cast(pl.Int64)).alias(name)


def _threads(events: pl.DataFrame) -> Int64s:
    """A number for each event, from 0, that is the same on the same thread."""
    process, thread = _codes(events["pid"]), _codes(events["tid"])
    return process * (int(thread.max(initial=0)) + 1) + thread


def _codes(names: pl.Series) -> Int64s:
    """A number for each name, from 1 up; 0 for a missing one."""
    numbered = names.cast(pl.Categorical).to_physical().cast(pl.Int64) + 1
    codes: Int64s = numbered.fill_null(0).to_numpy()
    return codes


def _visits(thread: Int64s, ts_ns: Int64s, uid: Int64s) -> Int64s:
    """The events thread by thread, by time within one, by place in the file at equal times.

    Threads follow each other by their first event.
    """
    if not uid.size:
        return np.empty(0, dtype=np.int64)
    rows = _sorted(thread, ts_ns, uid)
    starts = np.flatnonzero(np.diff(thread[rows], prepend=thread[rows[0]] + 1))
    first = rows[starts]
    parts = np.split(rows, starts[1:])
    return np.concatenate([parts[i] for i in np.lexsort((uid[first], ts_ns[first]))])


def _sorted(thread: Int64s, ts_ns: Int64s, uid: Int64s) -> Int64s:
    """The order by thread, time and place in the file.

    Thread and time share one number where they fit: sorting that is several times faster.
    """
    first_ns = ts_ns.min()
    time_bits = (int(ts_ns.max()) - int(first_ns)).bit_length()
    if time_bits + int(thread.max()).bit_length() > _KEY_BITS:
        return np.lexsort((uid, ts_ns, thread))
    key = (thread << time_bits) | (ts_ns - first_ns)
    in_file_order = np.argsort(uid, kind="stable")
    return in_file_order[np.argsort(key[in_file_order], kind="stable")]
