"""Sort batches of the tokenizer into the groups of an event store."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from jarvis.trace.event_store import Bytes, Codes, EventGroup, EventStore, Integers, ValueChunk
from jarvis.trace.jit import kernel
from jarvis.trace.layout import CAT, TEXT_KEYS, Batch
from jarvis.trace.texts import used_codes

_MAX_LABELS = 1 << 20
"""Maximum categories times keys of a batch for a counting sort, which needs an entry for each."""


@kernel("void(int32[::1], int64[::1], int64[::1], int32[::1])")
def _partition(labels: Codes, starts: Integers, order: Integers, ranks: Codes) -> None:
    """Counting sort of positions by label, stable: label ``i`` is ``order[starts[i]:starts[i+1]]``.

    ``labels`` are below ``len(starts) - 1``; ``ranks`` receives the rank of each position within
    its label.
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
    """Counting sort of pairs by the group of their event and by key, stable.

    ``starts`` is zeroed and has one entry more than groups times keys; ``rows`` receives the
    position of each pair's event in its group.
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
    """Sort batches into a store by category and key."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._category_of: dict[int, str | None] = {-1: None}
        self._sorted: tuple[Codes, Bytes, Integers] | None = None

    def add(self, batch: Batch, rows: int, pairs: int) -> None:
        """Add the first ``rows`` events and ``pairs`` pairs of a batch; it can be reused then."""
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
        targets: list[EventGroup],
        heights: list[int],
    ) -> None:
        keys = used_codes(batch.pair_keys[:count], len(self._store.texts))
        dense = np.zeros(len(self._store.texts), np.int32)
        dense[keys] = np.arange(len(keys), dtype=np.int32)
        if len(targets) * len(keys) > _MAX_LABELS:
            labels = group_of_row[batch.pair_rows[:count]] * np.int64(len(keys))
            labels += dense[batch.pair_keys[:count]]
            order = np.argsort(labels, kind="stable")
            distinct, firsts = np.unique(labels[order], return_index=True)
            bounds = [*firsts.tolist(), count]
            rows = ranks[batch.pair_rows[order]]
            kinds, values = batch.pair_kinds[order], batch.pair_values[order]
        else:
            rows, kinds, values = self._buffers(len(batch.pair_rows))
            ends = np.zeros(len(targets) * len(keys) + 1, np.int64)
            _sort_pairs(
                group_of_row, ranks, dense, len(keys), *batch[3:], count, ends, rows, kinds, values
            )
            distinct, bounds = np.arange(len(ends) - 1), [0, *ends[:-1].tolist()]
        for label, (begin, end) in zip(distinct.tolist(), pairwise(bounds), strict=True):
            if end > begin:
                index, key = divmod(label, len(keys))
                part = slice(begin, end)
                chunk = _chunk(
                    rows[part], kinds[part], values[part], targets[index].height, heights[index]
                )
                targets[index].pairs.setdefault(int(keys[key]), []).append(chunk)

    def _buffers(self, size: int) -> tuple[Codes, Bytes, Integers]:
        """Return arrays for the sorted pairs of a batch, reused for every batch."""
        if self._sorted is None or len(self._sorted[0]) < size:
            self._sorted = (
                np.empty(size, np.int32),
                np.empty(size, np.uint8),
                np.empty(size, np.int64),
            )
        return self._sorted

    def _groups_of(self, codes: Codes) -> tuple[Codes, list[str | None]]:
        """Return an index into the list of categories for each event, and the list."""
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
def _describe(rows: Codes, kinds: Bytes, values: Integers, result: NDArray[np.bool_]) -> None:
    """Set ``result``: values fit into 32 bits, have one kind, and have the rows 0, 1, ..."""
    narrow = uniform = follows = True
    for i in range(len(rows)):
        narrow = narrow and -(2**31) <= values[i] < 2**31
        uniform = uniform and kinds[i] == kinds[0]
        follows = follows and rows[i] == i
    result[0] = narrow
    result[1] = uniform
    result[2] = follows


def _chunk(rows: Codes, kinds: Bytes, values: Integers, first_row: int, height: int) -> ValueChunk:
    """Copy one key's part of a batch with the narrowest types."""
    result = np.empty(3, np.bool_)
    _describe(rows, kinds, values, result)
    is_narrow, is_uniform, is_complete = result.tolist()
    return ValueChunk(
        first_row,
        None if is_complete and len(rows) == height else rows.copy(),
        values.astype(np.int32) if is_narrow else values.copy(),
        int(kinds[0]) if is_uniform else kinds.copy(),
    )
