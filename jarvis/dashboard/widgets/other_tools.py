"""Why other tools report other figures: its figures for this trace beside ours, and the reason."""

from collections.abc import Iterable, Mapping
from typing import Any

import streamlit as st

from jarvis.dashboard.session.state import Opened
from jarvis.dashboard.widgets.controls import choice
from jarvis.perf_report.timeline.other_definitions import Quantity
from jarvis.text.format import MISSING, NOT_AVAILABLE, milliseconds, percent
from jarvis.text.markdown import table

_TABLE = "other_definitions"
_EQUAL = 5e-7
"""Half a nanosecond in ms: what is closer is the same."""

_HEADS = ("Tool", "It says", "Ours", "Difference", "What it counts")


def why_another_tool(now: Opened, page: str, quantities: Iterable[Quantity] = Quantity) -> None:
    """A fold with the figures of other tools for one of the quantities, to be chosen."""
    rows = now.run.table(_TABLE)
    found = set(rows["quantity"])
    options = [quantity.value for quantity in quantities if quantity in found]
    if not options:
        return
    key = f"{page}_definition"
    with st.expander(
        "Why other tools report other figures",
        icon=":material/balance:",
        expanded=key in st.query_params,
    ):
        st.markdown(
            "Tools mean different things by one word. These are their figures for this trace, "
            "worked out here by their definitions, with the settings that they start with unless "
            "the name says otherwise."
        )
        chosen = choice(key, "Figure", options, "The figure to compare.")
        st.markdown(table(_HEADS, map(_cells, rows.filter(quantity=chosen).to_dicts())))


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    value, ours = row["value"], row["ours"]
    printed = milliseconds if row["unit"] == "ms" else percent
    return (
        row["tool"],
        NOT_AVAILABLE if value is None else _unbroken(printed(value)),
        _unbroken(printed(ours)),
        MISSING if value is None else _difference(value - ours, row["unit"]),
        row["reason"],
    )


def _difference(beyond: float, unit: str) -> str:
    if abs(beyond) < _EQUAL:
        return "none"
    sign = "+" if beyond > 0 else "\N{MINUS SIGN}"
    size = milliseconds(abs(beyond)) if unit == "ms" else f"{abs(beyond):.1f} points"
    return _unbroken(f"{sign}{size}")


def _unbroken(text: str) -> str:
    """A number that stays on one line with its unit."""
    return text.replace(" ", "\N{NO-BREAK SPACE}")
