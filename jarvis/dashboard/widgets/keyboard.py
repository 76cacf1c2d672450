"""Keyboard shortcuts and the search, which answers from the server while its dialog is open."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from jarvis.core.errors import JarvisError
from jarvis.dashboard.session import state
from jarvis.dashboard.session.current_user import current_user, visible_catalog
from jarvis.dashboard.session.state import Opened
from jarvis.dashboard.widgets.search import all_findings, find
from jarvis.dashboard.widgets.targets import at_chosen_targets
from jarvis.server.access.rights import Role, may

COMPONENT = "jarvis_keyboard"
_KEY = "_keyboard"
_ASKED = "_keyboard_asked"
_MAX_QUERY = 200


def _source(ending: str) -> str:
    return Path(__file__).with_suffix(ending).read_text(encoding="utf-8")


_component = st.components.v2.component(
    COMPONENT, html=_source(".html"), css=_source(".css"), js=_source(".js")
)


@st.fragment
def keyboard(pages: Sequence[StreamlitPage]) -> None:
    """Draw the buttons of the search and of the list of shortcuts; answer a query."""
    if not may(current_user(), Role.VIEWER):
        st.rerun()  # the login has expired: the page shows the login form
    asked = st.session_state.pop(_ASKED, None)
    data = answer(pages, asked) if isinstance(asked, dict) else _NOTHING
    _component(key=_KEY, data=data, on_asked_change=_note)


_NOTHING: dict[str, Any] = {"query": "", "is_findings": False, "results": []}


def answer(pages: Sequence[StreamlitPage], asked: dict[str, Any]) -> dict[str, Any]:
    """Return the results of a query in what the user may see now."""
    query = str(asked.get("query", ""))[:_MAX_QUERY]
    is_findings = bool(asked.get("is_findings"))
    now = _opened()
    if is_findings:
        results = [] if now is None else all_findings(now)
    else:
        results = find(query, pages, now, visible_catalog())
    return {"query": query, "is_findings": is_findings, "results": results}


def _opened() -> Opened | None:
    try:
        return at_chosen_targets(state.opened())
    except (JarvisError, OSError):  # the page says so
        return None


def _note() -> None:
    st.session_state[_ASKED] = st.session_state[_KEY].get("asked")
