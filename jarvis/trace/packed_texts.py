"""A dictionary of texts in arrays, which the kernels of the tokenizer look up and fill."""

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
    """A dictionary for any number of texts."""

    def __init__(self) -> None:
        seed = int.from_bytes(os.urandom(7))  # no file can be made so that all its texts collide
        self.arrays = _room(_FIRST_ENTRIES, _FIRST_BYTES)
        self.arrays.sizes[2] = seed
        super().__init__()

    @classmethod
    def of(cls, texts: Sequence[bytes], kinds: NDArray[np.uint8]) -> Self:
        """A dictionary of texts that are known to be distinct; their codes are their places."""
        lengths = np.fromiter(map(len, texts), np.int32, len(texts))
        made = cls()
        entries = max(_FIRST_ENTRIES, 2 * len(texts))
        used = int(lengths.sum())
        room = _room(1 << (entries - 1).bit_length(), used + _FIRST_BYTES)
        room.arena[:used] = np.frombuffer(b"".join(texts), np.uint8)
        room.lengths[: len(texts)] = lengths
        room.starts[1 : len(texts)] = np.cumsum(lengths[:-1])
        room.kinds[: len(texts)] = kinds
        room.sizes[:] = len(texts), used, made.arrays.sizes[2]
        tokenizer.hash_all(room)
        tokenizer.rehash(room.slots, room.hashes, len(texts))
        made.arrays = room
        return made

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
        """Make room for twice as much, and for one more text of so many bytes."""
        old = self.arrays
        count, used = int(old.sizes[0]), int(old.sizes[1])
        entries = len(old.hashes) * (2 if count * 2 > len(old.hashes) else 1)
        arena = len(old.arena)
        while arena < 2 * used + at_least_bytes + PADDING:
            arena *= 2
        new = _room(entries, arena)
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


def _room(entries: int, arena_bytes: int) -> Dictionary:
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
