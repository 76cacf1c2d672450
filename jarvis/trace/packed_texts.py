"""Text dictionary in arrays, for the compiled tokenizer."""

import os
from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from jarvis.trace import tokenizer
from jarvis.trace.layout import PADDING, Dictionary
from jarvis.trace.texts import Texts

_FIRST_ENTRIES = 1 << 12
_FIRST_BYTES = 1 << 20


class PackedTexts(Texts):
    """A text dictionary for any number of texts."""

    def __init__(self) -> None:
        seed = int.from_bytes(os.urandom(7))  # prevents crafted hash collisions
        self.arrays = _allocate(_FIRST_ENTRIES, _FIRST_BYTES)
        self.arrays.sizes[2] = seed
        super().__init__()

    @classmethod
    def of(cls, texts: Sequence[bytes], kinds: NDArray[np.uint8]) -> Self:
        """Return a dictionary of distinct texts, whose codes are their positions."""
        lengths = np.fromiter(map(len, texts), np.int32, len(texts))
        dictionary = cls()
        entries = max(_FIRST_ENTRIES, 2 * len(texts))
        used = int(lengths.sum())
        arrays = _allocate(1 << (entries - 1).bit_length(), used + _FIRST_BYTES)
        arrays.arena[:used] = np.frombuffer(b"".join(texts), np.uint8)
        arrays.lengths[: len(texts)] = lengths
        arrays.starts[1 : len(texts)] = np.cumsum(lengths[:-1])
        arrays.kinds[: len(texts)] = kinds
        arrays.sizes[:] = len(texts), used, dictionary.arrays.sizes[2]
        tokenizer.hash_all(arrays)
        tokenizer.rehash(arrays.slots, arrays.hashes, len(texts))
        dictionary.arrays = arrays
        return dictionary

    def __len__(self) -> int:
        return int(self.arrays.sizes[0])

    def intern(self, text: bytes, kind: int) -> int:
        padded = np.frombuffer(text + bytes(PADDING), np.uint8).copy()
        while True:
            code: int = tokenizer.intern(padded, 0, len(text), kind, self.arrays)
            if code >= 0:
                return code
            self.grow(len(text))

    def grow(self, at_least_bytes: int = 0) -> None:
        """Double the capacity, with space for one more text of ``at_least_bytes``."""
        old = self.arrays
        count, used = int(old.sizes[0]), int(old.sizes[1])
        entries = len(old.hashes) * (2 if count * 2 > len(old.hashes) else 1)
        arena = len(old.arena)
        while arena < 2 * used + at_least_bytes + PADDING:
            arena *= 2
        new = _allocate(entries, arena)
        new.sizes[:] = old.sizes
        new.arena[:used] = old.arena[:used]
        for name in ("hashes", "starts", "lengths", "kinds"):
            getattr(new, name)[:count] = getattr(old, name)[:count]
        new.follows[: len(old.follows)] = old.follows
        tokenizer.rehash(new.slots, new.hashes, count)
        self.arrays = new

    def raw(self, code: int) -> bytes:
        start = self.arrays.starts[code]
        return self.arrays.arena[start : start + self.arrays.lengths[code]].tobytes()

    def kind(self, code: int) -> int:
        return int(self.arrays.kinds[code])


def _allocate(entries: int, arena_bytes: int) -> Dictionary:
    return Dictionary(
        slots=np.full(4 * entries, -1, np.int32),
        hashes=np.zeros(entries, np.uint64),
        starts=np.zeros(entries, np.int64),
        lengths=np.zeros(entries, np.int32),
        kinds=np.zeros(entries, np.uint8),
        arena=np.empty(arena_bytes, np.uint8),
        sizes=np.zeros(3, np.int64),
        follows=np.full(entries + 2, -1, np.int32),
    )
