"""Details of the selected operation: arguments, kernels, call path and projections."""

import json
from typing import Any

import polars as pl
import streamlit as st

from jarvis import impact
from jarvis.charts import Columns, columns_of
from jarvis.dashboard.pages.call_tree.choice import places_link
from jarvis.dashboard.pages.timeline.event import example_link
from jarvis.dashboard.widgets.projection import operation_columns
from jarvis.dashboard.widgets.replay_section import replay_button
from jarvis.dashboard.widgets.table import small_table
from jarvis.impact import marked_efficiency
from jarvis.perf_report import CallPath, Totals
from jarvis.run.timeline import Timeline
from jarvis.schemas import NUMBER, TEXT, Column
from jarvis.text.format import count, counted, microseconds, percent
from jarvis.text.markdown import code, escape

_ARGUMENTS = ("input_dims", "input_types", "input_strides", "concrete_inputs")
_FACTS = (
    "op_category",
    "direction",
    "model_origin",
    "compute",
    "roofline_note",
    "entry_point",
    "thread_name",
)
_KERNEL_COLUMNS = columns_of(
    (
        Column("name", "Kernel", TEXT, meaning="name of the kernel, copy or fill"),
        Column("count", "Count", pl.Int64(), format=",d", meaning="launches in all calls"),
        Column("total_us", "Total (µs)", NUMBER, "µs", ",.1f", "sum over all calls"),
        Column("mean_us", "Mean (µs)", NUMBER, "µs", ",.2f", "mean launch"),
        Column("min_us", "Min (µs)", NUMBER, "µs", ",.2f", "shortest launch"),
        Column("max_us", "Max (µs)", NUMBER, "µs", ",.2f", "longest launch"),
        Column("stream", "Stream", pl.Int64(), meaning="stream index"),
    )
)
_KERNEL_WIDTHS = {"name": 190, "count": 60} | dict.fromkeys(
    ("total_us", "mean_us", "min_us", "max_us"), 80
)
_PROJECTION_COLUMNS = columns_of(
    (
        Column("target_pct", "Target (%)", NUMBER, "%", ",.0f", "share of the roofline reached"),
        Column("time_ms", "Time (ms)", NUMBER, "ms", ",.3f", "time at that efficiency"),
        Column("saved_ms", "Saving (ms)", NUMBER, "ms", ",.3f", "current time - time"),
        Column("op_improvement_pct", "Of op (%)", NUMBER, "%", ",.1f", "saving / time"),
        Column("compute_pct", "Compute (%)", NUMBER, "%", ",.2f", "saving / compute time"),
        Column("e2e_pct", "GPU time (%)", NUMBER, "%", ",.2f", "saving / GPU wall time"),
    )
)
_TREE_LINES = 60


def operation_details(
    row: dict[str, Any],
    path: CallPath | None,
    target_pct: float,
    totals: Totals,
    timeline: Timeline,
) -> None:
    """Draw the details of an operation.

    Args:
        row: Row of ``operations`` with the category's columns, and ``state``.
        path: Its call path, if the run has it.
        target_pct: Target efficiency in percent.
        totals: Times of the GPU timeline.
        timeline: Timeline of the run.
    """
    columns = operation_columns()
    with st.container(border=True):
        st.subheader(escape(f"{row['name']}  {row['arguments'] or ''}"))
        st.caption(
            f"{counted(row['operation_count'], 'call')} · {microseconds(row['kernel_time_us'])} "
            f"kernel time, {percent(row['percent_of_compute'])} of compute · host "
            f"{microseconds(row['host_time_us'])} · "
            f"efficiency {marked_efficiency(row['pct_roofline'])}"
            + (f" · {row['bound']} bound" if row["bound"] else "")
        )
        example_link(timeline, row)
        places_link(timeline.run, row["uid"])
        replay_button(timeline.run, row["uid"], page="operation")
        left, right = st.columns(2)
        with left:
            _projections(row, target_pct, totals)
            _arguments(row, columns)
        with right:
            _kernels(row["kernels"] or [])
            _call_path(row, path)
        with st.expander("All fields as JSON", icon=":material/data_object:"):
            st.json(_plain(row), expanded=1)


def _projections(row: dict[str, Any], target_pct: float, totals: Totals) -> None:
    st.markdown("**Saving at higher efficiency**")
    now = row["pct_roofline"]
    if now is None or impact.is_anomaly(now):
        st.caption(escape(row["roofline_note"] or "No plausible efficiency, so no projection."))
        return
    table = pl.DataFrame(
        impact.projection_table(
            row["kernel_time_us"] / 1000,
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
    parameters = json.loads(row["params"]) if row["params"] else {}
    facts |= {f"param: {name}": str(value) for name, value in parameters.items()}
    st.table(
        pl.DataFrame({"Name": list(facts), "Value": [f"{code(v)}" for v in facts.values()]}),
        hide_index=True,
        hide_header=True,
        border="horizontal",
        alt="Arguments of the operation and facts about it",
    )


def _kernels(kernels: list[dict[str, Any]]) -> None:
    st.markdown(f"**GPU kernels** ({count(len(kernels))} by name and stream)")
    if not kernels:
        st.caption("The calls launched no kernels directly.")
        return
    small_table(
        pl.DataFrame(kernels), _KERNEL_COLUMNS, "Kernels of the operation", widths=_KERNEL_WIDTHS
    )


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
    elif row["module_path"]:
        modules = row["module_path"]
        st.code("\n".join(f"{'  ' * n}{name}" for n, name in enumerate(modules)), language=None)
    elif row["entry_point"]:
        st.code(row["entry_point"], language=None)
    else:
        st.caption("The trace has no Python stacks; record it with `with_stack=True`.")


def _entry(entry: Any) -> str:
    kernel = f" → {entry.kernel} ({microseconds(entry.kernel_dur_us)})" if entry.kernel else ""
    return f"{entry.name}{kernel}"


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row without the state, which only the table needs."""
    return {name: value for name, value in row.items() if name != "state"}
