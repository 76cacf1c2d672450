"""The dictionary of all texts of a trace: each distinct one is kept and decoded once."""

import json
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
import orjson
from numpy.typing import NDArray

from jarvis.trace import tokenizer
from jarvis.trace.repairs import RepairKind, Repairs
from jarvis.trace.tokenizer import Dictionary

_UNESCAPED_QUOTE = re.compile(r'((?:^|[^\\])(?:\\\\)*)"')
_ESCAPED = r"\1\""

_FIRST_ENTRIES = 1 << 12
_FIRST_BYTES = 1 << 20


class Texts:
    """Codes for texts, from 0 in the order in which they are met."""

    def __init__(self) -> None:
        seed = int.from_bytes(os.urandom(7))  # no file can be made so that all its texts collide
        self.arrays = _room(_FIRST_ENTRIES, _FIRST_BYTES)
        self.arrays.sizes[2] = seed
        for key in tokenizer.BASE_KEYS:
            self.intern(key.encode(), tokenizer.TOP_KEY)
        self._mended: dict[int, Any] = {}

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
        """The code of a text."""
        padded = np.frombuffer(text + bytes(tokenizer.PADDING), np.uint8).copy()
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
        while arena < 2 * used + at_least_bytes + tokenizer.PADDING:
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
        """A text as it stands in the file; of a string what is between the quotes."""
        start = self.arrays.starts[code]
        return self.arrays.arena[start : start + self.arrays.lengths[code]].tobytes()

    def key(self, code: int) -> tuple[str, bool]:
        """A key of an event, and whether it stands in its ``args``."""
        in_arguments = bool(self.arrays.kinds[code] == tokenizer.ARGUMENT_KEY)
        return self.raw(code).decode(errors="replace"), in_arguments

    def values(self, codes: Iterable[int], repairs: Repairs) -> list[Any]:
        """What the texts mean: strings, and whatever else JSON has; None for what is not JSON."""
        return [self._value(int(code), repairs) for code in codes]

    def _value(self, code: int, repairs: Repairs) -> Any:
        raw = self.raw(code)
        is_string = self.arrays.kinds[code] == tokenizer.STRING
        text = b'"%b"' % raw if is_string else raw
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            if code not in self._mended:
                self._mended[code] = _lenient_value(text, is_string, repairs)
            return self._mended[code]


def _lenient_value(text: bytes, is_string: bool, repairs: Repairs) -> Any:
    shown = text[:80].decode(errors="replace")
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        decoded = text.decode(errors="replace")
        repairs.add(RepairKind.INVALID_UTF8, example=shown)
    if any(character < " " for character in decoded) and is_string:
        repairs.add(RepairKind.CONTROL_CHARACTER, example=shown)
    if is_string:  # quotes inside it have been counted where it was read
        decoded = f'"{_UNESCAPED_QUOTE.sub(_ESCAPED, decoded[1:-1])}"'
    try:
        return lenient_json(decoded)
    except (ValueError, RecursionError):
        if is_string:  # a backslash that escapes nothing
            repairs.add(RepairKind.TEXT_IN_NAME, example=shown)
            return decoded[1:-1]
        repairs.add(RepairKind.LOST_TEXT, example=shown)
        return None


def lenient_json(text: str) -> Any:
    """JSON that may hold control characters, NaN, and halves of surrogate pairs (as ``?``).

    Raises ValueError or RecursionError.
    """
    value = json.loads(text, strict=False)
    return json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))


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


def used_codes(codes: NDArray[np.int32], count: int) -> NDArray[np.int64]:
    """The distinct codes (of ``count``) that occur, ascending; -1 is none."""
    seen = np.zeros(count + 1, np.bool_)
    seen[codes] = True
    return np.flatnonzero(seen[:count])
