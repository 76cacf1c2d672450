"""Operations that stand below the same call of two call trees, where their names do not match.

The trees are those of classes: equal modules at one place are one node. Launch calls are no place:
anything may stand below one.
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
"""A place is told by so many calls, innermost last."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of an operation that a call launches: ``share`` of its time, and its calls."""

    uid: int
    share: float
    calls: float


@dataclass(frozen=True)
class Tree:
    """The calls of one side: how often each is called, and the pieces right below it."""

    calls: dict[Path, int] = field(default_factory=dict)
    modules: set[Path] = field(default_factory=set)
    pieces: dict[Path, list[Piece]] = field(default_factory=dict)


@dataclass
class Group:
    """Pieces of both sides below one call that both have in common."""

    path: Path
    pieces: dict[Role, list[Piece]] = field(default_factory=lambda: defaultdict(list))


def call_tree(side: Side, uids: pl.Series) -> Tree:
    """The calls of a side with the pieces of these operations."""
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
    parts: dict[tuple[Path, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for node, uid, share, calls in work.select("node", "operation_uid", "share", "calls").rows():
        part = parts[path_of[node], uid]
        part[0] += share
        part[1] += calls
    for (path, uid), (share, calls) in parts.items():
        tree.pieces.setdefault(path, []).append(Piece(uid, share, calls))
    return tree


def common_path(path: Path, other: Tree) -> Path:
    """The longest beginning of a path that the other tree has too."""
    while path and path not in other.calls:
        path = path[:-1]
    return path


def groups(target: Tree, reference: Tree) -> Iterator[Group]:
    """Pieces of both sides by the nearest call that both have, each piece in one group at most.

    Where only one side has pieces below a call, the operator around it is looked at next, up to
    the innermost module. What the root alone has in common is no match.
    """
    waiting: dict[Path, Group] = {}
    sides = ((Role.TARGET, target, reference), (Role.REFERENCE, reference, target))
    for role, tree, other in sides:
        for path, pieces in tree.pieces.items():
            place = common_path(path, other)
            waiting.setdefault(place, Group(place)).pieces[role] += pieces
    while waiting:
        path = max(waiting, key=lambda path: (len(path), path))
        group = waiting.pop(path)
        if not path:
            continue
        if len(group.pieces) == len(sides):
            yield group
        elif path not in target.modules and len(path) > 1:
            above = waiting.setdefault(path[:-1], Group(path[:-1]))
            for role, pieces in group.pieces.items():
                above.pieces[role] += pieces


def place_name(path: Path) -> str:
    """The last calls of a path in a line."""
    return " / ".join(name.removeprefix(MODULE_PREFIX) for name in path[-PLACE_NAMES:])
