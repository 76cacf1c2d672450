"""The table of operations of a category, and the details of the selected one."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from zlib import crc32

import polars as pl
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from jarvis import impact
from jarvis.analyses.base import Analysis
from jarvis.charts import LIGHT, STATES, Columns, columns_of, largest
from jarvis.charts.palette import NOT_AVAILABLE
from jarvis.dashboard.pages.call_tree.choice import places_link
from jarvis.dashboard.pages.category.step_time import in_the_step
from jarvis.dashboard.pages.timeline.event import example_link
from jarvis.dashboard.session import selection
from jarvis.dashboard.session.state import HASH_OPENED, Opened, timeline_of
from jarvis.dashboard.widgets import row_order
from jarvis.dashboard.widgets.projection import operation_columns
from jarvis.dashboard.widgets.replay_section import replay_button
from jarvis.dashboard.widgets.table import (
    configured,
    height_of,
    in_readable_units,
    small_table,
    with_short_texts,
)
from jarvis.impact import marked_efficiency
from jarvis.perf_report import CallPath, Totals
from jarvis.schemas import FLAG, NAMES, NUMBER, TEXT, Column
from jarvis.schemas.names import C
from jarvis.simulation.of_rows import NEGLIGIBLE_PCT
from jarvis.text.format import MISSING, count, counted, milliseconds, percent
from jarvis.text.markdown import code, escape
from jarvis.text.shapes import call_shapes
from jarvis.text.short_names import short_kernel_name, short_operation_name

_ARGUMENTS = (C.input_dims, C.input_types, C.input_strides, C.concrete_inputs)
_FACTS = (
    C.op_category,
    C.direction,
    C.model_origin,
    C.compute,
    C.roofline_note,
    C.entry_point,
    C.thread_name,
)
_GROUP_COLUMNS = columns_of(
    (
        Column(C.count, "Calls", pl.Int64(), format=",d", meaning="calls of the group"),
        Column(C.total_us, "Total (µs)", NUMBER, "µs", ",.1f", "sum over its calls"),
        Column(C.mean_us, "Mean (µs)", NUMBER, "µs", ",.2f", "mean call"),
        Column(C.min_us, "Min (µs)", NUMBER, "µs", ",.2f", "shortest call"),
        Column(C.max_us, "Max (µs)", NUMBER, "µs", ",.2f", "longest call"),
        Column(C.is_outlier, "Outlier", FLAG, meaning="too few calls for a group of their own"),
        Column(C.kernel, "Kernel", TEXT, meaning="longest kernel, if only these calls have it"),
        Column(C.modules, "Modules", NAMES, meaning="modules that only these calls run in"),
    )
)
_GROUP_WIDTHS = {C.count: 60, C.is_outlier: 60, C.kernel: 150} | dict.fromkeys(
    (C.total_us, C.mean_us, C.min_us, C.max_us), 80
)
_KERNEL_COLUMNS = columns_of(
    (
        Column(C.name, "Kernel", TEXT, meaning="name of the kernel, copy or fill"),
        Column(C.count, "Count", pl.Int64(), format=",d", meaning="launches in all calls"),
        Column(C.total_us, "Total (µs)", NUMBER, "µs", ",.1f", "sum over all calls"),
        Column(C.mean_us, "Mean (µs)", NUMBER, "µs", ",.2f", "mean launch"),
        Column(C.min_us, "Min (µs)", NUMBER, "µs", ",.2f", "shortest launch"),
        Column(C.max_us, "Max (µs)", NUMBER, "µs", ",.2f", "longest launch"),
        Column(C.stream, "Stream", pl.Int64(), meaning="stream index"),
    )
)
_KERNEL_WIDTHS = {"name": 190, "count": 60} | dict.fromkeys(
    (C.total_us, C.mean_us, C.min_us, C.max_us), 80
)
_PROJECTION_COLUMNS = columns_of(
    (
        Column("target_pct", "Target (%)", NUMBER, "%", ",.0f", "share of the roofline reached"),
        Column(C.time_ms, "Time (ms)", NUMBER, "ms", ",.3f", "time at that efficiency"),
        Column("saved_ms", "Saving (ms)", NUMBER, "ms", ",.3f", "current time - time"),
        Column("op_improvement_pct", "Of op (%)", NUMBER, "%", ",.1f", "saving / time"),
        Column("compute_pct", "Compute (%)", NUMBER, "%", ",.2f", "saving / compute time"),
        Column("e2e_pct", "GPU window (%)", NUMBER, "%", ",.2f", "saving / GPU window"),
    )
)
_TREE_LINES = 60


def operation_details(
    page: str, now: Opened, row: dict[str, Any], path: CallPath | None, target_pct: float
) -> None:
    """Draw the details of an operation.

    Args:
        page: Key of the category.
        now: The open run.
        row: Row of ``operations`` with the category's columns, and ``state``.
        path: Its call path, if the run has it.
        target_pct: Target efficiency in percent.
    """
    columns = operation_columns()
    with st.container(border=True):
        with st.container(horizontal=True, horizontal_alignment="distribute"):
            st.subheader(escape(short_operation_name(row[C.name])), width="stretch")
            st.button(
                "Close details",
                key=f"{page}_close",
                icon=":material/close:",
                on_click=selection.close,
                args=(page,),
            )
        st.markdown(f"{code(row[C.name])} {escape(row['arguments'] or '')}")
        st.caption(
            f"{counted(row[C.operation_count], 'call')} · {_time(row[C.kernel_time_us])} "
            f"kernel time, {percent(row[C.percent_of_compute])} of compute · host "
            f"{_time(row[C.host_time_us])} · "
            f"efficiency {marked_efficiency(row[C.pct_roofline])}"
            + (f" · {row[C.bound]} bound" if row[C.bound] else "")
        )
        example_link(timeline_of(now), row)
        places_link(now.run, row[C.uid])
        replay_button(now.run, row[C.uid], page="operation")
        left, right = st.columns(2)
        with left:
            in_the_step(now, row, target_pct)
            _projections(row, target_pct, now.run.manifest.totals)
            _arguments(row, columns)
        with right:
            _call_groups(row.get(C.populations) or [])
            _kernels(row[C.kernels] or [])
            _call_path(row, path)
        with st.expander("All fields as JSON", icon=":material/data_object:"):
            st.json(_plain(row), expanded=1)


def _time(time_us: float | None) -> str:
    return milliseconds(None if time_us is None else time_us / 1000)


def _projections(row: dict[str, Any], target_pct: float, totals: Totals) -> None:
    st.markdown("**Kernel time at higher efficiency**")
    now = row[C.pct_roofline]
    if now is None or impact.is_anomaly(now):
        st.caption(escape(row[C.roofline_note] or "No plausible efficiency, so no projection."))
        return
    table = pl.DataFrame(
        impact.projection_table(
            row[C.kernel_time_us] / 1000,
            now,
            target_pct,
            compute_ms=totals.compute_time_ms,
            total_ms=totals.total_time_ms,
        )
    )
    widths = dict.fromkeys(_PROJECTION_COLUMNS, 80)
    small_table(table, _PROJECTION_COLUMNS, "Savings at several targets", widths=widths)


def _arguments(row: dict[str, Any], columns: Columns) -> None:
    st.markdown("**Arguments**")
    facts = {
        columns[name].label: str(row[name])
        for name in (*_ARGUMENTS, *_FACTS)
        if row.get(name) not in (None, "")
    }
    parameters = json.loads(row[C.params]) if row[C.params] else {}
    facts |= {f"param: {name}": str(value) for name, value in parameters.items()}
    st.table(
        pl.DataFrame({"Name": list(facts), "Value": [f"{code(v)}" for v in facts.values()]}),
        hide_index=True,
        hide_header=True,
        border="horizontal",
        alt="Arguments of the operation and facts about it",
    )


def _call_groups(groups: list[dict[str, Any]]) -> None:
    """Draw the groups of calls whose times lie apart, if there are several."""
    if not groups:
        return
    st.markdown(f"**Groups of calls** ({count(len(groups))} by kernel time)")
    frame = pl.DataFrame(groups, infer_schema_length=None)
    names = [
        n
        for n in _GROUP_COLUMNS
        if n not in (C.is_outlier, C.kernel, C.modules) or any(g[n] for g in groups)
    ]
    small_table(frame, _GROUP_COLUMNS, "Groups of calls", names, _GROUP_WIDTHS)


def _kernels(kernels: list[dict[str, Any]]) -> None:
    st.markdown(f"**GPU kernels** ({count(len(kernels))} by name and stream)")
    if not kernels:
        st.caption("The calls launched no kernels directly.")
        return
    frame = pl.DataFrame(kernels)
    small_table(frame, _KERNEL_COLUMNS, "Kernels of the operation", widths=_KERNEL_WIDTHS)


def _call_path(row: dict[str, Any], path: CallPath | None) -> None:
    st.markdown("**Call path**")
    if path is not None:
        parents = path.parent_chain
        entries = [*enumerate(frame.name for frame in parents)]
        entries += [(len(parents) + entry.depth, _entry(entry)) for entry in path.subtree]
        lines = [f"{'  ' * depth}{text}" for depth, text in entries[:_TREE_LINES]]
        if (hidden := len(entries) - _TREE_LINES) > 0:
            lines.append(f"… {hidden} more")
        st.code("\n".join(lines), language=None, height=320 if len(entries) > 16 else "content")
    elif row[C.module_path]:
        modules = row[C.module_path]
        st.code("\n".join(f"{'  ' * n}{name}" for n, name in enumerate(modules)), language=None)
    elif row[C.entry_point]:
        st.code(row[C.entry_point], language=None)
    else:
        st.caption("The trace has no Python stacks; record it with `with_stack=True`.")


def _entry(entry: Any) -> str:
    kernel = f" → {entry.kernel} ({_time(entry.kernel_dur_us)})" if entry.kernel else ""
    return f"{entry.name}{kernel}"


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row without the state, which only the table needs."""
    return {name: value for name, value in row.items() if name != "state"}


DEFAULT_ORDER = C.kernel_time_us
"""Default sort column."""

_ROWS = 11
"""Rows in view; the others of a page are scrolled."""

_FIRST = (
    C.name,
    "arguments",
    C.kernel_time_us,
    C.percent_of_category,
    C.pct_roofline,
    C.saved_step_us,
    "state",
)
_RATES = (
    C.saved_us,
    C.operation_count,
    C.bound,
    C.tflops_per_s,
    C.tb_per_s,
    "call_times",
)
_LAST = (
    "call_times",
    C.flops_per_byte,
    C.compute,
    "library",
    C.called_from,
    C.main_kernel,
    C.percent_of_compute,
)
_WIDTHS = {
    C.kernel_time_us: 112,
    C.percent_of_category: 85,
    C.pct_roofline: 85,
    C.saved_step_us: 105,
    "state": 108,
    C.saved_us: 125,
    C.operation_count: 62,
    C.bound: 75,
}
"""Widths in pixels, to keep the first columns visible in a window of 1280 pixels."""

_NAME_PX, _NAME_AND_SHAPES_PX, _CHARACTER_PX = 175, 310, 6.6
"""Maximum width of names where rows have shapes, the width of both, and of a character. Shapes that
need more also have the width of the state, which is then scrolled."""

_TEXTS = columns_of(
    (
        Column(
            C.name,
            "Operation",
            TEXT,
            meaning="operator or kernel; #2 is a further row of the same name and shapes: the "
            "details of the rows show how they differ: in strides, types, values or the thread",
        ),
        Column(
            "arguments",
            "Shapes",
            TEXT,
            meaning="sides M, N and K of a matrix product, else the shape of each tensor argument",
        ),
    )
)

_STEP_SAVING = columns_of(
    (
        Column(
            C.saved_step_us,
            "Step saving (µs)",
            NUMBER,
            "µs",
            ",.1f",
            "what a step gains (mean of the steps) if only this operation reaches the target "
            "efficiency; missing if its kernels get shorter by less than "
            f"{NEGLIGIBLE_PCT:g}% of the steps, or without a reliable efficiency",
        ),
    )
)
"""Per step; the table ``operations`` has the saving of all steps."""

_MAX_CACHED = 256

_BADGE_COLORS = (LIGHT.below_threshold, "yellow", "blue", "violet", "gray")
"""Colors of STATES: one strong color, dark enough for white text in both themes, and pale Streamlit
colors."""


def shown_columns(analysis: Analysis, rows: pl.DataFrame) -> list[str]:
    """Return the columns of the table in order, without columns that have no values."""
    own = [column.name for column in analysis.details]
    names = dict.fromkeys([*_FIRST, *_RATES, *own, *_LAST])
    has_states = "state" in rows.columns and (rows["state"] != NOT_AVAILABLE).any()
    return [
        name
        for name in names
        if name in rows.columns
        and rows[name].null_count() < rows.height
        and (name != "state" or has_states)
    ]


def metrics_table(
    analysis: Analysis,
    now: Opened,
    rows: pl.DataFrame,
    filter_id: str,
    uid: int | None,
    *,
    is_new: bool,
    about: str,
) -> None:
    """Draw a page of the table, with the row of an operation selected.

    Args:
        analysis: The category.
        now: The open analysis.
        rows: Operations from ``projection.with_projection``, longest first.
        filter_id: Key of the filters; if they change, the first page is shown.
        uid: The selected operation; ``selection.follow_table`` selects that which a user picks. It
            stays selected on other pages of the table and with all filters that it passes.
        is_new: Whether the page of the operation is shown.
        about: Caption above the table, before its order.
    """
    page = analysis.key
    shown_rows = (now, page, filter_id, now.below_pct)
    names = _names(*shown_rows, rows)
    columns = {**operation_columns(analysis), **_TEXTS, **_STEP_SAVING}
    with st.container(horizontal=True, vertical_alignment="center"):
        scrolled = f" · the first {_ROWS} in view" if rows.height > _ROWS else ""
        st.caption(f"{about}{scrolled}", width="content")
        labels = {name: columns[name].label for name in names if name != "state"}
        order = row_order.order_of(page, labels, DEFAULT_ORDER)
        shown_by = f"{filter_id}-{order.column}-{order.direction}"
        wanted = _ordered(rows, order)[C.uid].index_of(uid) if is_new and uid is not None else None
        number = row_order.page_number(page, rows.height, shown_by, wanted)
    part = _part(*shown_rows, order.column, order.direction, number, rows)
    key = f"{page}_table_{shown_by}-{part.rows_id}"
    if is_new or key not in st.session_state:
        place = part.uids.index(uid) if uid in part.uids else None
        st.session_state[key] = selection.table_state(place)
    st.dataframe(
        part.data,
        key=key,
        hide_index=True,
        height=height_of(len(part.uids), _ROWS),
        column_order=names,
        column_config=part.config,
        on_select=partial(_sort_by_header, page, key, part.schema),
        selection_mode=["single-row", "single-column"],
        placeholder=MISSING,
        alt=f"Operations of {analysis.title} with times, rates, efficiency and saving",
    )
    selection.note_table(page, key, part.uids)
    selection.keep(page, uid)


@dataclass(frozen=True, slots=True)
class _Part:
    """A page of the table as Streamlit draws it; ``data`` is an Arrow table.

    ``rows_id`` differs by the rows, as the browser selects by index.
    """

    data: Any
    config: Mapping[str, ColumnConfig]
    schema: pl.Schema
    uids: list[int]
    rows_id: str


# The rows of the cached functions depend on the parameters before them.
@st.cache_resource(max_entries=_MAX_CACHED, show_spinner=False, hash_funcs=HASH_OPENED)
def _names(
    now: Opened, key: str, filter_id: str, below_pct: float, _rows: pl.DataFrame
) -> list[str]:
    return shown_columns(now.run.analyses[key], _rows)


@st.cache_resource(max_entries=_MAX_CACHED, show_spinner=False, hash_funcs=HASH_OPENED)
def _part(
    now: Opened,
    key: str,
    filter_id: str,
    below_pct: float,
    column: str,
    direction: str,
    number: int,
    _rows: pl.DataFrame,
) -> _Part:
    """Return a page of the rows in an order."""
    analysis, order = now.run.analyses[key], row_order.RowOrder(column, direction)
    part = _rows[row_order.page_of(_ordered(_rows, order), number)[C.place]]
    known = {**operation_columns(analysis), **_TEXTS, **_STEP_SAVING}
    shown, columns = in_readable_units(_readable(part), known, _rows)
    names = shown_columns(analysis, _rows)
    widths = _WIDTHS | _text_widths(shown, has_shapes="arguments" in names)
    uids = part[C.uid]
    return _Part(
        # Streamlit draws lists as badges, and would convert a frame to pandas.
        shown.select(
            pl.concat_list(name) if name == "state" else pl.col(name) for name in names
        ).to_arrow(),
        {
            name: _configuration(order.label(columns[name]), shown[name], widths.get(name))
            for name in names
        },
        part.schema,
        uids.to_list(),
        f"{crc32(uids.to_numpy().tobytes()):08x}",
    )


def _ordered(rows: pl.DataFrame, order: row_order.RowOrder) -> pl.DataFrame:
    """Return uid and index of the rows in an order."""
    # Sort only two columns and an index, as sorting copies and a page needs few of the rows.
    return order.sorted(rows.select(C.uid, order.column).with_row_index(C.place))


def _text_widths(shown: pl.DataFrame, *, has_shapes: bool) -> dict[str, int]:
    """Return the widths of names and shapes in pixels."""
    if not has_shapes:
        return {C.name: 270}
    longest = (largest(shown[name].str.len_chars()) for name in (C.name, "arguments"))
    name_px, shapes_px = (int(_CHARACTER_PX * length) + 20 for length in longest)
    name_px = min(max(name_px, 90), _NAME_PX)
    room_px = _NAME_AND_SHAPES_PX - name_px
    return {C.name: name_px, "arguments": room_px + _WIDTHS["state"] * (shapes_px > room_px)}


def _readable(part: pl.DataFrame) -> pl.DataFrame:
    """Return a page of the rows with short names and shapes; the details have the full ones."""
    given = part.select("arguments", C.params).rows()
    shapes = pl.Series([call_shapes(*pair) for pair in given], dtype=pl.String)
    short = part.with_columns(pl.col("short_name").alias(C.name), arguments=shapes)
    return with_short_texts(short, {C.main_kernel: short_kernel_name})


def _sort_by_header(page: str, key: str, schema: pl.Schema) -> None:
    """Sort all rows by the column whose header was clicked; the browser has only one page."""
    heads = st.session_state[key]["selection"]["columns"]
    if heads and heads[0] != "state":
        row_order.sort_by(page, heads[0], is_number=schema[heads[0]].is_numeric())


def _configuration(column: Column, values: pl.Series, width: int | None) -> ColumnConfig:
    config = st.column_config
    if column.name == "state":
        return config.MultiselectColumn(
            column.label,
            options=list(STATES),
            color=list(_BADGE_COLORS),
            width=width,
            help=column.meaning,
        )
    if column.name in (C.percent_of_category, C.pct_roofline):
        return _bar(column, width)
    return configured(column, values, width)


def _bar(column: Column, width: int | None) -> ColumnConfig:
    """Return the configuration of a column of bars, all on one scale of 100%."""
    return st.column_config.ProgressColumn(
        column.label,
        format="%.1f%%",
        min_value=0.0,
        max_value=100.0,
        width=width,
        help=column.meaning,
    )
