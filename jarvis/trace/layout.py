"""In-memory layout of trace events: codes, kinds and arrays shared by the reader modules.

Kernels are compiled with these constants; ``jit`` recompiles them when this file changes.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

PADDING = 16
"""Readable but meaningless bytes after the end of a block."""

MISSING_NS = np.iinfo(np.int64).min
"""A time that is missing or not a number."""

STRING, JSON, TOP_KEY, ARGUMENT_KEY = 0, 1, 2, 3
"""Kinds of dictionary entries: string content, other JSON value, key of an event, key of args."""

PH, CAT, NAME, PID, TID, TS, DUR, ARGS = range(8)
"""Dictionary codes of the keys that are columns of every event; they are interned first."""

BASE_KEYS = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args")
TEXT_KEYS = 5
"""Number of BASE_KEYS, from the first, with text values."""

EVENTS_KEY = "traceEvents"
"""The top-level key of the list of events."""

INTEGER, CODE, NULL = 0, 1, 2
"""Kinds of argument values: an integer, a dictionary code, null."""


class Dictionary(NamedTuple):
    """Arrays of a text dictionary: an open-addressing hash table over a byte arena.

    ``slots`` has codes or -1; the text of an entry is ``arena[starts:starts + lengths]``.
    ``sizes``: number of entries, bytes of the arena in use, hash seed. ``follows`` predicts keys:
    the key last seen after a key (at its code + 2), at the start of an event (0) or of args (1).
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
    """Buffers for events: ``codes[key, row]``, ``times[ts or dur, row]`` and ``uids[row]``.

    Every other key of an event is a pair: row, code of the key, kind and value.
    """

    codes: Array
    times: Array
    uids: Array
    pair_rows: Array
    pair_keys: Array
    pair_kinds: Array
    pair_values: Array
