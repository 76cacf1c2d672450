"""Reference reader: one dict per event."""

import json
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import orjson
import polars as pl

from jarvis.trace.tables import Field


def events_of(text: bytes) -> list[Any]:
    """Return the events, with ``ts_ns`` and ``dur_ns`` in integer nanoseconds."""
    events = _events(orjson.loads(text))
    exact = _events(json.loads(text, parse_float=Decimal))
    for event, precise in zip(events, exact, strict=True):
        if isinstance(event, dict):
            event["ts"] = nanoseconds(precise.get("ts"))
            event["dur"] = nanoseconds(precise.get("dur"))
    return events


def _events(document: Any) -> list[Any]:
    events = document if isinstance(document, list) else document["traceEvents"]
    assert isinstance(events, list)
    return events


def nanoseconds(value: Any) -> int | None:
    """Convert microseconds of JSON to integer nanoseconds, rounding halves away from zero."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    exact = Decimal(value)
    if exact.adjusted() > 30:
        return None
    whole = int((exact * 1000).to_integral_value(ROUND_HALF_UP))
    return whole if -(2**63) < whole < 2**63 else None


def table(
    events: list[Any], categories: tuple[str | None, ...], fields: tuple[Field, ...]
) -> pl.DataFrame:
    """Return the rows of ``jarvis.trace.tables.table``, event by event."""
    chosen = [
        (uid, event)
        for uid, event in enumerate(events)
        if isinstance(event, dict) and category(event) in categories
    ]
    columns = {"uid": pl.Series("uid", [uid for uid, _ in chosen], dtype=pl.Int64)}
    for field in fields:
        values = []
        for _, event in chosen:
            arguments = event.get("args")
            part = (arguments if isinstance(arguments, dict) else {}) if field.in_args else event
            values.append(field.read(part.get(field.key)))
        columns[field.column] = pl.Series(field.column, values, dtype=field.dtype)
    return pl.DataFrame(columns)


def category(event: dict[str, Any]) -> str | None:
    """Return the category of an event; only text is a category."""
    value = event.get("cat")
    return value if isinstance(value, str) else None
