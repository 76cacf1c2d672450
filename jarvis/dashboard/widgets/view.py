"""Scroll a part of the page into view, once."""

import streamlit as st

_SCRIPT = """
export default ({ data }) => {
  const show = (tries) => {
    const part = document.querySelector(`.st-key-${data}`)
    if (part) part.scrollIntoView({ block: "start" })
    else if (tries) setTimeout(show, 100, tries - 1)
  }
  show(20)
}
"""

_component = st.components.v2.component("jarvis_into_view", js=_SCRIPT)


def bring_into_view(key: str) -> None:
    """Scroll to the container with this key."""
    _component(key=f"_view_{key}", data=key, height=0)
