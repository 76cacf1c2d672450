"""Patch of the browser history: one entry per user action.

Streamlit's front end pushes two or three entries for a page change: the old page without its
parameters, the old page with those of the new one, and the new page. "Back" would then open a page
that the user has not seen, with the analysis of the page after it.
"""

import streamlit as st

_SCRIPT = """
export default () => {
  if (window.hasOneHistoryEntryPerAction) return
  window.hasOneHistoryEntryPerAction = true
  const push = history.pushState.bind(history)
  let isEntered = false // since the user last did something
  history.pushState = (...entry) => {
    isEntered ? history.replaceState(...entry) : push(...entry)
    isEntered = true
  }
  for (const kind of ["pointerdown", "keydown", "popstate"])
    addEventListener(kind, () => { isEntered = false }, true)
}
"""

_component = st.components.v2.component("jarvis_browser_history", js=_SCRIPT)


def install_history_patch() -> None:
    """Install the patch in this browser tab once; draw nothing."""
    _component(key="_browser_history", height=0)
