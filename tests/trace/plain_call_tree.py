"""Reference implementation of the call tree in plain Python."""

from dataclasses import dataclass, field

import polars as pl

LAST_NS = 2**63 - 1
SCHEMA = {
    **dict.fromkeys(("uid", "parent_uid", "depth", "order", "subtree_end"), pl.Int64),
    **dict.fromkeys(("op_uid", "launcher_uid"), pl.Int64),
    **dict.fromkeys(("is_root", "is_dropped"), pl.Boolean),
}


@dataclass(slots=True)
class Node:
    uid: int
    end_ns: int
    cat: str
    name: str
    parent: "Node | None" = None
    depth: int = 0
    order: int = 0
    subtree_end: int = 0
    op_uid: int | None = None
    launcher_uid: int | None = None
    is_root: bool = False
    is_dropped: bool = False

    def row(self, offset: int) -> tuple[object, ...]:
        return (
            self.uid,
            self.parent.uid if self.parent else None,
            self.depth,
            self.order + offset,
            self.subtree_end + offset,
            self.op_uid,
            self.launcher_uid,
            self.is_root,
            self.is_dropped,
        )


@dataclass(slots=True)
class Thread:
    stack: list[Node] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)

    def add(self, node: Node, ts_ns: int) -> None:
        while self.stack and ts_ns >= self.stack[-1].end_ns:
            self.pop()
        if self.stack and node.end_ns > self.stack[-1].end_ns:
            if self.stack[-1].end_ns - ts_ns >= 1000 or len(self.stack) < 2:
                node.is_dropped = True
                return
            self.pop()
        self.attach(node)
        node.order = len(self.nodes)
        self.nodes.append(node)
        self.stack.append(node)

    def pop(self) -> None:
        self.stack.pop().subtree_end = len(self.nodes)

    def attach(self, node: Node) -> None:
        if self.stack:
            parent = node.parent = self.stack[-1]
            node.depth = parent.depth + 1
            is_op = parent.cat == "cpu_op"
            node.op_uid = parent.uid if is_op else parent.op_uid
            if is_op and parent.name != "execute":
                node.launcher_uid = parent.uid
            elif is_op or parent.cat == "python_function":
                node.launcher_uid = parent.launcher_uid
        node.is_root = node.cat == "cpu_op" and node.op_uid is None


def plain_call_tree(host_events: pl.DataFrame) -> pl.DataFrame:
    timed = host_events.drop_nulls(["ts_ns", "dur_ns"]).sort("ts_ns", "uid")
    threads: dict[tuple[str, str], Thread] = {}
    dropped: list[Node] = []
    columns = ("uid", "cat", "name", "pid", "tid", "ts_ns", "dur_ns")
    for uid, cat, name, pid, tid, ts_ns, dur_ns in timed.select(columns).iter_rows():
        node = Node(uid, min(ts_ns + dur_ns, LAST_NS), cat, name)
        threads.setdefault((pid, tid), Thread()).add(node, ts_ns)
        if node.is_dropped:
            dropped.append(node)
    rows: list[tuple[object, ...]] = []
    for thread in threads.values():
        while thread.stack:
            thread.pop()
        offset = len(rows)
        rows.extend(node.row(offset) for node in thread.nodes)
    for node in dropped:
        node.subtree_end = 1
        rows.append(node.row(len(rows)))
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")
