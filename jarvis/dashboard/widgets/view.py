"""Scroll a part of the page into view, once."""

import streamlit as st

_SCRIPT = """
export default ({ data }) => {
  let isMoved = false // by the user, while parts above are still drawn
  for (const kind of ["wheel", "keydown", "pointerdown"])
    addEventListener(kind, () => { isMoved = true }, { once: true, capture: true })
  const show = () => {
    const part = document.querySelector(`.st-key-${data}`)
    if (!part || isMoved) return
    part.style.scrollMarginTop = "4.5rem"
    part.scrollIntoView({ block: "start" })
  }
  for (const delay of [0, 300, 800, 1600]) setTimeout(show, delay)
}
"""

_component = st.components.v2.component("jarvis_into_view", js=_SCRIPT)


def bring_into_view(key: str) -> None:
    """Scroll to the container with this key."""
    _component(key=f"_view_{key}", data=key, height=0)
