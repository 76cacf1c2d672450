"""Events by category, one array for each key that occurs: what tables are made from.

Nothing is decoded here. A text is a code of ``Texts``, a whole number is itself, and a key that
nobody has asked for yet stays as compact as the others.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jarvis.trace.layout import NULL, STRING, TEXT_KEYS
from jarvis.trace.repairs import Repairs
from jarvis.trace.texts import Texts

Integers = NDArray[np.int64]
Codes = NDArray[np.int32]
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Values:
    """One key of ``len(values)`` events: numbers or codes, as ``kinds`` says for each."""

    values: Integers | Codes
    kinds: Bytes


@dataclass(frozen=True, slots=True)
class Piece:
    """A key's values in one batch; ``rows`` None where each event of the batch has one."""

    first_row: int
    rows: Codes | None
    values: Integers | Codes
    kinds: Bytes | int


@dataclass(slots=True)
class Group:
    """The events of one category, in file order."""

    uids: list[Integers] = field(default_factory=list)
    times: tuple[list[Integers], list[Integers]] = field(default_factory=lambda: ([], []))
    codes: tuple[list[Codes], ...] = field(
        default_factory=lambda: tuple([] for _ in range(TEXT_KEYS))
    )
    pairs: dict[int, list[Piece]] = field(default_factory=dict)
    height: int = 0
    is_released: bool = False

    def put(self, key: int, values: Values) -> None:
        """Take a key of all events."""
        self.pairs[key] = [Piece(0, None, values.values, values.kinds)]

    def rows(self, chosen: NDArray[np.bool_]) -> "Group":
        """Return the events for which ``chosen`` is true."""
        group = Group(
            uids=[self.uid()[chosen]],
            times=([self.time(0)[chosen]], [self.time(1)[chosen]]),
            codes=tuple([self.text(key)[chosen]] for key in range(TEXT_KEYS)),
            height=int(chosen.sum()),
        )
        for key in self.pairs:
            values = self.values(key)
            group.put(key, Values(values.values[chosen], values.kinds[chosen]))
        return group

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
    """All events of a trace, by category."""

    def __init__(self, texts: Texts, repairs: Repairs) -> None:
        self.texts = texts
        self.repairs = repairs
        self._groups: dict[str | None, Group | Callable[[], Group]] = {}

    def categories(self) -> list[str | None]:
        """The categories that occur, in order of appearance; None for events without one."""
        return list(self._groups)

    def group(self, category: str | None) -> Group:
        """The events of a category; none where it does not occur."""
        found = self._groups.get(category, Group())
        return found if isinstance(found, Group) else self._made(category, found)

    def group_to_fill(self, category: str | None) -> Group:
        """The group of a category, made where it does not occur yet."""
        found = self._groups.setdefault(category, Group())
        return found if isinstance(found, Group) else self._made(category, found)

    def put(self, category: str | None, group: Group | Callable[[], Group]) -> None:
        """Take the events of a category, or what makes them when somebody first asks for them."""
        self._groups[category] = group

    def _made(self, category: str | None, make: Callable[[], Group]) -> Group:
        made = self._groups[category] = make()
        return made

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

    def release(self, category: str | None, keys: Collection[tuple[str, bool]]) -> None:
        """Forget what stands in a table now: these keys, and those that every event has."""
        group = self.group(category)
        group.is_released = True
        group.times = ([], [])
        group.codes = tuple([] for _ in range(TEXT_KEYS))
        for code in [code for code in group.pairs if self.texts.key(code) in keys]:
            del group.pairs[code]
