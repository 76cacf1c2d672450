"""The files of the Compare page: small ones are made on a click, large ones by a job."""

from collections.abc import Callable
from pathlib import Path

import streamlit as st

from jarvis.comparison import Comparison
from jarvis.core.workspace import ComparisonPaths, safe_name
from jarvis.dashboard.pages.compare.controls import PAGE
from jarvis.dashboard.pages.compare.sides import Sides
from jarvis.dashboard.widgets.file_jobs import file_button, file_job
from jarvis.reports.comparative.fair import fair_markdown
from jarvis.reports.comparative.rough import rough_markdown
from jarvis.reports.comparative.subject import Subject
from jarvis.server.jobs.kinds import Compare


def downloads(sides: Sides, found: Comparison) -> None:
    """The comparison as files, under the tolerance of the page."""
    st.subheader("Downloads", help="Files of this comparison, made on request.")
    subject = Subject(found, sides.target.run, sides.reference.run)
    ids = sides.target.id, sides.reference.id
    workbook, everything = Compare(*ids, is_workbook_alone=True), Compare(*ids, found.tolerance)
    paths = ComparisonPaths(Path())
    with st.container(horizontal=True, gap="small"):
        _button(
            found,
            "fair.md",
            paths.report("fair").name,
            lambda: fair_markdown(subject).encode(),
            "The clean report for stakeholders, under the tolerance above.",
        )
        _button(
            found,
            "rough.md",
            paths.report("rough").name,
            lambda: rough_markdown(subject).encode(),
            "The working: every expected time worked out, under the tolerance above.",
        )
        file_button(
            PAGE,
            "Workbook (xlsx)",
            workbook,
            "The sheets of both performance reports side by side with differences, as "
            "`jarvis compare` writes it. It does not depend on the tolerance.",
        )
        file_button(
            PAGE,
            "All files (zip)",
            everything,
            "Both reports, the workbook, the performance report of either side, and every table of "
            "this page as CSV with all rows, judged under the tolerance above.",
            ":material/folder_zip:",
        )
    file_job(PAGE, workbook, everything)


def _button(
    found: Comparison, label: str, file_name: str, make: Callable[[], bytes], meaning: str
) -> None:
    """A button that makes the file on click; the sides' names stand before the file's."""
    names = safe_name(f"{found.target.label}_against_{found.reference.label}")
    st.download_button(
        label,
        data=make,
        file_name=f"{names}_{file_name}",
        key=f"compare_download_{label}",
        icon=":material/download:",
        on_click="ignore",
        help=meaning,
    )
