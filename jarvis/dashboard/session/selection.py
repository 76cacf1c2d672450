"""The selected operation of a category page, set by its table, a chart or the URL."""

from collections.abc import Sequence

import polars as pl
import streamlit as st

from jarvis.dashboard.session.links import note_control, notice
from jarvis.schemas.names import C


def request(page: str, uid: int) -> None:
    """Select an operation on the next rerun of the page."""
    st.query_params[_parameter(page)] = str(uid)


def follow_click(page: str, uid: int | None) -> None:
    """Select the clicked operation of a chart, which reports its last click on every rerun."""
    last = f"_{page}_clicked"
    if uid != st.session_state.get(last):
        st.session_state[last] = uid
        if uid is not None:
            request(page, uid)


def note_table(page: str, key: str, uids: Sequence[int]) -> None:
    """Remember the widget key of the table of a page and the operations of its rows."""
    st.session_state[_table(page)] = key, uids, _picked_row(key)


def follow_table(page: str) -> bool:
    """Select the row picked in the table since it was drawn; return whether one is picked.

    Called before the page is drawn, so that all of it shows the selection.
    """
    key, uids, before = st.session_state.get(_table(page), (None, (), None))
    picked = _picked_row(key)
    if key not in st.session_state or picked == before:
        return False
    keep(page, None if picked is None else uids[picked])
    return picked is not None


def follow_chart(page: str, key: str, name: str) -> None:
    """Select the mark clicked since the last run in a chart; it reports its last click each time.

    ``key`` is the base of its widget key, ``name`` that of its selection.
    """
    last, uid = f"_{key}_clicked", _picked_mark(_chart_key(key), name)
    if uid != st.session_state.get(last):
        st.session_state[last] = uid
        if uid is not None:
            request(page, uid)


def chart_key(key: str, name: str, uid: int | None) -> str:
    """Return the widget key of a chart on a page with a selected operation.

    The key changes if the mark clicked last is no longer selected: browsers report a second click
    on a mark only in a new chart.
    """
    if _picked_mark(_chart_key(key), name) not in (None, uid):
        st.session_state[_turn(key)] = st.session_state.get(_turn(key), 0) + 1
        st.session_state.pop(f"_{key}_clicked", None)
    return _chart_key(key)


def close(page: str) -> None:
    """Clear the selection of the page and of its table; a callback."""
    keep(page, None)
    key, *_ = st.session_state.get(_table(page), (None,))
    if key in st.session_state:
        st.session_state[key] = table_state(None)


def table_state(row: int | None) -> dict[str, dict[str, list[int]]]:
    """Return the state of a table in which the row with this index is selected."""
    return {"selection": {"rows": [] if row is None else [row], "columns": [], "cells": []}}


def selected(page: str, rows: pl.DataFrame) -> tuple[int | None, bool]:
    """Return the ``uid`` that the URL selects among ``rows``, and whether it is a new selection.

    A selection that is not among the rows is cleared, with a notice if it came from a link.
    """
    given = st.query_params.get(_parameter(page))
    if given is None:
        keep(page, None)
        return None, False
    is_new = given != st.session_state.get(_seen(page))
    if (rows[C.uid].cast(pl.String) == given).any():
        return int(given), is_new
    if is_new:
        notice(f"The operation {given[:40]!r} of the link is not among the rows on this page.")
    keep(page, None)
    return None, False


def keep(page: str, uid: int | None) -> None:
    """Write the selection into the URL and the page's link."""
    parameter = _parameter(page)
    if uid is None:
        st.query_params.pop(parameter, None)
        st.session_state.pop(_seen(page), None)
        return
    st.query_params[parameter] = str(uid)
    st.session_state[_seen(page)] = str(uid)
    note_control(parameter, uid)


def _picked_row(key: str | None) -> int | None:
    """Return the index of the selected row of a table; None without one or without its state."""
    state = st.session_state.get(key) if key else None
    rows = state["selection"]["rows"] if state else []
    return int(rows[0]) if rows else None


def _picked_mark(key: str, name: str) -> int | None:
    """Return the ``uid`` of the mark clicked last in a chart, from the state of its widget."""
    state = st.session_state.get(key)
    marks = state["selection"].get(name) if state else None
    return int(marks[0][C.uid]) if marks else None


def _chart_key(key: str) -> str:
    turn = st.session_state.get(_turn(key), 0)
    return f"{key}_{turn}" if turn else key


def _turn(key: str) -> str:
    return f"_{key}_turn"


def _table(page: str) -> str:
    return f"_{page}_table"


def _parameter(page: str) -> str:
    return f"{page}_op"


def _seen(page: str) -> str:
    return f"_{page}_op_seen"
