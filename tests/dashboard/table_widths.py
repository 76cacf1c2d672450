"""Widths and texts of tables on pages."""

import json
from typing import Any

from streamlit.proto.Dataframe_pb2 import Dataframe

CARD_PX, PAGE_PX = 810, 838
"""Room for a table in a card and on a page in a window of 1280 pixels."""

_BOX_PX = 32
"""Width of the boxes of rows."""


def used_px(table: Any, last: str | None = None) -> int:
    """Return the width of a drawn table up to a column, by default of all of its columns."""
    shown = list(table.value.columns)
    widths = json.loads(table.proto.columns)
    columns = shown if last is None else shown[: shown.index(last) + 1]
    has_boxes = {Dataframe.SINGLE_ROW, Dataframe.MULTI_ROW} & set(table.proto.selection_mode)
    return sum(widths[name]["width"] for name in columns) + (_BOX_PX if has_boxes else 0)


def is_shown(text: str, name: str) -> bool:
    """Whether the text of a cell is a name, or its beginning and end."""
    begin, cut, end = text.partition("…")
    return text == name or bool(cut and name.startswith(begin) and name.endswith(end))
