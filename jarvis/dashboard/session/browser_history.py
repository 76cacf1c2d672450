"""One entry in the browser's history for each thing that the user does.

Streamlit's front end enters a change of page two or three times: the old page without its
parameters, with those of the new one, and the new page. "Back" then leads to a page that nobody
has seen, with the analysis of the page after it.
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
    """Mend the history of this browser tab, once; draws nothing."""
    _component(key="_browser_history", height=0)
