"""Kernels by instance, and numbers of them, in parts that fit into memory."""

from collections.abc import Iterator

import numpy as np
import polars as pl
from numpy.typing import NDArray

from jarvis.schemas.names import C

Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]
Bools = NDArray[np.bool_]

_AT_ONCE = 1 << 17
"""Kernels that are in memory together in another order."""

_MAX_PARTS = 32
"""Parts of all kernels at most, because each is searched for among all."""

_COUNTED_AT_ONCE = 1 << 18
"""Values that are in memory as 64-bit numbers."""


def by_instance(kernels: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the kernels by instance, then as they are ordered, in parts with whole instances.

    All of them in another order would not fit into memory beside them.
    """
    for rows in rows_by_instance(kernels[C.instance_id].to_numpy()):
        yield kernels[rows]


def rows_by_instance(instance: Int32s) -> Iterator[Int32s]:
    """Yield the places of kernels by their instance, then in order, in parts with whole
    instances."""
    ends = np.cumsum(sums(instance))
    at_once = max(_AT_ONCE, instance.size // _MAX_PARTS)
    first, done = 0, 0
    while True:
        after = min(int(ends.searchsorted(done + at_once)) + 1, ends.size)
        rows = np.flatnonzero((instance >= first) & (instance < after)).astype(np.int32)
        yield rows[np.argsort(instance[rows], kind="stable")]
        if after == ends.size:
            break
        first, done = after, int(ends[after - 1])


def sums(group: Int32s, values: Bools | None = None) -> Int64s:
    """Return how many values each group has, of ``values`` only those that are true.

    NumPy converts all values to 64-bit numbers, which would not fit into memory.
    """
    found = np.zeros(group.max(initial=-1) + 1, np.int64)
    for begin in range(0, group.size, _COUNTED_AT_ONCE):
        part = group[begin : begin + _COUNTED_AT_ONCE]
        if values is not None:
            part = part[values[begin : begin + _COUNTED_AT_ONCE]]
        found += np.bincount(part, minlength=found.size)
    return found
