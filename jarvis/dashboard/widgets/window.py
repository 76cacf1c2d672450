"""Whether the browser's window is wide: names in tables are cut to the room that they have."""

import streamlit as st

_WIDE_PX = 1600
_EXTRA_PX = 320
"""Minimum room that a wide window adds to that of 1280 pixels."""

_KEY, _IS_WIDE = "_window", "_is_wide"

_SCRIPT = """
export default ({ data, setStateValue }) => {
  let isKnownWide = data.is_wide
  const tell = () => {
    const isWide = innerWidth >= data.wide_px
    if (isWide === isKnownWide) return
    isKnownWide = isWide
    setStateValue("is_wide", isWide)
  }
  window.onresize = tell // one handler, though this runs for each rerun
  tell()
}
"""

_component = st.components.v2.component("jarvis_window", js=_SCRIPT)


def is_wide() -> bool:
    """Return whether the window has at least _WIDE_PX pixels; False until the browser has sent
    that."""
    return bool(st.session_state.get(_IS_WIDE, False))


def extra_px() -> int:
    """Return the room that the window adds to that of one of 1280 pixels."""
    return _EXTRA_PX if is_wide() else 0


def watch_window() -> None:
    """Ask the browser; the page is drawn again if the answer is not that of the last page."""
    data = {"is_wide": is_wide(), "wide_px": _WIDE_PX}
    _component(key=_KEY, data=data, on_is_wide_change=_note, height=0)


def _note() -> None:
    st.session_state[_IS_WIDE] = st.session_state[_KEY].get("is_wide")
