"""Match operations with different names by their position in two call trees.

The trees are those of the view ``classes``: equal modules at one place are one node. Launch calls
are not used as positions, because any work can be below one.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import polars as pl

from jarvis.comparison.sides import Role, Side
from jarvis.perf_report.call_tree.stacks import MODULE_PREFIX

VIEW = "classes"
_CALLS = ("module", "op")

Path = tuple[str, ...]
"""The names of the calls from below the root to a node."""

PLACE_NAMES = 3
"""Number of calls in the name of a place, innermost last."""


@dataclass(frozen=True, slots=True)
class OperationPart:
    """Part of an operation below one call: the share of its time, and its number of calls."""

    uid: int
    share: float
    calls: float


@dataclass(frozen=True)
class Tree:
    """Calls of one side: number of calls of each, and the operation parts directly below it."""

    calls: dict[Path, int] = field(default_factory=dict)
    modules: set[Path] = field(default_factory=set)
    parts: dict[Path, list[OperationPart]] = field(default_factory=dict)


@dataclass
class CommonCall:
    """Operation parts of both sides below one call that both have in common."""

    path: Path
    parts: dict[Role, list[OperationPart]] = field(default_factory=lambda: defaultdict(list))


def call_tree(side: Side, uids: pl.Series) -> Tree:
    """Return the calls of a side with the parts of these operations."""
    nodes = side.rows("call_tree").filter(pl.col("view") == VIEW).sort("node")
    tree, path_of = Tree(), dict[int, Path]()
    columns = nodes.select("node", "parent", "kind", "name", "calls")
    for node, parent, kind, name, calls in columns.iter_rows():
        above = path_of.get(parent, ())
        path_of[node] = path = (*above, name) if kind in _CALLS else above
        if kind in _CALLS:
            tree.calls[path] = calls
        if kind == "module":
            tree.modules.add(path)
    time = pl.col("gpu_ns")
    work = (
        side.rows("call_tree_operations")
        .filter(pl.col("node").is_in(nodes["node"].implode()))
        .with_columns(
            share=pl.when(time.sum().over("operation_uid") > 0).then(
                time / time.sum().over("operation_uid")
            )
        )
        .filter(pl.col("operation_uid").is_in(uids.implode()) & pl.col("share").is_not_null())
    )
    sums: dict[tuple[Path, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for node, uid, share, calls in work.select("node", "operation_uid", "share", "calls").rows():
        total = sums[path_of[node], uid]
        total[0] += share
        total[1] += calls
    for (path, uid), (share, calls) in sums.items():
        tree.parts.setdefault(path, []).append(OperationPart(uid, share, calls))
    return tree


def common_path(path: Path, other: Tree) -> Path:
    """Return the longest prefix of a path that the other tree has too."""
    while path and path not in other.calls:
        path = path[:-1]
    return path


def groups(target: Tree, reference: Tree) -> Iterator[CommonCall]:
    """Yield operation parts of both sides by their nearest common call, each part at most once.

    If only one side has parts below a call, the search continues with the operator around it, up to
    the innermost module. Parts that have only the root in common do not match.
    """
    waiting: dict[Path, CommonCall] = {}
    sides = ((Role.TARGET, target, reference), (Role.REFERENCE, reference, target))
    for role, tree, other in sides:
        for path, parts in tree.parts.items():
            place = common_path(path, other)
            waiting.setdefault(place, CommonCall(place)).parts[role] += parts
    while waiting:
        path = max(waiting, key=lambda path: (len(path), path))
        group = waiting.pop(path)
        if not path:
            continue
        if len(group.parts) == len(sides):
            yield group
        elif path not in target.modules and len(path) > 1:
            above = waiting.setdefault(path[:-1], CommonCall(path[:-1]))
            for role, parts in group.parts.items():
                above.parts[role] += parts


def place_name(path: Path) -> str:
    """Return the last calls of a path in one line."""
    return " / ".join(name.removeprefix(MODULE_PREFIX) for name in path[-PLACE_NAMES:])
