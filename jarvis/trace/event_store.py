"""Events by category, one array for each key that occurs: what tables are made from.

Nothing is decoded here. A text is a code of ``Texts``, a whole number is itself, and a key that
nobody has asked for yet stays as compact as the others.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jarvis.trace.jit import kernel, types
from jarvis.trace.repairs import Repairs
from jarvis.trace.texts import Texts, used_codes
from jarvis.trace.tokenizer import CAT, NULL, STRING, TEXT_KEYS, Batch

Integers = NDArray[np.int64]
Codes = NDArray[np.int32]

_MOST_LABELS = 1 << 20


@kernel(
    types.void(types.int32[::1], types.int64, types.int64[::1], types.int64[::1], types.int64[::1])
)
def _partition(
    labels: Codes, count: int, starts: Integers, order: Integers, ranks: Integers
) -> None:
    """Positions by label, in order within each: label ``i`` is ``order[starts[i]:starts[i+1]]``.

    ``labels`` are below ``len(starts) - 1``; ``ranks`` gets the place of each position within its
    label. A counting sort.
    """
    starts[:] = 0
    for position in range(count):
        ranks[position] = starts[labels[position] + 1]
        starts[labels[position] + 1] += 1
    for label in range(1, len(starts)):
        starts[label] += starts[label - 1]
    for position in range(count):
        order[starts[labels[position]] + ranks[position]] = position


@dataclass(frozen=True, slots=True)
class Values:
    """One key of ``len(values)`` events: numbers or codes, as ``kinds`` says for each."""

    values: Integers | Codes
    kinds: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A key's values in one batch; ``rows`` None where each event of the batch has one."""

    first_row: int
    rows: NDArray[np.int32] | None
    values: Integers | Codes
    kinds: NDArray[np.uint8] | int


@dataclass(slots=True)
class Group:
    """The events of one category, in file order."""

    uids: list[Integers] = field(default_factory=list)
    times: tuple[list[Integers], list[Integers]] = field(default_factory=lambda: ([], []))
    codes: tuple[list[Codes], ...] = field(
        default_factory=lambda: tuple([] for _ in range(TEXT_KEYS))
    )
    pairs: dict[int, list[_Piece]] = field(default_factory=dict)
    height: int = 0

    def uid(self) -> Integers:
        """Positions in ``traceEvents``."""
        uids: Integers = _joined(self.uids, np.int64)
        return uids

    def time(self, which: int) -> Integers:
        """``ts`` (0) or ``dur`` (1) in nanoseconds, MISSING_NS where there is none."""
        times: Integers = _joined(self.times[which], np.int64)
        return times

    def text(self, key: int) -> Codes:
        """Codes of one of the first TEXT_KEYS keys, -1 where there is none."""
        codes: Codes = _joined(self.codes[key], np.int32)
        return codes

    def values(self, key: int) -> Values:
        """A key by its code; NULL where an event does not have it."""
        pieces = self.pairs.get(key, [])
        narrow = all(piece.values.dtype == np.int32 for piece in pieces)
        values: Any = np.zeros(self.height, np.int32 if narrow else np.int64)
        kinds = np.full(self.height, NULL, np.uint8)
        for piece in pieces:
            where: Any = (
                slice(piece.first_row, piece.first_row + len(piece.values))
                if piece.rows is None
                else piece.first_row + piece.rows
            )
            values[where] = piece.values
            kinds[where] = piece.kinds
        return Values(values, kinds)


def _joined(pieces: list[Any], dtype: Any) -> Any:
    if len(pieces) != 1:
        pieces[:] = [np.concatenate(pieces) if pieces else np.empty(0, dtype)]
    return pieces[0]


class EventStore:
    """All events of a trace; ``add`` takes the batches of the tokenizer one by one."""

    def __init__(self, texts: Texts, repairs: Repairs) -> None:
        self.texts = texts
        self.repairs = repairs
        self._groups: dict[str | None, Group] = {}
        self._category_of: dict[int, str | None] = {-1: None}

    def categories(self) -> list[str | None]:
        """The categories that occur, in order of appearance; None for events without one."""
        return list(self._groups)

    def group(self, category: str | None) -> Group:
        """The events of a category; none where it does not occur."""
        return self._groups.get(category, Group())

    def has(self, category: str | None, key: int, text: str) -> bool:
        """Whether an event of a category has this text (``"M"``) at one of the first keys."""
        code = self.texts.intern(text.encode(), STRING)
        return bool((self.group(category).text(key) == code).any())

    def keys(self, category: str | None) -> list[tuple[str, bool]]:
        """The keys beyond those that every event has, and whether they stand in ``args``."""
        return [self.texts.key(code) for code in self.group(category).pairs]

    def values(self, group: Group, key: str, in_arguments: bool) -> Values:
        """The values of a key of a group."""
        for code in group.pairs:
            if self.texts.key(code) == (key, in_arguments):
                return group.values(code)
        return group.values(-1)

    def drop(self, categories: Iterable[str | None]) -> None:
        """Forget events whose tables have been made."""
        for category in categories:
            self._groups.pop(category, None)

    def add(self, batch: Batch, rows: int, pairs: int) -> None:
        """Take the first ``rows`` events and ``pairs`` pairs of a batch; the batch is free then."""
        groups = self._groups_of(batch.codes[CAT, :rows])
        order, starts, ranks = _partitioned(groups[0], len(groups[1]))
        of_pair = groups[0][batch.pair_rows[:pairs]]
        labels, keys = _labels(of_pair, batch.pair_keys[:pairs], len(self.texts))
        pair_order, pair_starts, _ = _partitioned(labels, len(keys))
        targets = [self._groups.setdefault(c, Group()) for c in groups[1]]
        heights = [int(starts[i + 1] - starts[i]) for i in range(len(targets))]
        for index, (group_index, key) in enumerate(keys):
            where = pair_order[pair_starts[index] : pair_starts[index + 1]]
            if len(where):
                target = targets[group_index]
                piece = _piece(batch, where, ranks, target.height, heights[group_index])
                target.pairs.setdefault(key, []).append(piece)
        for index, target in enumerate(targets):
            where = order[starts[index] : starts[index + 1]]
            target.uids.append(batch.uids[where])
            for which in (0, 1):
                target.times[which].append(batch.times[which, where])
            for key in range(TEXT_KEYS):
                target.codes[key].append(batch.codes[key, where])
            target.height += len(where)

    def _groups_of(self, codes: Codes) -> tuple[Codes, list[str | None]]:
        """An index into the list of categories for each event."""
        distinct, inverse = np.unique(codes, return_inverse=True)
        categories: dict[str | None, int] = {}
        index = np.empty(len(distinct), np.int32)
        for position, code in enumerate(distinct.tolist()):
            if code not in self._category_of:
                value = self.texts.values([code], self.repairs)[0]
                self._category_of[code] = value if isinstance(value, str) else None
            index[position] = categories.setdefault(self._category_of[code], len(categories))
        return index[inverse].astype(np.int32), list(categories)


def _partitioned(labels: Codes, count: int) -> tuple[Integers, Integers, Integers]:
    starts = np.zeros(count + 1, np.int64)
    order = np.empty(len(labels), np.int64)
    ranks = np.empty(len(labels), np.int64)
    _partition(labels, len(labels), starts, order, ranks)
    return order, starts, ranks


def _labels(of_pair: Codes, keys: Codes, text_count: int) -> tuple[Codes, list[tuple[int, int]]]:
    """A label for each pair (its group, its key), and the group and key of each label."""
    distinct = used_codes(keys, text_count)
    dense = np.zeros(text_count, np.int32)
    dense[distinct] = np.arange(len(distinct), dtype=np.int32)
    groups = int(of_pair.max()) + 1 if len(of_pair) else 0
    if groups * len(distinct) > _MOST_LABELS:
        both = of_pair.astype(np.int64) * len(distinct) + dense[keys]
        found, labels = np.unique(both, return_inverse=True)
        pairs = [divmod(label, len(distinct)) for label in found.tolist()]
        return labels.astype(np.int32), [(g, int(distinct[k])) for g, k in pairs]
    labels = of_pair * np.int32(len(distinct)) + dense[keys]
    return labels, [(group, key) for group in range(groups) for key in distinct.tolist()]


def _piece(batch: Batch, where: Integers, ranks: Integers, first_row: int, height: int) -> _Piece:
    rows: NDArray[np.int32] | None = ranks[batch.pair_rows[where]].astype(np.int32)
    assert rows is not None
    if len(rows) == height and np.array_equal(rows, np.arange(height, dtype=np.int32)):
        rows = None
    kinds = batch.pair_kinds[where]
    values = batch.pair_values[where]
    if not len(values) or (values.min() >= -(2**31) and values.max() < 2**31):
        values = values.astype(np.int32)
    is_uniform = bool((kinds == kinds[0]).all())
    return _Piece(first_row, rows, values, int(kinds[0]) if is_uniform else kinds)
