"""Columnar store of undecoded events by category, with one array per key.

A text is stored as its code in ``Texts``, an integer as itself.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
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
    """Values of one key for ``len(values)`` events: numbers or codes, by ``kinds``."""

    values: Integers | Codes
    kinds: Bytes


@dataclass(frozen=True, slots=True)
class ValueChunk:
    """Values of one key in one batch; ``rows`` is None if every event of the batch has one."""

    first_row: int
    rows: Codes | None
    values: Integers | Codes
    kinds: Bytes | int


@dataclass(slots=True)
class EventGroup:
    """The events of one category, in file order."""

    uids: list[Integers] = field(default_factory=list)
    times: tuple[list[Integers], list[Integers]] = field(default_factory=lambda: ([], []))
    codes: tuple[list[Codes], ...] = field(
        default_factory=lambda: tuple([] for _ in range(TEXT_KEYS))
    )
    pairs: dict[int, list[ValueChunk]] = field(default_factory=dict)
    height: int = 0
    is_released: bool = False

    def put(self, key: int, values: Values) -> None:
        """Set the values of a key for all events."""
        self.pairs[key] = [ValueChunk(0, None, values.values, values.kinds)]

    def rows(self, chosen: NDArray[np.bool_]) -> "EventGroup":
        """Return a group of the events for which ``chosen`` is true."""
        group = EventGroup(
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
        """Return the positions in ``traceEvents``."""
        uids: Integers = _joined(self.uids, np.int64)
        return uids

    def time(self, which: int) -> Integers:
        """Return ``ts`` (0) or ``dur`` (1) in nanoseconds, with MISSING_NS for missing values."""
        times: Integers = _joined(self.times[which], np.int64)
        return times

    def text(self, key: int) -> Codes:
        """Return the codes of one of the first TEXT_KEYS keys, with -1 for missing values."""
        codes: Codes = _joined(self.codes[key], np.int32)
        return codes

    def values(self, key: int) -> Values:
        """Return the values of a key by its code, with kind NULL for events without it."""
        chunks = self.pairs.get(key, [])
        narrow = all(chunk.values.dtype == np.int32 for chunk in chunks)
        values: Any = np.zeros(self.height, np.int32 if narrow else np.int64)
        kinds = np.full(self.height, NULL, np.uint8)
        for chunk in chunks:
            where: Any = (
                slice(chunk.first_row, chunk.first_row + len(chunk.values))
                if chunk.rows is None
                else chunk.first_row + chunk.rows
            )
            values[where] = chunk.values
            kinds[where] = chunk.kinds
        return Values(values, kinds)


def _joined(chunks: list[Any], dtype: Any) -> Any:
    if len(chunks) != 1:
        chunks[:] = [np.concatenate(chunks) if chunks else np.empty(0, dtype)]
    return chunks[0]


class EventStore:
    """Events of a trace by category."""

    def __init__(self, texts: Texts, repairs: Repairs) -> None:
        self.texts = texts
        self.repairs = repairs
        self._groups: dict[str | None, EventGroup | Callable[[], EventGroup]] = {}

    def categories(self) -> list[str | None]:
        """Return the categories in order of appearance; None for events without one."""
        return list(self._groups)

    def group(self, category: str | None) -> EventGroup:
        """Return the events of a category, or an empty group."""
        group = self._groups.get(category, EventGroup())
        return group if isinstance(group, EventGroup) else self._load(category, group)

    def group_to_fill(self, category: str | None) -> EventGroup:
        """Return the group of a category; add an empty one if there is none."""
        group = self._groups.setdefault(category, EventGroup())
        return group if isinstance(group, EventGroup) else self._load(category, group)

    def put(self, category: str | None, group: EventGroup | Callable[[], EventGroup]) -> None:
        """Set the events of a category, or a function that loads them on first use."""
        self._groups[category] = group

    def take(self, category: str | None) -> EventGroup:
        """Remove a category and return its events."""
        group = self.group(category)
        self._groups.pop(category, None)
        return group

    def _load(self, category: str | None, load: Callable[[], EventGroup]) -> EventGroup:
        group = self._groups[category] = load()
        return group

    def has(self, category: str | None, key: int, text: str) -> bool:
        """Return whether an event of a category has this text (``"M"``) for a base key."""
        code = self.texts.intern(text.encode(), STRING)
        return bool((self.group(category).text(key) == code).any())

    def keys(self, category: str | None) -> list[tuple[str, bool]]:
        """Return the keys other than BASE_KEYS, each with whether it is in ``args``."""
        return [self.texts.key(code) for code in self.group(category).pairs]

    def values(self, group: EventGroup, key: str, in_arguments: bool) -> Values:
        """Return the values of a key of a group."""
        for code in group.pairs:
            if self.texts.key(code) == (key, in_arguments):
                return group.values(code)
        return group.values(-1)

    def release(self, category: str | None, keys: Collection[tuple[str, bool]]) -> None:
        """Free these keys and the base keys, whose values are in a table now."""
        group = self.group(category)
        group.is_released = True
        group.times = ([], [])
        group.codes = tuple([] for _ in range(TEXT_KEYS))
        for code in [code for code in group.pairs if self.texts.key(code) in keys]:
            del group.pairs[code]


@dataclass(frozen=True, slots=True)
class ReadProgress:
    """Progress of reading: bytes of the (compressed) file, and events."""

    bytes_done: int
    bytes_total: int
    events: int

    def __str__(self) -> str:
        megabytes = f"{self.bytes_done / 1e6:.1f} of {self.bytes_total / 1e6:.1f} MB"
        return f"{megabytes}, {self.events:,} events"


OnProgress = Callable[[ReadProgress], None]
"""Progress callback, called after each block; an exception aborts reading."""


@dataclass(frozen=True, slots=True)
class RawTrace:
    """Events of a trace and its other top-level keys (``metadata``)."""

    path: Path
    sha256: str
    size_bytes: int
    json_bytes: int
    store: EventStore
    event_count: int
    metadata: dict[str, Any]
    repairs: Repairs
