"""The selected operation of a category page, set by its table, a chart or the URL."""

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


def _parameter(page: str) -> str:
    return f"{page}_op"


def _seen(page: str) -> str:
    return f"_{page}_op_seen"
