"""Folds whose content is drawn only while they are open."""

import streamlit as st
from streamlit.elements.lib.mutable_expander_container import ExpanderContainer

from jarvis.dashboard.links import check_parameter, note_control

_OPEN, _CLOSED = "true", "false"


def lazy_fold(label: str, key: str, *, icon: str | None = None) -> ExpanderContainer:
    """A closed expander; ask its ``open`` before drawing in it.

    What is in a closed one costs a page as much as if it were seen. Whether it is open stands in
    the URL as ``key``.
    """
    check_parameter(key, lambda text: text in (_OPEN, _CLOSED), "closed")
    fold = st.expander(label, key=key, icon=icon, on_change="rerun", bind="query-params")
    if fold.open:
        note_control(key, _OPEN)
    return fold
