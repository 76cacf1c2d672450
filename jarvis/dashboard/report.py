"""The parts of the report page."""

from pathlib import Path

import streamlit as st

from jarvis.dashboard.controls import choice, list_choice
from jarvis.dashboard.state import Opened
from jarvis.server.catalogue import name_of
from jarvis.server.downloads import zipped
from jarvis.workspace import RunPaths, safe_name

FAIR, ROUGH, FINDINGS = "fair", "rough", "findings"
_VIEWS = (FAIR, ROUGH, FINDINGS)
_EXPLAINED = {
    FAIR: "The clean report for stakeholders.",
    ROUGH: "The working: steps, raw tables, call paths, gaps and open questions.",
    FINDINGS: "The findings of one analysis.",
}


def downloads(now: Opened) -> None:
    """A button for each file; what is zipped is zipped on click."""
    paths = RunPaths(now.root)
    name = safe_name(name_of(now.run.manifest))
    with st.container(horizontal=True, gap="small"):
        for kind in (FAIR, ROUGH):
            _file_button(f"{kind}.md", paths.standalone_report(kind), f"{name}_{kind}.md")
        _zip_button("Findings", now.root, f"{name}_findings.zip", _finding_files(now))
        workbook, csvs = paths.perf_report_xlsx, paths.perf_report_csvs
        _file_button(workbook.name, workbook, f"{name}_{workbook.name}")
        _zip_button("Sheets as CSV", now.root, f"{name}_{csvs.name}.zip", [csvs])
        _zip_button("Whole run", now.root, f"{name}_run.zip", None)


def preview(now: Opened) -> None:
    """One report as it reads."""
    left, right = st.columns([3, 2])
    with left:
        view = choice("report_view", "Preview", _VIEWS, "Which report to read here.")
    path = RunPaths(now.root).standalone_report(view)
    if view == FINDINGS:
        with right:
            keys = [r.key for r in now.run.results.values()]
            key = list_choice("report_category", "Analysis", keys, "Whose findings to read.")
        path = RunPaths(now.root).findings(key, now.run.results[key].tier)
    st.caption(_EXPLAINED[view])
    with st.container(border=True):
        if path.is_file():
            st.markdown(path.read_text(encoding="utf-8"))
        else:
            st.info(f"This run holds no {path.name}: analyse the trace again to make it.")


def _finding_files(now: Opened) -> list[Path]:
    paths = RunPaths(now.root)
    return [paths.findings(result.key, result.tier) for result in now.run.results.values()]


def _file_button(label: str, path: Path, file_name: str) -> None:
    st.download_button(
        label,
        data=path.read_bytes,
        file_name=file_name,
        icon=":material/download:",
        on_click="ignore",
        disabled=not path.is_file(),
    )


def _zip_button(label: str, root: Path, file_name: str, parts: list[Path] | None) -> None:
    st.download_button(
        label,
        data=lambda: zipped(root, parts),
        file_name=file_name,
        mime="application/zip",
        icon=":material/folder_zip:",
        on_click="ignore",
    )
