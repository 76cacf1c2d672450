"""Replay package of selected operations: download, commands and contents."""

from collections.abc import Sequence
from typing import Any

import polars as pl
import streamlit as st

from jarvis.charts import columns_of
from jarvis.dashboard.session.state import Opened
from jarvis.dashboard.widgets.file_jobs import file_button, file_job
from jarvis.dashboard.widgets.table import small_table
from jarvis.replay import Selection, select, tensors_of
from jarvis.replay.package import RUNNER_NAME
from jarvis.run import Run
from jarvis.schemas import NUMBER, TEXT, Column
from jarvis.schemas.names import C
from jarvis.server.jobs.kinds import Replay
from jarvis.server.jobs.kinds.base import file_name_of
from jarvis.text.format import count, counted, microseconds
from jarvis.text.markdown import cell, prose

_LABEL, _ICON = "Replay package", ":material/folder_zip:"
_CALLS_SHOWN = 200
_COLUMNS = columns_of(
    (
        Column("op_name", "Operator", TEXT, meaning="name of the called operator"),
        Column("tensors", "Tensors", TEXT, meaning="shape and dtype of each tensor"),
        Column(C.count, "Calls", pl.Int64(), format=",d", meaning="calls in the trace"),
        Column("trace_us", "Trace (µs)", NUMBER, "µs", ",.2f", "mean kernel time of one call"),
        Column("gflop", "GFLOP", NUMBER, "GFLOP", ",.3f", "arithmetic of one call"),
        Column("megabytes", "Moved (MB)", NUMBER, "MB", ",.3f", "bytes that one call must move"),
    )
)
_WIDTHS = {"op_name": 240, "tensors": 420}


def replay_section(now: Opened, uids: Sequence[int], *, page: str) -> None:
    """Draw the replay package of operations, which a job makes.

    Args:
        now: The analysis.
        uids: Ids of its operations.
        page: Prefix of the widget keys.
    """
    run = now.run
    selection = select(run, uids)
    _excluded(selection)
    if not selection.entries:
        return
    with st.container(border=True):
        request = Replay(now.id, uids=tuple(uids))
        file_button(page, _LABEL, request, _contents(selection), _ICON)
        file_job(page, request)
        st.markdown("Run it where torch is installed; `--device cpu` runs it without a GPU:")
        st.code(_commands(_file_name(run, selection)), language="shell")
        _preview(selection, page)


def replay_button(run: Run, uid: int, *, page: str) -> None:
    """Draw the download of one operation's replay package, or why there is none."""
    selection = select(run, [uid])
    if selection.entries:
        st.download_button(
            _LABEL,
            data=selection.package,
            file_name=_file_name(run, selection),
            mime="application/zip",
            key=f"{page}_package",
            icon=_ICON,
            on_click="ignore",
            help=_contents(selection),
        )
    else:
        st.caption(f"No replay package: {prose(selection.refusals[0].reason)}.")


def _contents(selection: Selection) -> str:
    calls = sum(entry["count"] for entry in selection.entries)
    return (
        f"{counted(len(selection.entries), 'distinct call')} with shapes, dtypes, strides and "
        f"scalar values ({count(calls)} in the trace), and a program that times them."
    )


def _file_name(run: Run, selection: Selection) -> str:
    return file_name_of(run, selection.file_name)


def _commands(file_name: str) -> str:
    return f"python -m zipfile -e {file_name} replay\npython replay/{RUNNER_NAME} --device cuda"


def _excluded(selection: Selection) -> None:
    """Draw which operators are not in the package, and why."""
    if not selection.refusals:
        return
    time_us: dict[tuple[str, str], float] = {}
    for refusal in selection.refusals:
        key = refusal.op_name, refusal.reason
        time_us[key] = time_us.get(key, 0.0) + refusal.kernel_time_us
    lines = [
        f"- {cell(name)} ({microseconds(time)} kernel time): {prose(reason)}"
        for (name, reason), time in time_us.items()
    ]
    st.warning("Not in the package:\n" + "\n".join(lines), icon=":material/block:")


def _preview(selection: Selection, page: str) -> None:
    entries = selection.entries
    shown = entries[:_CALLS_SHOWN]
    hidden = f", the first {count(len(shown))} of them" if len(shown) < len(entries) else ""
    st.markdown(f"**Contents**: {counted(len(entries), 'distinct call')}{hidden}")
    small_table(
        pl.DataFrame(
            [_call(entry) for entry in shown],
            schema={name: column.dtype for name, column in _COLUMNS.items()},
        ),
        _COLUMNS,
        "Calls of the package",
        widths=_WIDTHS,
    )
    with st.expander("First call in the package's format", icon=":material/data_object:"):
        st.json(entries[0], expanded=3)


def _call(entry: dict[str, Any]) -> dict[str, Any]:
    flops, moved = entry["flops"], entry["bytes"]
    return {
        "op_name": entry["op_name"],
        "tensors": ", ".join(f"{t['shape']} {t['dtype']}" for t in tensors_of(entry)),
        C.count: entry["count"],
        "trace_us": entry["trace_kernel_time_us"],
        "gflop": None if flops is None else flops / 1e9,
        "megabytes": None if moved is None else moved / 1e6,
    }
