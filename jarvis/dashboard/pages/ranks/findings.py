"""What makes the steps of a job longer than they need to be."""

import streamlit as st

from jarvis.dashboard.widgets.finding_cards import PRIORITY_COLORS, evidence_table
from jarvis.findings import Finding
from jarvis.ranks.run import DistributedRun
from jarvis.reports.ranks import NO_FINDING, nested, part_of
from jarvis.text.markdown import prose


def rank_findings(run: DistributedRun) -> None:
    """Draw the findings, by the step time that they save, the first one open."""
    if not run.results:
        return
    with st.container(border=True):
        st.markdown("**Findings**")
        for number, finding, whole in nested(run.findings):
            badge = f":{PRIORITY_COLORS[finding.priority]}-badge[{finding.priority.value}]"
            label = f"{'' if whole is None else '↳ '}P{number} {badge} {prose(finding.title)}"
            with st.expander(label, expanded=number == 1):
                _card(finding, whole, number)
        if not run.findings:
            st.info(NO_FINDING)
        if len(run.findings) > 1:
            st.caption("Savings of findings do not add up if they concern the same time.")
        for result in run.results.values():
            for note in result.notes:
                st.caption(prose(note))


def _card(finding: Finding, whole: int | None, number: int) -> None:
    if whole is not None:
        st.markdown(part_of(whole))
    st.markdown(prose(finding.issue))
    actions = (*finding.algorithmic, *finding.kernel)
    st.markdown("\n".join(f"- {prose(action)}" for action in actions))
    evidence_table(finding, f"ranks_{number}")
    st.caption(prose((*finding.caveat, *finding.verify)))
