"""Values of other tools for this trace beside Jarvis's, with the reason for each difference."""

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl
import streamlit as st

from jarvis.dashboard.session.state import Opened
from jarvis.dashboard.widgets.controls import choice
from jarvis.perf_report.timeline.other_definitions import Quantity
from jarvis.schemas.names import C
from jarvis.text.format import MISSING, NOT_AVAILABLE, milliseconds, percent
from jarvis.text.markdown import table

_TABLE = "other_definitions"
_EQUAL = 5e-7
"""Half a nanosecond in ms; smaller differences are shown as none."""

_HEADS = ("Tool", "Its value", "Jarvis", "Difference", "What it counts")


def why_another_tool(now: Opened, page: str, quantities: Iterable[Quantity] = Quantity) -> None:
    """Draw an expander with the values of other tools for one of the quantities."""
    rows = now.run.table(_TABLE)
    available = set(rows[C.quantity])
    options = [quantity.value for quantity in quantities if quantity in available]
    if not options:
        return
    key = f"{page}_definition"
    with st.expander(
        "Why other tools report different values",
        icon=":material/balance:",
        expanded=key in st.query_params,
    ):
        st.markdown(
            "Tools define the same terms differently. These values are computed for this trace by "
            "each tool's definition, with its default settings unless the name says otherwise."
        )
        chosen = choice(key, "Quantity", options, "The quantity to compare.")
        st.markdown(
            table(_HEADS, map(_cells, rows.filter(pl.col(C.quantity) == chosen).to_dicts()))
        )


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    value, ours = row[C.value], row[C.ours]
    printed = milliseconds if row[C.unit] == "ms" else percent
    return (
        row[C.tool],
        NOT_AVAILABLE if value is None else _unbroken(printed(value)),
        _unbroken(printed(ours)),
        MISSING if value is None else _difference(value - ours, row[C.unit]),
        row[C.reason],
    )


def _difference(delta: float, unit: str) -> str:
    if abs(delta) < _EQUAL:
        return "none"
    sign = "+" if delta > 0 else "\N{MINUS SIGN}"
    size = milliseconds(abs(delta)) if unit == "ms" else f"{abs(delta):.1f} points"
    return _unbroken(f"{sign}{size}")


def _unbroken(text: str) -> str:
    """Return text with non-breaking spaces, to keep a number and its unit on one line."""
    return text.replace(" ", "\N{NO-BREAK SPACE}")
