"""How the events of a trace are held: codes, kinds and arrays that the reading parts share.

Whoever changes a number here: kernels are compiled with it (``jit`` keeps them by this file).
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

PADDING = 16
"""Bytes that may be read, but mean nothing, after the end of a block."""

MISSING_NS = np.iinfo(np.int64).min
"""A time that is absent or no number."""

STRING, JSON, TOP_KEY, ARGUMENT_KEY = 0, 1, 2, 3
"""Kinds of dictionary entries: the inside of a string, any other value, keys of two levels."""

PH, CAT, NAME, PID, TID, TS, DUR, ARGS = range(8)
"""Dictionary codes of the keys that every event has columns for; they are interned first."""

BASE_KEYS = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args")
TEXT_KEYS = 5
"""The first so many of BASE_KEYS hold text."""

EVENTS_KEY = "traceEvents"
"""The top-level key of the list of events."""

INTEGER, CODE, NULL = 0, 1, 2
"""Kinds of argument values: the number itself, a dictionary code, nothing."""


class Dictionary(NamedTuple):
    """The arrays of a dictionary of texts: an open hash table over a heap of bytes.

    ``slots`` has codes or -1; an entry ``code`` is ``arena[starts:starts + lengths]`` of a kind.
    ``sizes``: number of entries, bytes of the arena in use, seed of the hash. ``follows``: the key
    that came last after a key (at its code + 2), at the start of an event (0) or of args (1).
    """

    slots: Array
    hashes: Array
    starts: Array
    lengths: Array
    kinds: Array
    arena: Array
    sizes: Array
    follows: Array


class Batch(NamedTuple):
    """Room for events: ``codes[key, row]`` and ``times[ts or dur, row]``, ``uids[row]``.

    Every other key of an event is a pair: its row, the code of the key, kind and value.
    """

    codes: Array
    times: Array
    uids: Array
    pair_rows: Array
    pair_keys: Array
    pair_kinds: Array
    pair_values: Array
