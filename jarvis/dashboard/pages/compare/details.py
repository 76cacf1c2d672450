"""The lower part of the Compare page: details of a pair of operations, replay, downloads."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import streamlit as st

from jarvis.analyses import load_analyses
from jarvis.charts import columns_of
from jarvis.comparison import SLOWER, Comparison, Role
from jarvis.core.workspace import ComparisonPaths, safe_name
from jarvis.dashboard.pages.compare.controls import PAGE
from jarvis.dashboard.pages.compare.sides import Sides
from jarvis.dashboard.session import links, navigation
from jarvis.dashboard.session.links import note_control
from jarvis.dashboard.widgets.controls import choice
from jarvis.dashboard.widgets.file_jobs import file_button, file_job
from jarvis.dashboard.widgets.replay_section import replay_section
from jarvis.dashboard.widgets.table import small_table
from jarvis.impact import marked_efficiency
from jarvis.reports.comparative.fair import fair_markdown
from jarvis.reports.comparative.rough import rough_markdown
from jarvis.reports.comparative.subject import Subject
from jarvis.schemas import TABLES, TEXT, Column
from jarvis.schemas.names import C
from jarvis.server.jobs.kinds import Compare
from jarvis.text.format import (
    MISSING,
    count,
    decimal,
    microseconds,
    milliseconds,
)
from jarvis.text.markdown import cell, code, prose, shortened


def downloads(sides: Sides, comparison: Comparison) -> None:
    """Draw the downloads of the comparison with the page's tolerance."""
    st.subheader("Download", help="Files of this comparison, made on request.")
    subject = Subject(comparison, sides.target.run, sides.reference.run)
    ids = sides.target.id, sides.reference.id
    workbook, everything = (
        Compare(*ids, is_workbook_alone=True),
        Compare(*ids, comparison.tolerance),
    )
    paths = ComparisonPaths(Path())
    with st.container(horizontal=True, gap="small"):
        _button(
            comparison,
            "Report (Markdown)",
            paths.report("fair").name,
            lambda: fair_markdown(subject).encode(),
            "The report for stakeholders, with the tolerance above.",
        )
        _button(
            comparison,
            "Detailed report (Markdown)",
            paths.report("rough").name,
            lambda: rough_markdown(subject).encode(),
            "The detailed report with every calculation, with the tolerance above.",
        )
        file_button(
            PAGE,
            "Workbook (xlsx)",
            workbook,
            "The sheets of both performance reports side by side with differences, as written by "
            "`jarvis compare`. It does not depend on the tolerance.",
        )
        file_button(
            PAGE,
            "All files (zip)",
            everything,
            "Both reports, the workbook, both performance reports, and all rows of every table of "
            "this page as CSV, with the tolerance above.",
            ":material/folder_zip:",
        )
    file_job(PAGE, workbook, everything)


def _button(
    comparison: Comparison, label: str, file_name: str, make: Callable[[], bytes], meaning: str
) -> None:
    """Draw a download that is made on click; the file name begins with the names of both sides."""
    names = safe_name(f"{comparison.target.label}_against_{comparison.reference.label}")
    st.download_button(
        label,
        data=make,
        file_name=f"{names}_{file_name}",
        key=f"compare_download_{label}",
        icon=":material/download:",
        on_click="ignore",
        help=meaning,
    )


_OPEN, _SELECTED, _SLOWER = f"{PAGE}_replay", "selected row", "slower than explained"


def compare_and_replay(sides: Sides, comparison: Comparison, pair: int | None) -> None:
    """Draw the package of the selected row or of all unexpectedly slow operations.

    It is computed only while the expander is open.
    """
    expander = st.expander(
        "Compare and replay",
        icon=":material/replay:",
        key=_OPEN,
        on_change="rerun",
        bind="query-params",
    )
    if not expander.open:
        return
    note_control(_OPEN, "true")
    with expander:
        st.markdown(
            "A package has the target's calls and a program that times them. Run it on both GPUs: "
            "if the calls alone show the same gap, the kernels cause it; if not, check their "
            "environment, such as clocks or other streams."
        )
        which = choice(
            f"{PAGE}_replayed",
            "Operations",
            (_SLOWER, _SELECTED),
            "Contents of the package: all operations that are slower than expected, "
            "or the selected row of the table of matched operations.",
        )
        is_used = pl.col(C.pair) == pair if which == _SELECTED else pl.col(C.outcome).is_in(SLOWER)
        uids = comparison.operations.filter(is_used)[C.uids].explode().drop_nulls()
        if uids.is_empty():
            st.info(
                "Select a row in the table of matched operations."
                if which == _SELECTED
                else "No operation is slower than expected: select a row instead."
            )
            return
        replay_section(sides.target, uids.to_list(), page=_OPEN)


_NAME_LENGTH = 70
_SIDE_COLUMNS = columns_of(
    (
        Column("what", "Quantity", TEXT, meaning="property of the call"),
        Column("target", "Target", TEXT, meaning="the analysis to improve"),
        Column("reference", "Reference", TEXT, meaning="the analysis that shows what is possible"),
    )
)


def pair_details(sides: Sides, comparison: Comparison, row: dict[str, Any]) -> None:
    """Draw a matched operation: both sides, expected time, kernels, and links to its rows."""
    name = code(shortened(row[C.name], _NAME_LENGTH))
    st.subheader(f"{name} is {row[C.outcome]}" if row[C.is_unexpected] else name)
    if row["arguments"]:
        st.caption(f"Arguments: {cell(row['arguments'], 200)}")
    st.markdown(f"{prose(row[C.explanation])} {_working(row, comparison.tolerance)}")
    left, right = st.columns([2, 3])
    with left.container(border=True, height="stretch"):
        st.markdown("**Both sides**")
        small_table(_sides(row), _SIDE_COLUMNS, "The call on the target and on the reference")
        _row_links(sides, row)
    with right.container(border=True, height="stretch"):
        st.markdown(_kernels_title(row))
        small_table(
            comparison.lowering.filter(pl.col(C.pair) == row[C.pair]),
            columns_of(TABLES["comparison_lowering"]),
            "Kernels of the operation on either side",
            (C.side, C.kernel, C.us_per_call, C.launches_per_call, C.percent),
            {
                C.side: 75,
                C.kernel: 170,
                C.us_per_call: 105,
                C.launches_per_call: 105,
                C.percent: 75,
            },
        )


def _working(row: dict[str, Any], tolerance: float) -> str:
    """Return the calculation of the outcome as text."""
    low, high = row[C.expected_ratio_least], row[C.expected_ratio_most]
    if high is None:
        return ""
    reference, target = row[C.reference_us_per_call], row[C.target_us_per_call]
    ratio = decimal(high) if row[C.expected_ratio] else f"{decimal(low)} to {decimal(high)}"
    expected = f"expected {microseconds(reference)} x {ratio} = "
    expected += (
        microseconds(reference * high)
        if row[C.expected_ratio]
        else f"{decimal(reference * low)} to {microseconds(reference * high)}"
    )
    text = (
        f"Per call: {expected}, measured {microseconds(target)}, which is "
        f"{decimal(target / (reference * high))} times the "
        f"{'expected time' if row[C.expected_ratio] else 'upper limit'}; the tolerance is "
        f"{decimal(tolerance)} times."
    )
    if row[C.unexplained_ms]:
        text += (
            f" Not explained: {milliseconds(row[C.target_ms])} - "
            f"{milliseconds(row[C.attainable_ms])} = {milliseconds(row[C.unexplained_ms])}."
        )
    if row[C.is_roofline_capped]:
        text += (
            " The target's roofline time is longer than the expected time, so it is the attainable "
            "time."
        )
    return text


def _sides(row: dict[str, Any]) -> pl.DataFrame:
    def of(what: str) -> tuple[Any, Any]:
        own = row.get(f"target_{what}", row.get(what))
        return own, row[f"reference_{what}"]

    lines = {
        "Operation": tuple(name or MISSING for name in of(C.name)),
        "Time per call": tuple(map(microseconds, of(C.us_per_call))),
        "Calls": tuple(map(count, of(C.calls))),
        "GPU time": tuple(map(milliseconds, of("ms"))),
        "Bound": tuple(bound or "unknown" for bound in of(C.bound)),
        "Efficiency": tuple(map(marked_efficiency, of(C.efficiency_pct))),
    }
    if row[C.name] == row[C.reference_name]:
        del lines["Operation"]
    target, reference = zip(*lines.values(), strict=True)
    return pl.DataFrame({"what": list(lines), "target": target, "reference": reference})


def _kernels_title(row: dict[str, Any]) -> str:
    if row[C.same_kernels] is None:
        return "**Kernels on either side**"
    if row[C.same_kernels]:
        return "**Both sides launch kernels of the same names**"
    return "**The sides launch different kernels**"


def _row_links(sides: Sides, row: dict[str, Any]) -> None:
    """Draw links to the operation's rows on its category page in both analyses."""
    category = row[C.category]
    if category not in load_analyses():
        return
    ids = {Role.TARGET: sides.target.id, Role.REFERENCE: sides.reference.id}
    uids = {Role.TARGET: row[C.uid], Role.REFERENCE: row[C.reference_uid]}
    with st.container(horizontal=True):
        for role, analysis_id in ids.items():
            navigation.link(
                category,
                f"{load_analyses()[category].title} of the {role.value}",
                icon=":material/table_rows:",
                **{links.ANALYSIS: analysis_id, f"{category}_op": str(uids[role])},
            )
