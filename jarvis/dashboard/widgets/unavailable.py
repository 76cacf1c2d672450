"""What a run cannot tell because a performance report stood in place of its trace."""

from collections.abc import Iterable

import streamlit as st

from jarvis.dashboard.session import navigation
from jarvis.perf_report.unavailable import unavailable_reason
from jarvis.run import Run


def is_unavailable(run: Run, tables: Iterable[str]) -> bool:
    """Whether a page has nothing to show without these tables; says so then."""
    sentence = unavailable_reason(run.manifest.absent_tables, tables)
    if sentence is None:
        return False
    st.info(sentence, icon=":material/visibility_off:")
    navigation.link(navigation.OVERVIEW, "Overview", icon=":material/dashboard:")
    return True
