"""Batches of the tokenizer -> the groups of an event store."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from jarvis.trace.event_store import Bytes, Codes, EventStore, Group, Integers, Piece
from jarvis.trace.jit import kernel
from jarvis.trace.layout import CAT, TEXT_KEYS, Batch
from jarvis.trace.texts import used_codes

_MOST_LABELS = 1 << 20
"""Beyond so many categories times keys in one batch, a table of them is not worth its room."""


@kernel("void(int32[::1], int64[::1], int64[::1], int32[::1])")
def _partition(labels: Codes, starts: Integers, order: Integers, ranks: Codes) -> None:
    """Positions by label, in order within each: label ``i`` is ``order[starts[i]:starts[i+1]]``.

    ``labels`` are below ``len(starts) - 1``; ``ranks`` gets the place of each position within its
    label. A counting sort.
    """
    for position in range(len(labels)):
        ranks[position] = starts[labels[position] + 1]
        starts[labels[position] + 1] += 1
    for label in range(1, len(starts)):
        starts[label] += starts[label - 1]
    for position in range(len(labels)):
        order[starts[labels[position]] + ranks[position]] = position


@kernel(
    "void(int32[::1], int32[::1], int32[::1], int64,"
    " int32[::1], int32[::1], uint8[::1], int64[::1], int64,"
    " int64[::1], int32[::1], uint8[::1], int64[::1])"
)
def _sort_pairs(
    group_of_row: Codes,
    rank_of_row: Codes,
    dense_key: Codes,
    key_count: int,
    pair_rows: Codes,
    pair_keys: Codes,
    pair_kinds: Bytes,
    pair_values: Integers,
    count: int,
    starts: Integers,
    rows: Codes,
    kinds: Bytes,
    values: Integers,
) -> None:
    """Sort pairs by the group of their event and their key, stable: a counting sort.

    ``starts`` is zero and has a place more than there are groups times keys; ``rows`` gets the
    place of each pair's event in its group.
    """
    for pair in range(count):
        label = group_of_row[pair_rows[pair]] * key_count + dense_key[pair_keys[pair]]
        starts[label + 1] += 1
    for label in range(1, len(starts)):
        starts[label] += starts[label - 1]
    for pair in range(count):
        row = pair_rows[pair]
        label = group_of_row[row] * key_count + dense_key[pair_keys[pair]]
        place = starts[label]
        rows[place] = rank_of_row[row]
        kinds[place] = pair_kinds[pair]
        values[place] = pair_values[pair]
        starts[label] = place + 1


class Sorter:
    """Sorts batches into a store by category and key; ``add`` takes them one by one."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._category_of: dict[int, str | None] = {-1: None}
        self._sorted: tuple[Codes, Bytes, Integers] | None = None

    def add(self, batch: Batch, rows: int, pairs: int) -> None:
        """Take the first ``rows`` events and ``pairs`` pairs of a batch; the batch is free then."""
        group_of_row, categories = self._groups_of(batch.codes[CAT, :rows])
        targets = [self._store.group_to_fill(category) for category in categories]
        starts = np.zeros(len(targets) + 1, np.int64)
        order = np.empty(rows, np.int64)
        ranks = np.empty(rows, np.int32)
        _partition(group_of_row, starts, order, ranks)
        self._add_pairs(batch, pairs, group_of_row, ranks, targets, np.diff(starts).tolist())
        for index, target in enumerate(targets):
            where = order[starts[index] : starts[index + 1]]
            target.uids.append(batch.uids[where])
            for which in (0, 1):
                target.times[which].append(batch.times[which, where])
            for key in range(TEXT_KEYS):
                target.codes[key].append(batch.codes[key, where])
            target.height += len(where)

    def _add_pairs(
        self,
        batch: Batch,
        count: int,
        group_of_row: Codes,
        ranks: Codes,
        targets: list[Group],
        heights: list[int],
    ) -> None:
        keys = used_codes(batch.pair_keys[:count], len(self._store.texts))
        dense = np.zeros(len(self._store.texts), np.int32)
        dense[keys] = np.arange(len(keys), dtype=np.int32)
        if len(targets) * len(keys) > _MOST_LABELS:
            labels = group_of_row[batch.pair_rows[:count]] * np.int64(len(keys))
            labels += dense[batch.pair_keys[:count]]
            order = np.argsort(labels, kind="stable")
            found, firsts = np.unique(labels[order], return_index=True)
            bounds = [*firsts.tolist(), count]
            rows = ranks[batch.pair_rows[order]]
            kinds, values = batch.pair_kinds[order], batch.pair_values[order]
        else:
            rows, kinds, values = self._room(len(batch.pair_rows))
            ends = np.zeros(len(targets) * len(keys) + 1, np.int64)
            _sort_pairs(
                group_of_row, ranks, dense, len(keys), *batch[3:], count, ends, rows, kinds, values
            )
            found, bounds = np.arange(len(ends) - 1), [0, *ends[:-1].tolist()]
        for label, (begin, end) in zip(found.tolist(), pairwise(bounds), strict=True):
            if end > begin:
                index, key = divmod(label, len(keys))
                part = slice(begin, end)
                piece = _piece(
                    rows[part], kinds[part], values[part], targets[index].height, heights[index]
                )
                targets[index].pairs.setdefault(int(keys[key]), []).append(piece)

    def _room(self, size: int) -> tuple[Codes, Bytes, Integers]:
        """Arrays for the sorted pairs of a batch, the same ones for every batch."""
        if self._sorted is None or len(self._sorted[0]) < size:
            self._sorted = (
                np.empty(size, np.int32),
                np.empty(size, np.uint8),
                np.empty(size, np.int64),
            )
        return self._sorted

    def _groups_of(self, codes: Codes) -> tuple[Codes, list[str | None]]:
        """An index into the list of categories for each event."""
        distinct, inverse = np.unique(codes, return_inverse=True)
        categories: dict[str | None, int] = {}
        index = np.empty(len(distinct), np.int32)
        for position, code in enumerate(distinct.tolist()):
            if code not in self._category_of:
                value = self._store.texts.values([code], self._store.repairs)[0]
                self._category_of[code] = value if isinstance(value, str) else None
            index[position] = categories.setdefault(self._category_of[code], len(categories))
        return index[inverse].astype(np.int32), list(categories)


@kernel("void(int32[::1], uint8[::1], int64[::1], boolean[::1])")
def _describe(rows: Codes, kinds: Bytes, values: Integers, found: NDArray[np.bool_]) -> None:
    """Whether values fit into 32 bits, are all of one kind, and stand for rows that follow."""
    narrow = uniform = follows = True
    for i in range(len(rows)):
        narrow = narrow and -(2**31) <= values[i] < 2**31
        uniform = uniform and kinds[i] == kinds[0]
        follows = follows and rows[i] == i
    found[0] = narrow
    found[1] = uniform
    found[2] = follows


def _piece(rows: Codes, kinds: Bytes, values: Integers, first_row: int, height: int) -> Piece:
    """One key's part of a batch, copied as narrow as it can be."""
    found = np.empty(3, np.bool_)
    _describe(rows, kinds, values, found)
    is_narrow, is_uniform, is_complete = found.tolist()
    return Piece(
        first_row,
        None if is_complete and len(rows) == height else rows.copy(),
        values.astype(np.int32) if is_narrow else values.copy(),
        int(kinds[0]) if is_uniform else kinds.copy(),
    )
