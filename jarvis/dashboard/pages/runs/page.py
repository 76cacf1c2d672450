"""The runs page: table of the stored analyses, actions on the selected ones, and trend."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from zlib import crc32

import polars as pl
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from jarvis.charts import columns_of
from jarvis.dashboard.pages.runs.categories import categories_table
from jarvis.dashboard.pages.runs.filters import PAGE, SELECTED, clear, filters
from jarvis.dashboard.pages.runs.labels import label_form
from jarvis.dashboard.pages.runs.rows import (
    BASIS,
    BRANCH,
    BUSY,
    COLUMNS,
    COMMIT,
    CREATED,
    FINDING,
    FINDING_CATEGORY,
    GPU,
    ID,
    MODEL,
    ORIGIN,
    OWNER,
    PROJECT,
    RANK,
    SOURCE,
    TAGS,
    TIME,
    TRACE,
    RunRow,
    frame_of,
    run_rows,
)
from jarvis.dashboard.pages.runs.trend import trend_card
from jarvis.dashboard.session import links, navigation
from jarvis.dashboard.session.current_user import visible_catalog
from jarvis.dashboard.session.links import REFERENCE, note_control, notice
from jarvis.dashboard.widgets.controls import choice
from jarvis.dashboard.widgets.table import (
    configured,
    follow_cell,
    height_of,
    moment_column,
    without_pale_texts,
)
from jarvis.run import Basis
from jarvis.server.settings import settings
from jarvis.text.format import MISSING, counted
from jarvis.text.markdown import escape

_SEEN, IS_CLICK = "_runs_selected_seen", "_runs_clicked"
_ONE_ROW, _EACH_RANK = "one row", "each rank"
_SHOWN = (MODEL, RANK, GPU, TIME, BASIS, BUSY, FINDING, PROJECT, BRANCH, COMMIT, TAGS)
_LABELS = {PROJECT, BRANCH, COMMIT, TAGS}
_LAST = (FINDING_CATEGORY, CREATED, BASIS, OWNER, TRACE, ORIGIN, SOURCE, ID)
_WIDTHS = {
    MODEL: 120,
    RANK: 65,
    GPU: 75,
    TIME: 95,
    BASIS: 75,
    BUSY: 85,
    FINDING: 210,
    PROJECT: 85,
    BRANCH: 75,
    COMMIT: 70,
    TAGS: 90,
}
"""Widths in pixels, so that the columns up to the tags are visible in a window of 1440 pixels."""

_UNLABELED = (MODEL, TRACE, RANK, GPU, TIME, BUSY, FINDING, CREATED)
_UNLABELED_WIDTHS = {
    MODEL: 118,
    TRACE: 140,
    RANK: 56,
    GPU: 94,
    TIME: 84,
    BUSY: 80,
    FINDING: 182,
    CREATED: 108,
}
"""First columns where no run has labels, and widths that show them in a window of 1280 pixels."""

_MAX_ROWS = 8
_ROW_PX = 58
"""Height of a row in pixels: Streamlit wraps long names and findings from 4 rem (56 px) on."""

_MAX_SHOWN_IDS = 5


def render() -> None:
    """Draw the page."""
    catalog = visible_catalog()
    rows = {row.id: row for row in run_rows(catalog)}
    if catalog.broken:
        st.warning(
            f"{counted(len(catalog.broken), 'run directory')} cannot be read (incompatible version "
            f"or damaged): {', '.join(map(escape, catalog.broken[:_MAX_SHOWN_IDS]))}. Analyze "
            "their traces again.",
            icon=":material/folder_off:",
        )
    if not rows:
        st.info("No runs yet. Analyze a trace, or try the sample.", icon=":material/inbox:")
        navigation.link(navigation.INGEST, "Analyze a trace", icon=":material/upload_file:")
        return
    _newest(next(iter(rows.values())))
    has_ranks = bool(catalog.distributed) and _has_ranks()
    every = frame_of(row for row in rows.values() if has_ranks or row.rank is None)
    shown = filters(every).chosen(every)
    if shown.is_empty():
        st.info(
            f"None of the {counted(every.height, 'run')} passes the filters.",
            icon=":material/filter_alt_off:",
        )
        st.button("Clear filters", icon=":material/filter_alt_off:", on_click=clear)
        return
    selected = _table(shown, rows, every.height)
    _actions([rows[each] for each in selected], shown)
    if len(selected) > 1:
        categories_table([rows[each] for each in selected])
    trend_card([rows[each] for each in shown[ID] if rows[each].rank is None])


def _has_ranks() -> bool:
    """Draw the choice whether the ranks of distributed runs are rows of their own."""
    shown = choice(
        f"{PAGE}_ranks",
        "Distributed runs",
        (_ONE_ROW, _EACH_RANK),
        "One row has the times of the rank with the median step time. Rows of ranks are not in "
        "trends, because the ranks ran at the same time.",
    )
    return shown == _EACH_RANK


def _newest(row: RunRow) -> None:
    """Draw the link to the overview of the newest run, and to a new one."""
    with st.container(horizontal=True):
        _first_page(row, f"**Newest run: {escape(row.headline)}**")
        navigation.link(navigation.INGEST, "Analyze a trace", icon=":material/upload_file:")


def _first_page(row: RunRow, label: str) -> None:
    """Draw the link to the overview of an analysis, or to *Ranks* of a distributed run."""
    if row.distributed is not None:
        navigation.link(navigation.RANKS, label, icon=":material/lan:", ranks_run=row.id)
    else:
        of_run = {links.ANALYSIS: row.id}
        navigation.link(navigation.OVERVIEW, label, icon=":material/dashboard:", **of_run)


def _table(shown: pl.DataFrame, rows: dict[str, RunRow], count: int) -> list[str]:
    """Draw the table and return the ids of the selected runs, also those that filters hide."""
    ids = shown[ID].to_list()
    st.caption(
        f"{len(ids)} of {counted(count, 'run')}, newest first. Click a cell to open its run; tick "
        "the box at the left of a row to select it."
    )
    given, seen = st.query_params.get(SELECTED), st.session_state.get(_SEEN)
    if st.session_state.pop(IS_CLICK, False):
        given = seen  # the URL can be that of before the click before this one
    is_new = given != seen
    chosen = [each for each in (given or "").split(",") if each in rows]
    if is_new and given and len(chosen) < len(given.split(",")):
        notice("Some selected runs of the link are not on this server.")
    key = table_key(ids)
    if is_new or key not in st.session_state:
        places = [place for place, each in enumerate(ids) if each in chosen]
        st.session_state[key] = {"selection": {"rows": places, "columns": [], "cells": []}}
    names = _columns(shown)
    if TRACE in names and RANK in names and all(rows[each].rank is None for each in ids):
        names.remove(RANK)  # the trace of a distributed run is its ranks
    widths = _WIDTHS if _LABELS & {*names} else _WIDTHS | _UNLABELED_WIDTHS
    event = st.dataframe(
        without_pale_texts(
            shown.with_columns(pl.Series(GPU, [rows[each].gpu_and_preset for each in ids]))
            .with_columns(_short_gpus(), _short_traces())
            .select(names)
        ),
        key=key,
        hide_index=True,
        height=height_of(shown.height, _MAX_ROWS, _ROW_PX),
        row_height=_ROW_PX,
        column_config={name: _configured(name, shown, widths) for name in names},
        on_select=partial(_follow_click, key, [rows[each].address for each in ids]),
        selection_mode=["multi-row", "single-cell"],
        placeholder=MISSING,
        alt="Runs with their times, top findings and labels",
    )
    picked = {ids[place] for place in event["selection"]["rows"]}
    hidden = {each for each in chosen if each not in ids}
    selected = [each for each in rows if each in picked | hidden]
    _keep(selected)
    return selected


def table_key(ids: Sequence[str]) -> str:
    """Return a widget key that differs by the rows shown, as the browser selects by index."""
    return f"{PAGE}_table_{crc32(','.join(ids).encode()):08x}"


def _short_gpus() -> pl.Expr:
    """Return the names of GPUs without their vendor: MI300X."""
    return pl.col(GPU).str.replace(r"^(AMD Instinct|AMD Radeon|NVIDIA) ", "")


def _short_traces() -> pl.Expr:
    """Return the names of traces as in the choice of the analysis: without their suffix."""
    return pl.col(TRACE).str.replace(r"\.json(\.gz)?$", "")


def _follow_click(key: str, addresses: Sequence[str]) -> None:
    """Open the run whose row was clicked; a click on a box selects it."""
    follow_cell(key, addresses)
    st.session_state[IS_CLICK] = True


def _keep(selected: Sequence[str]) -> None:
    text = ",".join(selected)
    if text:
        st.query_params[SELECTED] = text
    else:
        st.query_params.pop(SELECTED, None)
    st.session_state[_SEEN] = text or None
    note_control(SELECTED, text)


def _clear_selection() -> None:
    st.query_params.pop(SELECTED, None)


def _columns(shown: pl.DataFrame) -> list[str]:
    """Return the columns to show, without those that have no or only the usual values."""
    hidden = {name for name in shown.columns if shown[name].null_count() == shown.height}
    if (shown[TAGS].list.len() == 0).all():
        hidden.add(TAGS)
    if (shown[BASIS] == Basis.STEP.value).all():
        hidden.add(BASIS)
    if settings().access == "off":
        hidden.add(OWNER)
    if all(trace.startswith(model) for trace, model in shown.select(TRACE, MODEL).rows()):
        hidden.add(TRACE)
    first = _UNLABELED if hidden >= _LABELS else _SHOWN
    return [name for name in dict.fromkeys((*first, *_LAST)) if name not in hidden]


def _configured(name: str, shown: pl.DataFrame, widths: Mapping[str, int]) -> ColumnConfig:
    if name == CREATED:
        return moment_column("Analyzed", "Time of the analysis", width=widths.get(name))
    column = columns_of(COLUMNS)[name]
    if name == TIME and (shown[BASIS] != Basis.STEP.value).any():
        column = replace(column, label="Time (ms)")  # of what, says another column
    if name == TAGS:
        return st.column_config.ListColumn(column.label, width=widths[name], help=column.meaning)
    return configured(column, shown[name], widths.get(name))


def _actions(selected: Sequence[RunRow], shown: pl.DataFrame) -> None:
    """Draw what can be done with the selected runs."""
    if not selected:
        st.caption(
            "Select a run to label it, two to compare them, several for a table of categories."
        )
        return
    hidden = sum(row.id not in shown[ID] for row in selected)
    with st.container(horizontal=True, vertical_alignment="center"):
        also = f" ({hidden} hidden by the filters)" if hidden else ""
        st.markdown(f"**{counted(len(selected), 'run')} selected**{also}", width="content")
        if len(selected) == 1:
            is_one = selected[0].distributed is None
            _first_page(selected[0], "Open the overview" if is_one else "Open the ranks")
        if len(selected) == 2:
            newer, older = selected
            navigation.link(
                navigation.COMPARE,
                "Compare the newer with the older",
                icon=":material/compare_arrows:",
                **{links.ANALYSIS: newer.entry.id, REFERENCE: older.entry.id},
            )
        label_form(selected)
        st.button("Clear selection", icon=":material/close:", on_click=_clear_selection)
