"""Host events -> the call tree, as columns.

The tree is numbered in preorder, so the descendants of an event are the rows with
``order < other.order < subtree_end``: a range, not a walk.
"""

from dataclasses import dataclass, field

import polars as pl

from jarvis.trace.tables import CPU_OP, PYTHON_FUNCTION

BLEED_NS = 1_000
"""A child may outlast its parent by less than this and becomes the parent's sibling."""

PASS_THROUGH_OP = "execute"
"""An op that only hands over to others; the launcher is looked for above it."""

SCHEMA = {
    "uid": pl.Int64,
    "parent_uid": pl.Int64,
    "depth": pl.Int64,
    "order": pl.Int64,
    "subtree_end": pl.Int64,
    "op_uid": pl.Int64,
    "launcher_uid": pl.Int64,
    "is_root": pl.Boolean,
    "is_dropped": pl.Boolean,
}


@dataclass(slots=True)
class _Node:
    uid: int
    end_ns: int
    cat: str
    name: str
    parent: "_Node | None" = None
    depth: int = 0
    order: int = 0
    subtree_end: int = 0
    op_uid: int | None = None
    launcher_uid: int | None = None
    is_root: bool = False
    is_dropped: bool = False


@dataclass(slots=True)
class _Thread:
    stack: list[_Node] = field(default_factory=list)
    nodes: list[_Node] = field(default_factory=list)

    def add(self, node: _Node, ts_ns: int) -> None:
        while self.stack and ts_ns >= self.stack[-1].end_ns:
            self._pop()
        if self.stack and node.end_ns > self.stack[-1].end_ns:
            if self.stack[-1].end_ns - ts_ns >= BLEED_NS or len(self.stack) < 2:
                node.is_dropped = True
                return
            self._pop()
        self._attach(node)
        node.order = len(self.nodes)
        self.nodes.append(node)
        self.stack.append(node)

    def close(self) -> None:
        while self.stack:
            self._pop()

    def _pop(self) -> None:
        self.stack.pop().subtree_end = len(self.nodes)

    def _attach(self, node: _Node) -> None:
        if not self.stack:
            node.is_root = node.cat == CPU_OP
            return
        parent = node.parent = self.stack[-1]
        node.depth = parent.depth + 1
        is_op = parent.cat == CPU_OP
        node.op_uid = parent.uid if is_op else parent.op_uid
        if is_op and parent.name != PASS_THROUGH_OP:
            node.launcher_uid = parent.uid
        elif is_op or parent.cat == PYTHON_FUNCTION:
            node.launcher_uid = parent.launcher_uid
        node.is_root = node.cat == CPU_OP and node.op_uid is None


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
    timed = host_events.drop_nulls(["ts_ns", "dur_ns"]).sort("ts_ns", "uid")
    threads: dict[tuple[str, str], _Thread] = {}
    dropped: list[_Node] = []
    columns = ("uid", "cat", "name", "pid", "tid", "ts_ns", "dur_ns")
    for uid, cat, name, pid, tid, ts_ns, dur_ns in timed.select(columns).iter_rows():
        node = _Node(uid, ts_ns + dur_ns, cat, name)
        threads.setdefault((pid, tid), _Thread()).add(node, ts_ns)
        if node.is_dropped:
            dropped.append(node)
    rows: list[tuple[object, ...]] = []
    for thread in threads.values():
        thread.close()
        offset = len(rows)
        rows.extend(_row(node, offset) for node in thread.nodes)
    for node in dropped:
        node.subtree_end = 1
        rows.append(_row(node, len(rows)))
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _row(node: _Node, offset: int) -> tuple[object, ...]:
    return (
        node.uid,
        node.parent.uid if node.parent else None,
        node.depth,
        node.order + offset,
        node.subtree_end + offset,
        node.op_uid,
        node.launcher_uid,
        node.is_root,
        node.is_dropped,
    )
