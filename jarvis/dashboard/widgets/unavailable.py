"""Message for pages whose tables a run lacks because it was imported from a performance report."""

from collections.abc import Iterable

import streamlit as st

from jarvis.dashboard.session import navigation
from jarvis.perf_report.unavailable import unavailable_reason
from jarvis.run import Run


def is_unavailable(run: Run, tables: Iterable[str]) -> bool:
    """Return whether the run lacks a page's tables; if so, show why."""
    reason = unavailable_reason(run.manifest.absent_tables, tables)
    if reason is None:
        return False
    st.info(reason, icon=":material/visibility_off:")
    navigation.link(navigation.OVERVIEW, "Overview", icon=":material/dashboard:")
    return True
