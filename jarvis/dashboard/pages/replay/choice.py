"""Table of operators on the replay page; the selection is in the URL."""

from collections.abc import Sequence
from zlib import crc32

import polars as pl
import streamlit as st

from jarvis.charts import Columns
from jarvis.dashboard.session.links import note_control, notice
from jarvis.dashboard.widgets.table import configured
from jarvis.replay import ReplayCandidate
from jarvis.text.format import MISSING

_SEPARATOR = "-"
_ROW_PX, _TABLE_PX = 35, 420
_WIDTHS = {
    "op_name": 240,
    "package": 105,
    "percent_of_compute": 90,
    "time_ms": 115,
    "efficiency_pct": 100,
    "calls": 60,
    "distinct_calls": 100,
    "packaged_pct": 100,
    "reason": 480,
}


def chosen_candidates(
    page: str,
    candidates: Sequence[ReplayCandidate],
    shown: Sequence[ReplayCandidate],
    frame: pl.DataFrame,
    columns: Columns,
) -> list[ReplayCandidate]:
    """Draw the table and return the selected candidates, including those hidden by filters.

    The URL identifies an operator by the ``uid`` of one of its rows.

    Args:
        page: Prefix of the URL parameter.
        candidates: All candidates.
        shown: Candidates that pass the filters.
        frame: A row for each of ``shown``.
        columns: Labels and formats of the columns.
    """
    parameter, seen = f"{page}_ops", f"_{page}_ops_seen"
    given = st.query_params.get(parameter)
    by_uid = {str(uid): candidate for candidate in candidates for uid in candidate.uids}
    requested = given.split(_SEPARATOR) if given else []
    if unknown := [uid for uid in requested if uid not in by_uid]:
        notice(f"The link has operators that this analysis does not have: {unknown[0][:40]!r}.")
    known = [str(by_uid[uid].uids[0]) for uid in requested if uid in by_uid]
    wanted = list(dict.fromkeys(known))
    visible = [str(candidate.uids[0]) for candidate in shown]
    key = f"{page}_table_{crc32(_SEPARATOR.join(visible).encode()):08x}"
    if given != st.session_state.get(seen) or key not in st.session_state:
        places = [visible.index(uid) for uid in wanted if uid in visible]
        st.session_state[key] = {"selection": {"rows": places, "columns": [], "cells": []}}
    picked = [visible[place] for place in _table(frame, columns, key)] if shown else []
    selected = [*picked, *(uid for uid in wanted if uid not in visible)]
    _store(parameter, seen, _SEPARATOR.join(selected))
    return [by_uid[uid] for uid in selected]


def _table(frame: pl.DataFrame, columns: Columns, key: str) -> list[int]:
    """Draw the rows; return the indices of the selected ones."""
    event = st.dataframe(
        frame,
        key=key,
        hide_index=True,
        height=min(_TABLE_PX, (frame.height + 1) * _ROW_PX + 3),
        column_config={
            name: configured(columns[name], frame.schema[name], _WIDTHS.get(name))
            for name in frame.columns
        },
        on_select="rerun",
        selection_mode="multi-row",
        placeholder=MISSING,
        alt="Operators by their kernel time, and whether their calls can be packaged",
    )
    return sorted(event["selection"]["rows"])


def _store(parameter: str, seen: str, selected: str) -> None:
    """Write the selection into the URL and the page's link."""
    if selected:
        st.query_params[parameter] = selected
    else:
        st.query_params.pop(parameter, None)
    st.session_state[seen] = selected or None
    note_control(parameter, selected)
