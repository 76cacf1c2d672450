"""What the pages of inference share: their tables, and the message of a run without them."""

from collections.abc import Iterable

import streamlit as st

from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.state import Opened
from jarvis.text.markdown import escape

STEPS = "inference_steps"


def is_missing(now: Opened, table: str) -> bool:
    """Return whether the run lacks a table of inference; if so, show why."""
    if table in now.run.manifest.tables:
        return False
    st.info(
        "No inference engine marks steps in this trace, and it replays no GPU graphs. "
        "Analyses of an earlier release lack these tables, too: analyze their trace again.",
        icon=":material/visibility_off:",
    )
    navigation.link(navigation.OVERVIEW, "Overview", icon=":material/dashboard:")
    return True


def remarks(lines: Iterable[str]) -> None:
    """Draw sentences about the figures of a page."""
    st.markdown("\n".join(f"- {escape(line)}" for line in lines))
