"""What the browser's window is like, if that changes while a page is shown.

Names in tables are cut to the room that a wide window has, and charts have colors of the theme.
"""

import streamlit as st

_WIDE_PX = 1600
_EXTRA_PX = 320
"""Minimum room that a wide window adds to that of 1280 pixels."""

_KEY, _IS_WIDE = "_window", "_is_wide"

_SCRIPT = """
export default ({ data, setStateValue }) => {
  const app = document.querySelector("[data-testid=stApp]")
  const known = { is_wide: data.is_wide, theme: data.theme }
  const tell = () => {
    const now = { is_wide: innerWidth >= data.wide_px, theme: getComputedStyle(app).colorScheme }
    for (const [name, value] of Object.entries(now)) {
      if (value === known[name]) continue
      known[name] = value
      setStateValue(name, value)
    }
  }
  // One handler each, though this runs for each rerun. Streamlit changes a class with the theme.
  window.onresize = tell
  window.jarvisTheme?.disconnect()
  window.jarvisTheme = new MutationObserver(tell)
  window.jarvisTheme.observe(app, { attributeFilter: ["class"] })
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
    data = {"is_wide": is_wide(), "wide_px": _WIDE_PX, "theme": st.context.theme.type}
    _component(key=_KEY, data=data, on_is_wide_change=_note, on_theme_change=lambda: None, height=0)


def _note() -> None:
    st.session_state[_IS_WIDE] = st.session_state[_KEY].get("is_wide")
