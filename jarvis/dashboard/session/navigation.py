"""Links from page to page, which carry the analysis, and the browser's history."""

from collections.abc import Iterable
from urllib.parse import parse_qs, urlencode, urlsplit

import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.navigation.page import StreamlitPage

from jarvis.dashboard.session.carried import carried
from jarvis.dashboard.session.links import ANALYSIS
from jarvis.dashboard.session.state import current_id

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


RUNS, INGEST = "runs", "ingest"
OVERVIEW, TIMELINE, CALL_TREE, REPLAY = "overview", "timeline", "call_tree", "replay"
COMPARE, HARDWARE, JOBS, RANKS = "compare", "hardware", "jobs", "ranks"
"""URL paths of pages; those of analyses are their keys."""

_RANK_LINKS = "rank_links"
_RANK_LINK = f"[class*=st-key-{_RANK_LINKS}] [data-testid=stPageLink-NavLink]"
_RANK_LINK_STYLE = (
    f"<style>{_RANK_LINK}:not(:hover) {{background: none}} "
    f"{_RANK_LINK} p {{font-weight: inherit}}</style>"
)
_PAGES, _FOLLOWED = "_pages", "_followed"


def remember(pages: Iterable[StreamlitPage], start: str | None = None) -> None:
    """Store the pages of the menu as targets of links; ``start`` is the one at the root."""
    targets = {page.url_path: page for page in pages}
    if start is not None:
        targets[start] = targets[""]
    st.session_state[_PAGES] = targets


def rank_links(name: str) -> DeltaGenerator:
    """Return a container of links to the open page of other ranks, which do not look like that to
    the open page.

    Only pages with such links have the style: browsers match ``:not(:hover)`` at every change.
    """
    st.html(_RANK_LINK_STYLE)
    return st.container(
        horizontal=True, gap="small", vertical_alignment="center", key=f"{_RANK_LINKS}_{name}"
    )


def link(url_path: str, label: str, *, icon: str | None = None, **parameters: str) -> None:
    """Draw a link to another page."""
    st.page_link(
        st.session_state[_PAGES][url_path],
        label=label,
        icon=icon,
        query_params=_with_analysis(parameters),
    )


def menu_link(page: StreamlitPage, label: str, help_text: str = "") -> None:
    """Draw a link of the menu; opened in a new tab, it shows the same analysis."""
    st.page_link(page, label=label, help=help_text, query_params=_with_analysis({}))


def address(url_path: str, analysis_id: str, **parameters: str) -> str:
    """Return the relative URL of a page, for links in tables."""
    return f"{url_path}?{urlencode({ANALYSIS: analysis_id} | parameters)}"


def own_address(url_path: str, **parameters: str) -> str:
    """Return the relative URL of a page of the open analysis, at its targets."""
    return f"{url_path}?{urlencode(_with_analysis(parameters))}"


def follow(address: str) -> None:
    """Switch to the page of ``address`` on this rerun, from a callback; it keeps the session."""
    st.session_state[_FOLLOWED] = address


def switch_if_followed() -> None:
    """Switch to the page that a callback chose with ``follow``, if one did."""
    address = urlsplit(st.session_state.pop(_FOLLOWED, ""))
    if address.path:
        page = st.session_state[_PAGES][address.path]
        st.switch_page(page, query_params=parse_qs(address.query))


def leave_to(url_path: str, **parameters: str) -> None:
    """Switch to another page with these parameters, without those of this one."""
    # Without a mapping, Streamlit refuses to drop parameters of controls.
    st.switch_page(st.session_state[_PAGES][url_path], query_params=parameters)


def _with_analysis(parameters: dict[str, str]) -> dict[str, str]:
    current = current_id()
    return parameters if current is None else {ANALYSIS: current, **carried(), **parameters}
