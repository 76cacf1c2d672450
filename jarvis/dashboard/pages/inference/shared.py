"""What the pages of inference share: their tables, and the message of a run without them."""

from collections.abc import Iterable

import streamlit as st

from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.state import Opened
from jarvis.pipeline import has_fixed_findings
from jarvis.text.markdown import prose

STEPS = "inference_steps"


def is_missing(now: Opened, table: str) -> bool:
    """Return whether the run lacks a table of inference; if so, show why."""
    if table in now.run.manifest.tables:
        return False
    text = "No inference engine marks steps in this trace, and no GPU graph is replayed."
    if has_fixed_findings(now.run):
        text = f"{text} Or the release that analyzed it lacks these tables: analyze it again."
    st.info(text, icon=":material/visibility_off:")
    navigation.link(navigation.OVERVIEW, "Overview", icon=":material/dashboard:")
    return True


def findings_link(now: Opened) -> None:
    """Draw the link to the findings of inference, if the run has any analysis of them."""
    if now.run.results.get("inference"):
        navigation.link(
            "inference", "Findings on steps, layers and graphs", icon=":material/token:"
        )


def remarks(lines: Iterable[str]) -> None:
    """Draw sentences about the figures of a page."""
    if texts := [prose(line) for line in lines]:
        listed = texts if len(texts) == 1 else [f"- {text}" for text in texts]
        st.info("\n".join(listed), icon=":material/info:")
