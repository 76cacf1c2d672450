"""Scroll a part of the page into view, once."""

import streamlit as st

_SCRIPT = """
export default ({ data }) => {
  const { key, most_below_px } = data
  let isMoved = false // by the user, while parts above are still drawn
  for (const kind of ["wheel", "keydown", "pointerdown"])
    addEventListener(kind, () => { isMoved = true }, { once: true, capture: true })
  const show = () => {
    const part = document.querySelector(`.st-key-${key}`)
    if (!part || isMoved) return
    part.style.scrollMarginTop = "4.5rem"
    if (most_below_px === null) return part.scrollIntoView({ block: "start" })
    const hidden = part.getBoundingClientRect().top + most_below_px - innerHeight
    const page = part.closest('[data-testid="stMain"]')
    if (hidden > 0 && page) page.scrollBy(0, hidden)
  }
  for (const delay of [0, 300, 800, 1600]) setTimeout(show, delay)
}
"""

_component = st.components.v2.component("jarvis_into_view", js=_SCRIPT)


def bring_into_view(key: str, visible_px: int | None = None) -> None:
    """Scroll to the container with this key.

    With ``visible_px``, scroll only as far as its first pixels, so that what is above it stays.
    """
    data = {"key": key, "most_below_px": visible_px}
    _component(key=f"_view_{key}", data=data, height=0)
