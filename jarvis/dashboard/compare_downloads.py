"""The files of the Compare page; each is made when its button is clicked."""

from collections.abc import Callable
from pathlib import Path

import streamlit as st

from jarvis.comparison import Comparison
from jarvis.dashboard.compare_sides import Sides
from jarvis.server.comparison_downloads import (
    comparative_report,
    comparison_archive,
    comparison_workbook,
)
from jarvis.workspace import ComparisonPaths, safe_name


def downloads(sides: Sides, found: Comparison) -> None:
    """The comparison as files, under the tolerance of the page."""
    st.subheader("Take it home", help="Files of this comparison, made when they are asked for.")
    target, reference = sides.target.run, sides.reference.run
    paths = ComparisonPaths(Path())
    with st.container(horizontal=True, gap="small"):
        _button(
            found,
            "fair.md",
            paths.report("fair").name,
            lambda: comparative_report(found, target, reference, "fair"),
            "The clean report for stakeholders, under the tolerance above.",
        )
        _button(
            found,
            "rough.md",
            paths.report("rough").name,
            lambda: comparative_report(found, target, reference, "rough"),
            "The working: every expected time worked out, under the tolerance above.",
        )
        _button(
            found,
            "Workbook (xlsx)",
            paths.workbook.name,
            lambda: comparison_workbook(target, reference),
            "The sheets of both performance reports side by side with differences, as "
            "`jarvis compare` writes it. It does not depend on the tolerance.",
        )
        _button(
            found,
            "All files (zip)",
            "comparison.zip",
            lambda: comparison_archive(found, target, reference),
            "Both reports, the workbook, and every table of this page as CSV with all rows, "
            "judged under the tolerance above.",
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
