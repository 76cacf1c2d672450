"""Preview of the reports on the report page."""

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
    HTML: "The same report with charts in one file, as edited above.",
    ROUGH: "The detailed report: steps, raw tables, call paths, gaps, open questions. Unedited.",
    ANALYSIS: "The report in a fixed layout for other tools. Unedited.",
    FINDINGS: "The findings of one analysis. Unedited.",
}
_HTML_PX = 900
_MAX_CACHED = 32


def preview(now: Opened, edits: Edits) -> None:
    """Draw the choice of a report, and its preview."""
    left, right = st.columns([3, 2])
    with left:
        view = choice("report_view", "Preview", _VIEWS, "Report to preview.")
    st.caption(_EXPLAINED[view])
    if view == HTML:
        # The document's content security policy forbids scripts and external resources.
        st.iframe(_html(now, edits), height=_HTML_PX, alt="The HTML report")
        return
    paths = RunPaths(now.root)
    if view == FINDINGS:
        with right:
            keys = [r.key for r in now.run.results.values()]
            key = list_choice(
                "report_category", "Analysis", keys, "Analysis whose findings to show."
            )
        path = paths.findings(key, now.run.results[key].tier)
    else:
        path = paths.analysis_report if view == ANALYSIS else paths.standalone_report(view)
    with st.container(border=True):
        if view == FAIR and edits != UNEDITED:
            st.markdown(_fair(now, edits))
        elif path.is_file():
            st.markdown(path.read_text(encoding="utf-8"))
        else:
            st.info(f"This run has no {path.name}: analyze the trace again to create it.")


@st.cache_data(max_entries=_MAX_CACHED, show_spinner=False, hash_funcs=HASH_OPENED)
def _html(now: Opened, edits: Edits) -> str:
    return html_document(now.run, now.root, edits)


@st.cache_data(max_entries=_MAX_CACHED, show_spinner=False, hash_funcs=HASH_OPENED)
def _fair(now: Opened, edits: Edits) -> str:
    return fair_markdown(now.run, now.root, edits)
