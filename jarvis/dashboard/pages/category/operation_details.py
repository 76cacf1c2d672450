"""The details of the selected operation of a category."""

import json
from typing import Any

import polars as pl
import streamlit as st

from jarvis import impact
from jarvis.charts import Columns, columns_of
from jarvis.dashboard.pages.call_tree.choice import places_link
from jarvis.dashboard.pages.category.step_time import in_the_step
from jarvis.dashboard.pages.timeline.event import example_link
from jarvis.dashboard.session import selection
from jarvis.dashboard.session.state import Opened, timeline_of
from jarvis.dashboard.widgets.projection import operation_columns
from jarvis.dashboard.widgets.replay_section import replay_button
from jarvis.dashboard.widgets.table import (
    small_table,
)
from jarvis.impact import marked_efficiency
from jarvis.perf_report import CallPath, Totals
from jarvis.schemas import FLAG, NAMES, NUMBER, TEXT, Column
from jarvis.schemas.names import C
from jarvis.text.format import count, counted, milliseconds, percent
from jarvis.text.markdown import code, escape
from jarvis.text.short_names import short_operation_name

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
