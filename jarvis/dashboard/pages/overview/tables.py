"""The tables of the Overview page: ranked findings, categories, the GPU timeline."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import polars as pl
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from jarvis import charts
from jarvis.comparison import SLOWER
from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.carried import carried
from jarvis.dashboard.session.current_user import visible_catalog
from jarvis.dashboard.session.links import REFERENCE
from jarvis.dashboard.session.state import Opened, cached, of_opened, of_stored
from jarvis.dashboard.widgets.finding_cards import ORDER, PRIORITY_COLORS, finding_address
from jarvis.dashboard.widgets.table import (
    ReadyTable,
    configured,
    draw_table,
    follow_cell,
    height_of,
    ready_table,
    small_table,
)
from jarvis.dashboard.widgets.window import is_wide
from jarvis.findings import Impact
from jarvis.impact import share_pct
from jarvis.perf_report import Totals
from jarvis.perf_report.timeline.step_account import steps_name
from jarvis.reports.gaps import warnings_of
from jarvis.reports.ranking import Recommendation, nested, recommendations
from jarvis.reports.summary import top_names
from jarvis.run import Run
from jarvis.savings import over_steps, per_step, step_count, whole_ms, whole_name
from jarvis.schemas import NUMBER, TABLES, TEXT, Column
from jarvis.schemas.names import C
from jarvis.text.format import MISSING, byte_size, count, counted, milliseconds
from jarvis.text.markdown import escape, name_first, row_title, shortened
from jarvis.text.messages import to_text
from jarvis.trace import TraceInfo

_TABLE_ROWS = 10
"""Minimum number of rows in view."""

_ROWS_OF_SAVING, _ROWS_OF_AXIS, _ROWS_OF_LINE, _LINE = 0.9, 3.5, 0.65, 55
"""Heights in rows of a bar of the waterfall beside the table, of the rest of it and of a line of
its notes, and the characters of a line in a window of 1440 pixels."""

_MAX_CACHED = 64
_MIN_SHOWN_PCT = 0.05
"""A smaller share of the step rounds to 0.0%."""

_NAME_PX = 250
_FINDINGS, _PAGE = "overview_findings", "page"
_WIDTHS = {C.rank: 42, "finding": 337, "saved_ms": 72, "priority": 74}
_CHARACTER_PX, _SENTENCE_PX, _MIN_NAME = 6.0, 5.4, 8
"""Mean width of a character of a name and of a sentence in a table, and the minimum length of a cut
name."""

_WIDE_PX = 450
"""Width of the column of findings in a wide window."""

_REMARK_PX = 62
"""Width of a remark beside a priority. The columns but the last fill the table at 1280 pixels, and
all of them at 1440."""


def rows_beside(savings: int, note_length: int) -> int:
    """Return the rows that are as high as a waterfall of savings, with notes below it."""
    lines = math.ceil(note_length / _LINE)
    rows = savings * _ROWS_OF_SAVING + _ROWS_OF_AXIS + lines * _ROWS_OF_LINE
    return max(_TABLE_ROWS, int(rows))


def ranked_findings(now: Opened, in_view: int) -> None:
    """Draw all findings in order, with at most so many rows in view; a click on one opens its card
    on its page."""
    found = _findings(now, is_wide())
    what = f"{found.gaining} of {count(found.count)} save at least {_MIN_SHOWN_PCT:g}%"
    if found.gaining == found.count:
        what = counted(found.count, "finding")
    if found.count > in_view:
        what += f", the first {count(in_view)} in view"
    st.markdown(
        f"**What to do first**, by step time saved · {what} · click a row to open its finding",
        help=ORDER,
    )
    if not found.count and warnings_of(now.run):
        st.warning(
            "No findings, but this does not mean that nothing is slow: the warnings of this page "
            "say what could not be measured.",
            icon=":material/visibility_off:",
        )
        return
    if not found.count:
        st.info("No findings: no check found a saving above its threshold.")
        return
    addresses = list(finding_addresses(now).values())
    st.dataframe(
        found.rows.with_columns(pl.Series(_PAGE, addresses)),
        key=_FINDINGS,
        hide_index=True,
        column_config=found.config,
        height=height_of(found.count, in_view),
        column_order=(C.rank, "finding", "saved_ms", "priority", C.category),
        placeholder=MISSING,
        alt="Findings in order with savings; a click on a row opens its finding",
        on_select=partial(follow_cell, _FINDINGS, addresses),
        selection_mode="single-cell",
    )


@dataclass(frozen=True, slots=True)
class _Findings:
    """The table of the findings, their number, and how many gain anything."""

    rows: pl.DataFrame
    config: Mapping[str, ColumnConfig]
    count: int
    gaining: int


@cached(_MAX_CACHED, of_opened)
def _findings(now: Opened, is_wide: bool) -> _Findings:
    ranked = recommendations(now.run)
    rows = [_finding_row(now, item, is_part=is_part) for item, is_part in nested(ranked)]
    frame = pl.DataFrame(rows, infer_schema_length=None)
    if frame.is_empty():
        return _Findings(frame, {}, 0, 0)
    widths = {**_WIDTHS, **({"finding": _WIDE_PX} if is_wide else {})}
    if frame["priority"].list.len().max() == 2:
        widths["finding"] -= _REMARK_PX
        widths["priority"] += _REMARK_PX
    titles = [shown_title(item, widths["finding"]) for item, _ in nested(ranked)]
    frame = frame.with_columns(finding=pl.Series(titles))
    config = {c.name: configured(c, frame[c.name], widths.get(c.name)) for c in _FINDING_COLUMNS}
    config["priority"] = st.column_config.MultiselectColumn(
        "Priority",
        width=widths["priority"],
        options=[*map(str, PRIORITY_COLORS), *_REMARKS],
        color=[*PRIORITY_COLORS.values(), *("gray" for _ in _REMARKS)],
        help=f"{ORDER} {' '.join(_REMARKS.values())}",
    )
    gaining = sum(_gains(item, now.run) for item in ranked)
    return _Findings(frame, config, len(ranked), gaining)


def finding_addresses(now: Opened) -> Mapping[str, str]:
    """Return the URLs of the cards of all findings, by label and title of the analysis, in the
    order of the table."""
    return _addresses(now, tuple(carried().items()))


@cached(_MAX_CACHED, of_opened)
def _addresses(now: Opened, shared: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return {
        f"{item.label} {item.result.title}": finding_address(now, item, dict(shared))
        for item, _ in nested(recommendations(now.run))
    }


_FINDING_COLUMNS = (
    Column(C.rank, "Rank", TEXT, meaning="by the step time saved; ↳: part of the finding above"),
    Column(C.category, "Category", TEXT, meaning="page of the finding"),
    Column("finding", "Finding", TEXT, meaning="what is slow"),
    Column(
        "saved_ms",
        "Saving (ms)",
        NUMBER,
        "ms",
        ".3g",
        "time of a step saved: middle estimate of a replay of the recorded steps",
    ),
)
_REMARKS = {
    "at most": "At most: the trace of one rank does not show how much is saved, so the waterfall "
    "does not subtract it.",
    "estimated": "Estimated: without a replay.",
    "GPU time": "GPU time: the step time is not known.",
}
"""The text beside the priority, and its meaning."""


def _gains(ranked: Recommendation, run: Run) -> bool:
    """Return whether a finding saves at least _MIN_SHOWN_PCT."""
    gain = ranked.finding.impact
    return gain is not None and gain.gain_pct >= _MIN_SHOWN_PCT


def _finding_row(now: Opened, ranked: Recommendation, *, is_part: bool) -> dict[str, object]:
    """Return the row of a finding, which can be a part of one above."""
    finding = ranked.finding
    gain = finding.impact and per_step(finding.impact, now.run.manifest.totals)
    return {
        C.rank: f"↳ {ranked.label}" if is_part else ranked.label,
        "priority": [str(finding.priority), *_remark(gain)],
        C.category: ranked.result.title.replace("Communication", "Comm."),
        "saved_ms": gain.gain_ms if gain else None,
    }


def shown_title(ranked: Recommendation, width_px: int = _WIDTHS["finding"]) -> str:
    """Return the title of a finding as its row shows it: a name that is too long is cut in its
    middle, another title at its end."""
    whole, room = to_text(ranked.finding.title), int(width_px / _CHARACTER_PX)
    title = row_title(whole)
    if name_first(whole) == whole:
        room = int(width_px / _SENTENCE_PX)
        return title if len(title) <= room else f"{title[: room - 1].rstrip()}…"
    if len(title) <= room:
        return title
    name, separator, what = title.rpartition(": ")
    room -= len(separator) + len(what)
    return title if room < _MIN_NAME else f"{shortened(name, room)}{separator}{what}"


def _remark(gain: Impact | None) -> Iterator[str]:
    """Yield how the step time that a finding saves is known, if not by a replay."""
    if gain is not None and not gain.is_replayed:
        yield "at most" if gain.is_interval else "GPU time" if gain.step_ms is None else "estimated"


def top_operations(now: Opened) -> None:
    """Draw the operators with the most GPU time across all categories."""
    st.subheader("Top operations")
    if not now.run.manifest.top_operations:
        st.caption("No operator launched GPU work.")
        return
    over = over_steps(now.run.manifest.totals)
    st.caption(
        f"GPU time of what an operator launches itself{over and f', {over}'}; the operators that "
        "it calls have rows of their own."
    )
    draw_table(_top(now), "Operators with the most GPU time")


@cached(_MAX_CACHED, of_stored)
def _top(now: Opened) -> ReadyTable:
    titles = {key: result.title for key, result in now.run.results.items()}
    names, totals = top_names(now.run), now.run.manifest.totals
    all_steps_ms = whole_ms(totals) * step_count(totals)
    rows = [
        {
            **operation.model_dump(),
            C.name: names[operation.rank],
            _SHAPES: None,
            C.category: titles.get(operation.category or ""),
            _OF_WHOLE: share_pct(operation.time_ms, all_steps_ms),
        }
        for operation in now.run.manifest.top_operations
    ]
    frame = charts.with_short_names(pl.DataFrame(rows, infer_schema_length=None), _SHAPES)
    frame = frame.with_columns(pl.col("short_name").alias(C.name))
    columns = charts.columns_of((*_TOP_COLUMNS, of_whole_column(totals)))
    return ready_table(frame, columns, widths={C.name: _NAME_PX})


def of_whole_column(totals: Totals) -> Column:
    """Return the column with the share of the steps, or of what is known in place of them."""
    whole = whole_name(totals).removeprefix("the ").replace("each step", "step time")
    meaning = f"the GPU time beside it in percent of the {whole}"
    bounds = totals.step
    if bounds is not None and bounds.step_ms is not None and bounds.is_marked:
        meaning = (
            "the GPU time beside it, which includes work outside the steps, in percent of "
            f"{steps_name(bounds.is_marked, bounds.steps)}"
        )
    return Column(_OF_WHOLE, f"% of {whole}", NUMBER, "%", ",.1f", meaning)


_OF_WHOLE = "of_whole"
_SHAPES = "shapes"
"""An operator has rows of several shapes here, so names alone must differ."""

_TOP_COLUMNS = (
    Column(C.rank, "Rank", pl.Int64(), meaning="by GPU time"),
    Column(
        C.name,
        "Operation",
        TEXT,
        meaning="operator that launches the kernels, else the kernel; where short names are "
        "equal, what differs in the full ones",
    ),
    Column(C.category, "Category", TEXT, meaning="category of its longest row"),
    Column(
        C.time_ms,
        "GPU time (ms)",
        NUMBER,
        "ms",
        ".3g",
        "of what it launches itself in all its calls, not of the operators that it calls",
    ),
    Column(C.count, "Count", pl.Int64(), format=",d", meaning="calls that launched GPU work"),
    Column(C.percent_of_compute, "% of compute", NUMBER, "%", ",.1f", "share of compute time"),
    Column(
        C.efficiency_pct,
        "Efficiency (%)",
        NUMBER,
        "%",
        ",.1f",
        "share of the roofline, with the operators that it calls",
    ),
    Column(C.bound, "Bound", TEXT, meaning="which peak limits it"),
)


def against_reference(now: Opened) -> None:
    """Draw the operations that the reference also has, if the run has a reference."""
    if _OPERATIONS not in now.run.manifest.tables:
        return
    st.subheader("Against the reference")
    rows = now.run.table(_OPERATIONS).sort(C.unexplained_ms, descending=True, nulls_last=True)
    slower = rows.filter(pl.col(C.outcome).is_in(SLOWER))
    st.caption(
        f"{count(rows.height)} operations have a counterpart in analysis "
        f"{escape(now.run.manifest.reference or '')}; slower than the bandwidths or compute "
        f"peaks of the two GPUs explain: {count(slower.height)}."
    )
    columns = charts.columns_of(TABLES[_OPERATIONS])
    small_table(rows, columns, "Operations of both traces", _COMPARED)
    reference = now.run.manifest.reference
    if reference in {entry.id for entry in visible_catalog().entries}:
        navigation.link(
            navigation.COMPARE,
            "Compare both analyses",
            icon=":material/compare_arrows:",
            **{REFERENCE: reference},
        )
    else:
        st.caption(
            "The reference is not on this server or was removed, so the two cannot be compared "
            "again. The table shows the comparison stored with this analysis."
        )


_OPERATIONS = "comparison_operations"
_COMPARED = (
    C.name,
    C.input_dims,
    C.target_calls,
    C.unexplained_ms,
    C.target_us_per_call,
    C.reference_us_per_call,
    C.time_ratio,
    C.expected_ratio,
    C.bound,
)


def failed_models(now: Opened) -> None:
    """Draw the perf models that failed for their arguments, if any."""
    failures = now.run.manifest.perf_model_failures
    if not failures:
        return
    st.warning(
        f"The perf model failed for {counted(len(failures), 'operation')}: FLOPs, bytes and "
        "efficiency are unknown. The rest of the analysis is not affected.",
        icon=":material/warning:",
    )
    frame = pl.DataFrame([failure.model_dump() for failure in failures], infer_schema_length=None)
    columns = charts.columns_of(TABLES["perf_model_failures"])
    small_table(frame, columns, "Operations whose perf model failed")


def trace_facts(now: Opened) -> None:
    """Draw an expander with facts about the trace and its recording."""
    trace = now.run.manifest.trace
    kind = "performance report" if trace.form == "report" else trace.origin
    facts = {
        "File": f"{trace.file_name} ({byte_size(trace.size_bytes)}, {kind})",
        "Devices": ", ".join(trace.device_names) or "not named",
        **(_recording(trace) if trace.form == "trace" else {}),
        "Reference": now.run.manifest.reference or "none",
        "Analyzed": f"{now.run.manifest.created} with Jarvis {now.run.manifest.jarvis_version}",
    }
    with st.expander("The trace", icon=":material/info:"):
        st.table(
            pl.DataFrame({"Name": list(facts), "Value": list(map(escape, facts.values()))}),
            hide_index=True,
            hide_header=True,
            border="horizontal",
            alt="Facts about the trace",
        )


def _recording(trace: TraceInfo) -> dict[str, str]:
    """Return facts about the recording."""
    events = sum(trace.event_counts.values())
    return {
        "Rank": "not distributed"
        if trace.rank is None
        else f"{trace.rank} of {count(trace.world_size)}",
        "Span": f"{milliseconds(trace.span_us / 1000)}, {counted(trace.steps, 'profiler step')}",
        "Events": f"{count(events)}: "
        + ", ".join(f"{count(n)} {name}" for name, n in sorted(trace.event_counts.items())),
        "Recorded": ", ".join(
            [
                "shapes" if trace.has_shapes else "no shapes",
                "Python stacks" if trace.has_stacks else "no Python stacks",
                "GPU events only" if trace.gpu_only else "host and GPU events",
            ]
        ),
    }
