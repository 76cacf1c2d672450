"""Which children of two matched calls correspond.

Four passes, each over what the earlier ones left between two matches: equal names; for repeated
names those whose own children are alike; calls that meet below a wrapper; names that agree apart
from function, folder and module instance. No pass lets two matches cross.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import groupby

import numpy as np

from jarvis.tracelens.trace_diff.edit_distance import align
from jarvis.tracelens.trace_diff.gpu_paths import LAUNCH, PYTHON, Int64s, PathTree

Pair = tuple[int, int]
Levels = list[bytes]

LIKENESS_LEVELS = 4
"""Levels of descendants that count where calls of one name are told apart."""

MAX_WRAPPERS = 64
"""Single-child calls that are looked through."""

MAX_COMPARISONS = 10_000
"""Pairs of calls that a pass weighs in one stretch; a larger stretch stays as it is."""


def matched_children(
    first: PathTree, second: PathTree, node: int, other: int, *, is_root: bool = False
) -> list[Pair]:
    """Pairs of nodes that correspond, among the children of a node and of its counterpart.

    Where a wrapper is looked through, a descendant stands for the child. Exchanging the trees
    exchanges the pairs. Children of the root that are Python frames correspond by position if
    nothing else tells them apart.
    """
    left, right = first.children_of(node), second.children_of(other)
    left_names, right_names = first.name[left], second.name[right]
    if np.array_equal(left_names, right_names):
        return list(zip(left.tolist(), right.tolist(), strict=True))
    if (right_names.size, right_names.tolist()) < (left_names.size, left_names.tolist()):
        swapped = _Stretch(second, first, right, left)
        return [(a, b) for b, a in swapped.pairs(is_root)]
    return _Stretch(first, second, left, right).pairs(is_root)


@dataclass(frozen=True)
class _Stretch:
    """Two lists of siblings, as nodes of two trees."""

    first: PathTree
    second: PathTree
    left: Int64s
    right: Int64s

    def pairs(self, is_root: bool) -> list[Pair]:
        """Pairs of nodes by all passes."""
        named = self._with_alike(align(self._left_names, self._right_names))
        passes: list[Callable[[int, int], Pair | None]] = [self._meeting, self._loosely_equal]
        if is_root:
            passes.append(self._both_python)
        return self._filled([(x, y, self._nodes(x, y)) for x, y in named], passes)

    def _filled(
        self, found: list[tuple[int, int, Pair]], passes: list[Callable[[int, int], Pair | None]]
    ) -> list[Pair]:
        """The nodes of the matches, after more matches in the gaps between them."""
        sizes = (self.left.size, self.right.size)
        for meets in passes:
            more = [
                match
                for xs, ys in _gaps([(x, y) for x, y, _ in found], sizes)
                for match in _longest(xs, ys, meets)
            ]
            found = sorted(found + more)
        return [nodes for _, _, nodes in found]

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

    def _with_alike(self, pairs: list[Pair]) -> list[Pair]:
        """The pairs, with another choice where one side has more calls of a name."""
        runs = [list(run) for _, run in groupby(pairs, lambda pair: int(self._left_names[pair[0]]))]
        chosen: list[Pair] = []
        for index, run in enumerate(runs):
            x_from, y_from = chosen[-1] if chosen else (-1, -1)
            is_last = index + 1 == len(runs)
            x_to, y_to = (self.left.size, self.right.size) if is_last else runs[index + 1][0]
            name = self._left_names[run[0][0]]
            xs = np.flatnonzero(self._left_names[x_from + 1 : x_to] == name) + x_from + 1
            ys = np.flatnonzero(self._right_names[y_from + 1 : y_to] == name) + y_from + 1
            chosen += self._most_alike(xs.tolist(), ys.tolist(), run)
        return chosen

    def _most_alike(self, xs: list[int], ys: list[int], run: list[Pair]) -> list[Pair]:
        """All of the shorter list matched with what is most like it, in order."""
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
        """The topmost nodes with one name in the two chains of wrappers."""
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
    """The positions between matches, where both lists have some."""
    x_from, y_from = 0, 0
    for x, y in (*pairs, sizes):
        if x > x_from and y > y_from:
            yield range(x_from, x), range(y_from, y)
        x_from, y_from = x + 1, y + 1


def _longest(
    xs: Sequence[int], ys: Sequence[int], meets: Callable[[int, int], Pair | None]
) -> Iterator[tuple[int, int, Pair]]:
    """As many matches ``(x, y, nodes)`` as can stand in order; none in too large a stretch."""
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
    """For each of ``few`` which of ``many`` it goes with: in order, with the greatest likeness.

    The earliest of equally good ones.
    """
    spare = len(many) - len(few)
    gain = [
        [_likeness(item, other) for other in many[i : i + spare + 1]] for i, item in enumerate(few)
    ]
    # best[i][s]: the likeness of few[i:] where s of many were passed over before.
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


def _likeness(levels: Levels, others: Levels) -> int:
    """How many levels of descendants have the same names, one after the other."""
    alike = [level == other for level, other in zip(levels, others, strict=True)]
    return alike.index(False) if False in alike else LIKENESS_LEVELS


def _levels(tree: PathTree, node: int) -> Levels:
    """Names of the descendants of a node, level by level."""
    levels = []
    nodes = np.array([node])
    for _ in range(LIKENESS_LEVELS):
        nodes = np.concatenate([nodes[:0], *(tree.children_of(n) for n in nodes)])
        levels.append(tree.name[nodes].tobytes())
    return levels


def _chain(tree: PathTree, node: int) -> dict[int, int]:
    """A call and those that it merely hands over to: nodes by name, launches left out."""
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
