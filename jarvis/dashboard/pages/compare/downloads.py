"""Downloads of the Compare page: small files are made on click, large ones by a job."""

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
            "fair.md",
            paths.report("fair").name,
            lambda: fair_markdown(subject).encode(),
            "The clean report for stakeholders, with the tolerance above.",
        )
        _button(
            comparison,
            "rough.md",
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
