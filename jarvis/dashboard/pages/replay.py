"""The replay page: operators of the open analysis, and a replay package of the selected ones."""

from collections.abc import Mapping, Sequence
from zlib import crc32

import polars as pl
import streamlit as st

from jarvis.charts import Columns, columns_of, with_short_names
from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.links import note_control, notice
from jarvis.dashboard.session.state import Opened, load_stored
from jarvis.dashboard.widgets.controls import choice, text_input
from jarvis.dashboard.widgets.elements import metric_card
from jarvis.dashboard.widgets.replay_section import replay_section
from jarvis.dashboard.widgets.table import (
    configured,
    cut_to_width,
    height_of,
    in_readable_units,
    valued,
    without_pale_texts,
)
from jarvis.dashboard.widgets.window import extra_px
from jarvis.impact import BOTTLENECK_EFFICIENCY_PCT, share_pct
from jarvis.replay import ReplayCandidate, automatic_operators, replay_candidates
from jarvis.replay.package import automatic_rule
from jarvis.schemas import NUMBER, TEXT, Column
from jarvis.schemas.names import C
from jarvis.text.format import MISSING, count, counted, milliseconds, percent, quoted
from jarvis.text.markdown import escape

_SEPARATOR = "-"
_MAX_ROWS = 12
_WIDTHS = {
    "op_name": 215,
    "package": 95,
    C.percent_of_compute: 88,
    C.time_ms: 75,
    C.efficiency_pct: 92,
    "packaged_pct": 88,
    C.calls: 48,
    "distinct_calls": 90,
}
"""Widths in pixels that show all columns in a window of 1280 pixels."""


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
    frame, columns = in_readable_units(frame[valued(frame, frame.columns)], columns)
    name_px = _WIDTHS["op_name"] + extra_px() // len(_WIDTHS)
    frame = frame.with_columns(cut_to_width(frame["op_name"], name_px))
    event = st.dataframe(
        without_pale_texts(frame),
        key=key,
        hide_index=True,
        height=height_of(frame.height, _MAX_ROWS),
        column_config={
            name: configured(columns[name], frame[name], _WIDTHS.get(name))
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


_PAGE = "replay"
_ALL, _PACKAGED, _REFUSED = "all", "can be packaged", "cannot"
_MADE, _RECOMMENDED, _ON_DEMAND, _NONE = "made", "recommended", "on demand", "none"
_PACKAGE_MEANINGS = {
    _MADE: f"*{_MADE}*: takes {automatic_rule()} and has a package already",
    _RECOMMENDED: f"*{_RECOMMENDED}*: below {BOTTLENECK_EFFICIENCY_PCT:g}% of the roofline",
    _ON_DEMAND: f"*{_ON_DEMAND}*: any other that can be packaged",
    _NONE: f"*{_NONE}*: cannot be replayed",
}
_COLUMNS = columns_of(
    (
        Column("op_name", "Operator", TEXT, meaning="operator whose calls are replayed"),
        Column("package", "Package", TEXT, meaning="; ".join(_PACKAGE_MEANINGS.values())),
        Column(C.percent_of_compute, "Compute (%)", NUMBER, "%", ",.1f", "share of compute time"),
        Column(
            *(C.time_ms, "Time (ms)", NUMBER, "ms", ",.3f"),
            "time of its kernels, and of those of the operators that it calls",
        ),
        Column(C.efficiency_pct, "Efficiency (%)", NUMBER, "%", ",.1f", "share of the roofline"),
        Column(
            "packaged_pct",
            "Packaged (%)",
            NUMBER,
            "%",
            ",.1f",
            "kernel time of calls in packages",
        ),
        Column(C.calls, "Calls", pl.Int64(), format=",d", meaning="calls in the trace"),
        Column(
            "distinct_calls",
            "Distinct calls",
            pl.Int64(),
            format=",d",
            meaning="sets of arguments in a package, each once with its count",
        ),
    )
)


def replay_page(now: Opened) -> None:
    """Draw metrics, the table of operators, and the package of the selected ones."""
    candidates = _candidates(now.id, now.stamp)
    if not candidates:
        st.info("No operator of this trace has GPU time, so there is nothing to replay.")
        navigation.link(navigation.OVERVIEW, "Overview", icon=":material/dashboard:")
        return
    st.caption(
        "A replay package has the recorded calls of operators and a program that times them: a "
        "minimal reproducer for a kernel team. It needs Python and torch, but neither this GPU nor "
        "the model's code."
    )
    _metric_cards(candidates)
    shown = _filtered(candidates)
    if not shown:
        st.info("No operator passes the filters: show all, or clear the search.")
    names = _names(candidates)
    frame = _frame(now, shown, names)
    chosen = chosen_candidates(_PAGE, candidates, shown, frame, _COLUMNS)
    _legend(shown, set(frame["package"]), names)
    st.subheader("Package of the selection")
    if not any(candidate.distinct_calls for candidate in candidates):
        st.info(
            "None of these calls can be replayed; the table shows why. Often "
            "the trace lacks arguments: record it with `ProfilerActivity.CPU` and "
            "`record_shapes=True`."
        )
    elif not chosen:
        st.info("Select operators in the table to package their calls.")
    else:
        replay_section(now, [uid for candidate in chosen for uid in candidate.uids], page=_PAGE)


@st.cache_resource(max_entries=8, show_spinner=False)
def _candidates(analysis_id: str, stamp: int) -> list[ReplayCandidate]:
    """Return the candidates of an analysis; ``stamp`` detects a replaced one."""
    return replay_candidates(load_stored(analysis_id).run)


def _metric_cards(candidates: Sequence[ReplayCandidate]) -> None:
    total_us = sum(candidate.kernel_time_us for candidate in candidates)
    packaged_us = sum(candidate.packaged_time_us for candidate in candidates)
    whole = [candidate for candidate in candidates if candidate.distinct_calls]
    slow = [candidate for candidate in whole if candidate.is_recommended]
    slow_us = sum(candidate.kernel_time_us for candidate in slow)
    places = st.columns(3)
    with places[0]:
        metric_card(
            "Kernel time that can be replayed",
            percent(share_pct(packaged_us, total_us)),
            f"{milliseconds(packaged_us / 1000)} of {milliseconds(total_us / 1000)}, without "
            "communication",
            help_text="Kernel time of the calls with recorded arguments and known operators, and "
            "of all operators that compute or copy. Communication cannot be replayed.",
        )
    with places[1]:
        metric_card(
            "Operators",
            f"{count(len(whole))} of {count(len(candidates))}",
            "can be packaged",
            help_text="Operators with at least one call that can be replayed.",
        )
    with places[2]:
        metric_card(
            f"Below {BOTTLENECK_EFFICIENCY_PCT:g}% of the roofline",
            count(len(slow)),
            f"of {count(len(whole))}, {milliseconds(slow_us / 1000)} kernel time",
            help_text="Operators recommended for optimization.",
        )


def _legend(shown: Sequence[ReplayCandidate], states: set[str], names: Mapping[str, str]) -> None:
    """Draw what the words of the table mean, and why operators are not packaged."""
    meanings = [text for state, text in _PACKAGE_MEANINGS.items() if state in states]
    st.caption(f"{counted(len(shown), 'operator')}. {'; '.join(meanings)}.")
    refused: dict[str, list[str]] = {}
    for candidate in shown:
        if candidate.reason:
            refused.setdefault(candidate.reason, []).append(quoted(names[candidate.op_name]))
    if refused:
        lines = (f"- {', '.join(each)}: {escape(why)}" for why, each in refused.items())
        with st.expander(
            f"Not packaged, or only in part: {counted(sum(map(len, refused.values())), 'operator')}"
        ):
            st.markdown("\n".join(lines))


def _filtered(candidates: Sequence[ReplayCandidate]) -> list[ReplayCandidate]:
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        with st.container(width="content"):
            kind = choice(
                f"{_PAGE}_show",
                "Show",
                (_ALL, _PACKAGED, _REFUSED),
                "Operators with calls that can be packaged, or those without any.",
            )
        with st.container(width=280):
            search = text_input(f"{_PAGE}_search", "Search", "operator or reason").lower()
    return [
        candidate
        for candidate in candidates
        if (kind == _ALL or (kind == _PACKAGED) == bool(candidate.distinct_calls))
        and (search in candidate.op_name.lower() or search in (candidate.reason or "").lower())
    ]


def _names(candidates: Sequence[ReplayCandidate]) -> Mapping[str, str]:
    """Return a different short name for each operator."""
    names = pl.DataFrame({C.name: [candidate.op_name for candidate in candidates]})
    rows = with_short_names(names.with_columns(shapes=pl.lit(None, pl.String)), "shapes")
    return dict(rows.select(C.name, "short_name").iter_rows())


def _frame(now: Opened, shown: Sequence[ReplayCandidate], names: Mapping[str, str]) -> pl.DataFrame:
    automatic = automatic_operators(now.run)
    rows = [
        {
            "op_name": names[candidate.op_name],
            C.percent_of_compute: candidate.percent_of_compute or None,  # copies are no compute
            C.time_ms: candidate.kernel_time_us / 1000,
            C.efficiency_pct: candidate.efficiency_pct,
            C.calls: candidate.calls,
            "distinct_calls": candidate.distinct_calls,
            "packaged_pct": candidate.packaged_pct,
            "package": _package_state(candidate, is_automatic=candidate.op_name in automatic),
        }
        for candidate in shown
    ]
    return pl.DataFrame(rows, schema={name: column.dtype for name, column in _COLUMNS.items()})


def _package_state(candidate: ReplayCandidate, *, is_automatic: bool) -> str:
    if not candidate.distinct_calls:
        return _NONE
    if is_automatic:
        return _MADE
    return _RECOMMENDED if candidate.is_recommended else _ON_DEMAND
