"""The preview of the report page: what a download would hold."""

import streamlit as st

from jarvis.core.workspace import RunPaths
from jarvis.dashboard.session.state import HASH_OPENED, Opened
from jarvis.dashboard.widgets.controls import choice, list_choice
from jarvis.reports.edits import UNEDITED, Edits
from jarvis.reports.fair import fair_markdown
from jarvis.reports.html import html_document

FAIR, HTML, ROUGH, ANALYSIS, FINDINGS = "fair", "html", "rough", "analysis", "findings"
_VIEWS = (FAIR, HTML, ROUGH, ANALYSIS, FINDINGS)
_EXPLAINED = {
    FAIR: "The clean report for stakeholders, as edited above.",
    HTML: "The same with charts, as one file, as edited above.",
    ROUGH: "The working: steps, raw tables, call paths, gaps and open questions. Unedited.",
    ANALYSIS: "The report in the layout that other tools read. Unedited.",
    FINDINGS: "The findings of one analysis. Unedited.",
}
_HTML_PX = 900
_KEPT = 32


def preview(now: Opened, edits: Edits) -> None:
    """One report as it reads."""
    left, right = st.columns([3, 2])
    with left:
        view = choice("report_view", "Preview", _VIEWS, "Which report to read here.")
    st.caption(_EXPLAINED[view])
    if view == HTML:
        # The document's own policy forbids scripts and addresses.
        st.iframe(_html(now, edits), height=_HTML_PX, alt="The HTML report")
        return
    paths = RunPaths(now.root)
    if view == FINDINGS:
        with right:
            keys = [r.key for r in now.run.results.values()]
            key = list_choice("report_category", "Analysis", keys, "Whose findings to read.")
        path = paths.findings(key, now.run.results[key].tier)
    else:
        path = paths.analysis_report if view == ANALYSIS else paths.standalone_report(view)
    with st.container(border=True):
        if view == FAIR and edits != UNEDITED:
            st.markdown(_fair(now, edits))
        elif path.is_file():
            st.markdown(path.read_text(encoding="utf-8"))
        else:
            st.info(f"This run holds no {path.name}: analyze the trace again to make it.")


@st.cache_data(max_entries=_KEPT, show_spinner=False, hash_funcs=HASH_OPENED)
def _html(now: Opened, edits: Edits) -> str:
    return html_document(now.run, now.root, edits)


@st.cache_data(max_entries=_KEPT, show_spinner=False, hash_funcs=HASH_OPENED)
def _fair(now: Opened, edits: Edits) -> str:
    return fair_markdown(now.run, now.root, edits)
