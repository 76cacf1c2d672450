"""Merge two call trees: match the children of matched calls."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import groupby

import numpy as np

from jarvis.core.arrays import Bools, Int64s
from jarvis.tracelens.trace_diff.edit_distance import align
from jarvis.tracelens.trace_diff.gpu_paths import LAUNCH, PYTHON, PathTree

Pair = tuple[int, int]
Levels = list[bytes]

SIMILARITY_LEVELS = 4
"""Levels of descendants that are compared to distinguish calls of one name."""

MAX_WRAPPERS = 64
"""Maximum single-child calls (wrappers) to look through."""

MAX_COMPARISONS = 10_000
"""Maximum pairs of calls that a pass compares in one gap; larger gaps are skipped."""


def matched_children(
    first: PathTree, second: PathTree, node: int, other: int, *, is_root: bool = False
) -> list[Pair]:
    """Return pairs of matching nodes among the children of a node and of its counterpart.

    Through a wrapper, a descendant replaces the child. The result is symmetric in the trees.
    Remaining children of the root that are Python frames match by position.
    """
    left, right = first.children_of(node), second.children_of(other)
    left_names, right_names = first.name[left], second.name[right]
    if np.array_equal(left_names, right_names):
        return list(zip(left.tolist(), right.tolist(), strict=True))
    if (right_names.size, right_names.tolist()) < (left_names.size, left_names.tolist()):
        swapped = _Siblings(second, first, right, left)
        return [(a, b) for b, a in swapped.pairs(is_root)]
    return _Siblings(first, second, left, right).pairs(is_root)


@dataclass(frozen=True)
class _Siblings:
    """Two lists of siblings, as nodes of two trees."""

    first: PathTree
    second: PathTree
    left: Int64s
    right: Int64s

    def pairs(self, is_root: bool) -> list[Pair]:
        """Return the pairs of nodes of all passes."""
        named = self._with_most_similar(align(self._left_names, self._right_names))
        passes: list[Callable[[int, int], Pair | None]] = [self._meeting, self._loosely_equal]
        if is_root:
            passes.append(self._both_python)
        return self._filled([(x, y, self._nodes(x, y)) for x, y in named], passes)

    def _filled(
        self, matches: list[tuple[int, int, Pair]], passes: list[Callable[[int, int], Pair | None]]
    ) -> list[Pair]:
        """Return the nodes of the matches, and of further matches in the gaps between them."""
        sizes = (self.left.size, self.right.size)
        for meets in passes:
            more = [
                match
                for xs, ys in _gaps([(x, y) for x, y, _ in matches], sizes)
                for match in _longest(xs, ys, meets)
            ]
            matches = sorted(matches + more)
        return [nodes for _, _, nodes in matches]

    @cached_property
    def _left_names(self) -> Int64s:
        return self.first.name[self.left]

    @cached_property
    def _right_names(self) -> Int64s:
        return self.second.name[self.right]

    @cached_property
    def _left_chain(self) -> Callable[[int], dict[int, int]]:
        return cache(partial(_chain, self.first))

    @cached_property
    def _right_chain(self) -> Callable[[int], dict[int, int]]:
        return cache(partial(_chain, self.second))

    def _nodes(self, x: int, y: int) -> Pair:
        return int(self.left[x]), int(self.right[y])

    def _with_most_similar(self, pairs: list[Pair]) -> list[Pair]:
        """Replace the pairs of names that one side has more often by the most similar ones."""
        runs = [list(run) for _, run in groupby(pairs, lambda pair: int(self._left_names[pair[0]]))]
        chosen: list[Pair] = []
        for index, run in enumerate(runs):
            x_from, y_from = chosen[-1] if chosen else (-1, -1)
            is_last = index + 1 == len(runs)
            x_to, y_to = (self.left.size, self.right.size) if is_last else runs[index + 1][0]
            name = self._left_names[run[0][0]]
            xs = np.flatnonzero(self._left_names[x_from + 1 : x_to] == name) + x_from + 1
            ys = np.flatnonzero(self._right_names[y_from + 1 : y_to] == name) + y_from + 1
            chosen += self._most_similar(xs.tolist(), ys.tolist(), run)
        return chosen

    def _most_similar(self, xs: list[int], ys: list[int], run: list[Pair]) -> list[Pair]:
        """Match all of the shorter list with the most similar calls, in order."""
        spare = abs(len(xs) - len(ys))
        if spare == 0:
            return list(zip(xs, ys, strict=True))
        if min(len(xs), len(ys)) * (spare + 1) > MAX_COMPARISONS:
            return run
        ours = [_levels(self.first, int(self.left[x])) for x in xs]
        theirs = [_levels(self.second, int(self.right[y])) for y in ys]
        if len(xs) < len(ys):
            return [(x, ys[k]) for x, k in zip(xs, _best_choice(ours, theirs), strict=True)]
        return [(xs[k], y) for y, k in zip(ys, _best_choice(theirs, ours), strict=True)]

    def _meeting(self, x: int, y: int) -> Pair | None:
        """Return the topmost nodes of equal name in the two chains of wrappers."""
        node, other = self._nodes(x, y)
        ours, theirs = self._left_chain(node), self._right_chain(other)
        shared = ours.keys() & theirs.keys()
        if not shared:
            return None
        name = min(shared, key=lambda n: (ours[n] - node + theirs[n] - other, n))
        return ours[name], theirs[name]

    def _loosely_equal(self, x: int, y: int) -> Pair | None:
        node, other = self._nodes(x, y)
        is_equal = self.first.loose_name[node] == self.second.loose_name[other]
        return (node, other) if is_equal and self.first.kind[node] == PYTHON else None

    def _both_python(self, x: int, y: int) -> Pair | None:
        node, other = self._nodes(x, y)
        is_python = self.first.kind[node] == self.second.kind[other] == PYTHON
        return (node, other) if is_python else None


def _gaps(pairs: list[Pair], sizes: tuple[int, int]) -> Iterator[tuple[range, range]]:
    """Yield the positions between matches, if both lists have some."""
    x_from, y_from = 0, 0
    for x, y in (*pairs, sizes):
        if x > x_from and y > y_from:
            yield range(x_from, x), range(y_from, y)
        x_from, y_from = x + 1, y + 1


def _longest(
    xs: Sequence[int], ys: Sequence[int], meets: Callable[[int, int], Pair | None]
) -> Iterator[tuple[int, int, Pair]]:
    """Yield the longest sequence of ordered matches ``(x, y, nodes)``; none in large gaps."""
    if len(xs) * len(ys) > MAX_COMPARISONS:
        return
    met = [[meets(x, y) for y in ys] for x in xs]
    most = [[0] * (len(ys) + 1) for _ in range(len(xs) + 1)]
    for i in reversed(range(len(xs))):
        for j in reversed(range(len(ys))):
            skipped = max(most[i + 1][j], most[i][j + 1])
            most[i][j] = skipped if met[i][j] is None else max(skipped, most[i + 1][j + 1] + 1)
    i = j = 0
    while i < len(xs) and j < len(ys):
        nodes = met[i][j]
        if nodes is not None and most[i][j] == most[i + 1][j + 1] + 1:
            yield xs[i], ys[j], nodes
            i, j = i + 1, j + 1
        elif most[i][j] == most[i + 1][j]:
            i += 1
        else:
            j += 1


def _best_choice(few: list[Levels], many: list[Levels]) -> list[int]:
    """Return for each of ``few`` the index of its match in ``many``.

    Matches are in order and have the greatest total similarity, the earliest of equally good ones.
    """
    spare = len(many) - len(few)
    gain = [
        [_similarity(item, other) for other in many[i : i + spare + 1]]
        for i, item in enumerate(few)
    ]
    # best[i][s]: the similarity of few[i:] after s of many were skipped.
    best = [[0] * (spare + 1) + [-1] for _ in range(len(few) + 1)]
    for i in reversed(range(len(few))):
        for s in reversed(range(spare + 1)):
            best[i][s] = max(best[i + 1][s] + gain[i][s], best[i][s + 1])
    chosen = []
    s = 0
    for i in range(len(few)):
        while best[i][s] != best[i + 1][s] + gain[i][s]:
            s += 1
        chosen.append(i + s)
    return chosen


def _similarity(levels: Levels, others: Levels) -> int:
    """Return the number of consecutive levels of descendants with equal names."""
    alike = [level == other for level, other in zip(levels, others, strict=True)]
    return alike.index(False) if False in alike else SIMILARITY_LEVELS


def _levels(tree: PathTree, node: int) -> Levels:
    """Return the names of the descendants of a node, level by level."""
    levels = []
    nodes = np.array([node])
    for _ in range(SIMILARITY_LEVELS):
        nodes = np.concatenate([nodes[:0], *(tree.children_of(n) for n in nodes)])
        levels.append(tree.name[nodes].tobytes())
    return levels


def _chain(tree: PathTree, node: int) -> dict[int, int]:
    """Return a call and the single-child chain below it: nodes by name, without launches."""
    chain: dict[int, int] = {}
    for _ in range(MAX_WRAPPERS):
        if tree.kind[node] >= LAUNCH:
            break
        chain.setdefault(int(tree.name[node]), node)
        below = tree.children_of(node)
        if below.size != 1:
            break
        node = int(below[0])
    return chain


NONE = -1


def counterparts(first: PathTree, second: PathTree) -> Int64s:
    """Return the counterpart in ``second`` of each node of ``first``, or NONE.

    Counterparts are in the same order in both trees, and below counterparts.
    """
    counterpart = np.full(first.name.size, NONE, np.int64)
    open_pairs = [(0, 0)]
    while open_pairs:
        node, other = open_pairs.pop()
        end, other_end = first.subtree_end[node], second.subtree_end[other]
        if np.array_equal(first.shape[node:end], second.shape[other:other_end]):
            counterpart[node:end] = np.arange(other, other_end)
            continue
        counterpart[node] = other
        is_root = node == 0
        open_pairs += matched_children(first, second, node, other, is_root=is_root)
    return counterpart


def nearest_common(common: Bools, parent: Int64s) -> Int64s:
    """Return the nearest ``common`` node at or above each node; the root is always common."""
    above = parent.tolist()
    nearest = list(range(common.size))
    for node in np.flatnonzero(~common).tolist():
        nearest[node] = nearest[above[node]]
    return np.array(nearest, np.int64)
