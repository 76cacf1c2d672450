"""Parse a trace of a few megabytes with a JSON library, without loading compiled kernels.

Only valid JSON is read here; the tokenizer reads and repairs everything else.
"""

import json
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, NoReturn

import numpy as np
import orjson

from jarvis.trace.event_store import EventGroup, EventStore, Values
from jarvis.trace.layout import (
    ARGUMENT_KEY,
    BASE_KEYS,
    CODE,
    EVENTS_KEY,
    INTEGER,
    JSON,
    MISSING_NS,
    NULL,
    STRING,
    TEXT_KEYS,
    TOP_KEY,
)
from jarvis.trace.repairs import Repairs
from jarvis.trace.texts import PlainTexts

_INT64_MAX = 2**63 - 1
_MAX_TIME_DIGITS = 30
"""Maximum digits of a time before the decimal point."""


class _Number(str):
    """The text of a number with a decimal point or an exponent."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class PlainTrace:
    """Events of a trace and its other top-level keys."""

    store: EventStore
    event_count: int
    metadata: dict[str, Any]


def plain_trace(text: bytes) -> PlainTrace | None:
    """Parse ``text``; return None if the tokenizer has to read it."""
    if text.count(b'"%b"' % EVENTS_KEY.encode()) > 1:
        return None
    try:
        document = json.loads(text.decode(), parse_float=_Number, parse_constant=_refuse)
        metadata = {} if isinstance(document, list) else dict(document)
        events = document if isinstance(document, list) else metadata.pop(EVENTS_KEY, None)
        if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
            return None
        header = {key: orjson.loads(_json(value)) for key, value in metadata.items()}
        return PlainTrace(_store(events), len(events), header)
    except (ValueError, TypeError, RecursionError):  # not valid JSON
        return None


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def _json(value: Any) -> bytes:
    """Return ``value`` as JSON; raise TypeError if that is not possible."""
    if type(value) is _Number:
        return value.encode()
    if isinstance(value, int) and abs(value) > _INT64_MAX:
        return str(value).encode()
    return orjson.dumps(value, default=float, option=orjson.OPT_PASSTHROUGH_SUBCLASS)


@dataclass(slots=True)
class _Rows:
    """Events of one category: a list for each array of a ``EventGroup``."""

    uids: list[int] = field(default_factory=list)
    times: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    codes: tuple[list[int], ...] = field(
        default_factory=lambda: tuple([] for _ in range(TEXT_KEYS))
    )
    pairs: dict[int, dict[int, Any]] = field(default_factory=dict)


def _store(events: list[dict[str, Any]]) -> EventStore:
    texts = _Codes()
    categories: dict[str | None, _Rows] = {}
    for uid, event in enumerate(events):
        category = event.get("cat")
        rows = categories.setdefault(category if type(category) is str else None, _Rows())
        row = len(rows.uids)
        rows.uids.append(uid)
        rows.times[0].append(_nanoseconds(event.get("ts")))
        rows.times[1].append(_nanoseconds(event.get("dur")))
        for key, codes in zip(BASE_KEYS, rows.codes, strict=False):
            value = event.get(key)
            codes.append(-1 if value is None else texts.code(value))
        for key, value in event.items():
            if key not in BASE_KEYS:
                rows.pairs.setdefault(texts.key(key, TOP_KEY), {})[row] = value
        arguments = event.get("args")
        if isinstance(arguments, dict):
            for key, value in arguments.items():
                rows.pairs.setdefault(texts.key(key, ARGUMENT_KEY), {})[row] = value
    store = EventStore(texts.texts, Repairs())
    for category, rows in categories.items():
        store.put(category, _group(rows, texts))
    return store


class _Codes:
    """Cache of the codes of keys and values."""

    def __init__(self) -> None:
        self.texts = PlainTexts()
        self._keys: dict[tuple[str, int], int] = {}
        self._strings: dict[str, int] = {}

    def key(self, key: str, kind: int) -> int:
        known = self._keys.get((key, kind))
        if known is None:
            known = self._keys[key, kind] = self.texts.intern(key.encode(), kind)
        return known

    def code(self, value: Any) -> int:
        if type(value) is not str:
            return self.texts.intern(_json(value), JSON)
        known = self._strings.get(value)
        if known is None:
            known = self._strings[value] = self.texts.intern(orjson.dumps(value)[1:-1], STRING)
        return known


def _group(rows: _Rows, texts: _Codes) -> EventGroup:
    height = len(rows.uids)
    group = EventGroup(
        uids=[np.array(rows.uids, np.int64)],
        times=([np.array(rows.times[0], np.int64)], [np.array(rows.times[1], np.int64)]),
        codes=tuple([np.array(codes, np.int32)] for codes in rows.codes),
        height=height,
    )
    for key, by_row in rows.pairs.items():
        values = np.zeros(height, np.int64)
        kinds = np.full(height, NULL, np.uint8)
        for row, value in by_row.items():
            if type(value) is int and -_INT64_MAX <= value <= _INT64_MAX:
                values[row], kinds[row] = value, INTEGER
            elif value is not None:
                values[row], kinds[row] = texts.code(value), CODE
        group.put(key, Values(values, kinds))
    return group


def _nanoseconds(value: Any) -> int:
    """Convert microseconds from JSON to integer nanoseconds, rounding halves away from zero."""
    if type(value) is int:
        whole = value * 1000
    elif type(value) is _Number:
        before, _, after = value.partition(".")
        if len(after) <= 3 and after.isdecimal():
            whole = int(before + after.ljust(3, "0"))
        else:
            exact = Decimal(value)
            if exact.adjusted() > _MAX_TIME_DIGITS:
                return MISSING_NS
            whole = int((exact * 1000).to_integral_value(ROUND_HALF_UP))
    else:
        return MISSING_NS
    return whole if -_INT64_MAX <= whole <= _INT64_MAX else MISSING_NS
