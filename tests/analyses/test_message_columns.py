"""Columns of messages, and the specs that join several messages."""

import polars as pl

from jarvis.analyses.operations import message_column
from jarvis.text.messages import MessageTable, to_text

MESSAGES = MessageTable(
    "test_message_columns",
    {
        "shared": "{queries} heads share {keys:,} keys",
        "unknown": "heads are not known",
        "one": "{name} {time_ms}",
        "list": "{items:list 2}",
        "joined": "{items:joined ; }",
        "sentence": "It is slow: {note}.",
    },
)


def test_each_row_has_the_message_of_its_key_with_its_own_values() -> None:
    rows = pl.DataFrame({"queries": [4, None], "keys": [2048, None]})
    key = pl.when(pl.col("keys").is_null()).then(pl.lit("unknown")).otherwise(pl.lit("shared"))
    notes = rows.select(note=message_column(MESSAGES, key, "queries", "keys"))["note"]
    assert [to_text(MESSAGES("sentence", note=note)) for note in notes] == [
        "It is slow: 4 heads share 2,048 keys.",
        "It is slow: heads are not known.",
    ]


def test_a_message_without_values_needs_no_columns() -> None:
    column = pl.DataFrame({"queries": [4]}).select(note=message_column(MESSAGES, pl.lit("unknown")))
    (note,) = column["note"]
    assert to_text(MESSAGES("sentence", note=note)) == "It is slow: heads are not known."


def test_messages_are_listed_and_joined() -> None:
    items = [MESSAGES("one", name=name, time_ms=1.0) for name in ("a", "b", "c")]
    assert to_text(MESSAGES("list", items=items)) == "`a` 1.00 ms, `b` 1.00 ms and 1 more"
    assert to_text(MESSAGES("joined", items=items)) == "`a` 1.00 ms; `b` 1.00 ms; `c` 1.00 ms"
    assert to_text(MESSAGES("list", items=())) == ""
