"""Slices by kind, and the tracks that they are on."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import orjson
import polars as pl

from jarvis.schemas.names import C

TRACK = "track"
"""Column with the position of a slice's track."""

ReadTexts = Callable[[pl.DataFrame], pl.Series]
"""Returns a JSON text, or null, for each of some rows."""


@dataclass(frozen=True, slots=True)
class Track:
    """A thread or a stream: its process and its name; ``pid`` and ``tid`` if they are recorded."""

    process: str
    name: str
    pid: str | None = None
    tid: str | None = None


@dataclass(frozen=True)
class Part:
    """Slices of one category.

    ``rows`` has ``track, uid, name, ts_ns, dur_ns`` and what ``arguments`` reads; ``uid`` is null
    for slices that are not recorded.
    """

    category: str
    rows: pl.DataFrame
    arguments: Mapping[str, ReadTexts] = field(default_factory=dict)


@dataclass(frozen=True)
class Recorded:
    """The recorded slices, the tracks that they are on, and arrows between them.

    ``arrows``: ``cat, from_uid, to_uid``. ``without_time``: slices that have no place in time.
    """

    parts: list[Part]
    tracks: list[Track]
    arrows: pl.DataFrame
    without_time: int = 0


ARROWS = pl.Schema({C.cat: pl.String, "from_uid": pl.Int64, "to_uid": pl.Int64})
"""Columns of arrows."""


def numbers(column: str) -> ReadTexts:
    """Return a reader of a column of numbers."""
    return lambda rows: rows[column].cast(pl.String)


def texts(column: str) -> ReadTexts:
    """Return a reader of a column of texts."""
    return lambda rows: json_texts(rows[column])


def json_texts(values: pl.Series) -> pl.Series:
    """Return texts as JSON strings; each distinct text is encoded once."""
    known = values.cast(pl.String)
    distinct = known.drop_nulls().unique()
    encoded = pl.Series(
        [orjson.dumps(text).decode() for text in distinct.to_list()], dtype=pl.String
    )
    return known.replace_strict(distinct, encoded, default=None, return_dtype=pl.String)


def is_timed() -> pl.Expr:
    """Return whether a slice has a place in time."""
    start, duration = pl.col(C.ts_ns), pl.col(C.dur_ns)
    most = pl.lit(2**63 - 1, pl.Int64)
    return ((duration >= 0) & (start <= most - duration.clip(0))).fill_null(False)


def natural(text: str) -> tuple[bool, int, str]:
    """Return a sort key: numbers by value, before other texts."""
    is_number = text.isdecimal() and len(text) < 20
    return not is_number, int(text) if is_number else 0, text


def read_arguments(part: Part, rows: pl.DataFrame) -> Iterator[pl.Series]:
    """Return ``"key":value`` for each argument of some rows, null where it is missing."""
    for key, read in part.arguments.items():
        name = orjson.dumps(key).decode()
        found = read(rows).alias("text")
        yield found.to_frame().select(pl.lit(f"{name}:") + pl.col("text")).to_series()
