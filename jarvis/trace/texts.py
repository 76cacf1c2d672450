"""Dictionary of all texts of a trace: each distinct one is stored and decoded once."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from jarvis.trace.layout import ARGUMENT_KEY, BASE_KEYS, STRING, TOP_KEY
from jarvis.trace.repairs import RepairKind, Repairs

_UNESCAPED_QUOTE = re.compile(r'((?:^|[^\\])(?:\\\\)*)"')
_ESCAPED = r"\1\""


class Texts(ABC):
    """Codes of texts, numbered from 0 in order of first occurrence; BASE_KEYS come first."""

    def __init__(self) -> None:
        for key in BASE_KEYS:
            self.intern(key.encode(), TOP_KEY)
        self._repaired: dict[int, Any] = {}

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of texts."""

    @abstractmethod
    def intern(self, text: bytes, kind: int) -> int:
        """Return the code of a text; add it if it is new."""

    @abstractmethod
    def raw(self, code: int) -> bytes:
        """Return a text as in the file; of a string the part between the quotes."""

    @abstractmethod
    def kind(self, code: int) -> int:
        """Return STRING, JSON, TOP_KEY or ARGUMENT_KEY."""

    def key(self, code: int) -> tuple[str, bool]:
        """Return the key of an event, and whether it is in ``args``."""
        return self.raw(code).decode(errors="replace"), self.kind(code) == ARGUMENT_KEY

    def values(self, codes: Iterable[int], repairs: Repairs) -> list[Any]:
        """Return the texts decoded from JSON; None for invalid JSON."""
        return [self._value(int(code), repairs) for code in codes]

    def _value(self, code: int, repairs: Repairs) -> Any:
        raw = self.raw(code)
        is_string = self.kind(code) == STRING
        text = b'"%b"' % raw if is_string else raw
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            if code not in self._repaired:
                self._repaired[code] = _lenient_value(text, is_string, repairs)
            return self._repaired[code]


class PlainTexts(Texts):
    """A text dictionary in Python dicts, for traces of a few thousand texts."""

    def __init__(self) -> None:
        self._codes: dict[tuple[bytes, int], int] = {}
        self._texts: list[tuple[bytes, int]] = []
        super().__init__()

    def __len__(self) -> int:
        return len(self._texts)

    def intern(self, text: bytes, kind: int) -> int:
        entry = text, kind
        code = self._codes.setdefault(entry, len(self._texts))
        if code == len(self._texts):
            self._texts.append(entry)
        return code

    def raw(self, code: int) -> bytes:
        return self._texts[code][0]

    def kind(self, code: int) -> int:
        return self._texts[code][1]


def _lenient_value(text: bytes, is_string: bool, repairs: Repairs) -> Any:
    shown = text[:80].decode(errors="replace")
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        decoded = text.decode(errors="replace")
        repairs.add(RepairKind.INVALID_UTF8, example=shown)
    if any(character < " " for character in decoded) and is_string:
        repairs.add(RepairKind.CONTROL_CHARACTER, example=shown)
    if is_string:  # the tokenizer has counted quotes inside it
        decoded = f'"{_UNESCAPED_QUOTE.sub(_ESCAPED, decoded[1:-1])}"'
    try:
        return lenient_json(decoded)
    except (ValueError, RecursionError):
        if is_string:  # an invalid escape
            repairs.add(RepairKind.TEXT_IN_NAME, example=shown)
            return decoded[1:-1]
        repairs.add(RepairKind.LOST_TEXT, example=shown)
        return None


def lenient_json(text: str) -> Any:
    """Parse JSON with control characters, NaN, and lone surrogates (replaced by ``?``).

    Raises:
        ValueError, RecursionError: The text is not JSON, or nested too deeply.
    """
    value = json.loads(text, strict=False)
    return json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))


def used_codes(codes: NDArray[np.int32], count: int) -> NDArray[np.int64]:
    """Return the distinct codes below ``count``, ascending; -1 is ignored."""
    seen = np.zeros(count + 1, np.bool_)
    seen[codes] = True
    return np.flatnonzero(seen[:count])
