"""The files of the Compare page; each is made when its button is clicked."""

from collections.abc import Callable
from pathlib import Path

import streamlit as st

from jarvis.comparison import Comparison
from jarvis.dashboard.compare_sides import Sides
from jarvis.server.comparison_downloads import (
    comparison_reports,
    comparison_tables,
    comparison_workbook,
)
from jarvis.workspace import ComparisonPaths, safe_name


def downloads(sides: Sides, found: Comparison) -> None:
    """The comparison as files, under the tolerance of the page."""
    st.subheader("Take it home", help="Files of this comparison, made when they are asked for.")
    target, reference = sides.target.run, sides.reference.run
    with st.container(horizontal=True, gap="small"):
        _button(
            found,
            "Workbook (xlsx)",
            ComparisonPaths(Path()).workbook.name,
            lambda: comparison_workbook(target, reference),
            "The sheets of both performance reports side by side with differences, as "
            "`jarvis compare` writes it. It does not depend on the tolerance.",
        )
        _button(
            found,
            "Reports (Markdown, zip)",
            "comparative_analysis.zip",
            lambda: comparison_reports(found, target, reference),
            "The report for stakeholders, the one with every calculation, and the data behind "
            "them, under the tolerance above.",
        )
        _button(
            found,
            "Tables (CSV, zip)",
            "comparison_tables.zip",
            lambda: comparison_tables(found),
            "A file for each table of this page, all rows, judged under the tolerance above.",
        )


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
