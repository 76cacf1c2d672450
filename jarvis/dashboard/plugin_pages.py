"""Pages of plugin analyses, shown in the menu while a run that has them is open."""

from functools import partial

import streamlit as st
from streamlit.errors import StreamlitAPIException
from streamlit.navigation.page import StreamlitPage

from jarvis.analyses import load_analyses
from jarvis.analyses.card import AnalysisManifest
from jarvis.dashboard import sidebar
from jarvis.dashboard.pages.category import page as category
from jarvis.dashboard.pages.system import page as system
from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.state import opened
from jarvis.findings import Tier
from jarvis.server.storage.catalog import Catalog

_ICON = ":material/extension:"
"""Replaces an icon that Streamlit does not have."""


def plugin_pages(tier: Tier, catalog: Catalog) -> list[StreamlitPage]:
    """Return a page for each plugin analysis of any stored run, hidden unless the open run has it.

    The hidden ones keep their URLs valid while another run is being opened.
    """
    shown = _cards_of(catalog, sidebar.requested_id(catalog))
    all_cards = {
        card.key: card
        for entry in reversed(catalog.entries)
        for card in entry.manifest.added_analyses
    }
    known = load_analyses()
    return [
        _page(card, is_shown=card.key in shown)
        for card in {**all_cards, **shown}.values()
        if card.tier == tier and card.key not in known
    ]


def _cards_of(catalog: Catalog, analysis_id: str | None) -> dict[str, AnalysisManifest]:
    manifests = (entry.manifest for entry in catalog.entries if entry.id == analysis_id)
    return {card.key: card for manifest in manifests for card in manifest.added_analyses}


def _page(card: AnalysisManifest, *, is_shown: bool) -> StreamlitPage:
    try:
        return _page_with(card, card.icon, is_shown=is_shown)
    except StreamlitAPIException:  # an icon that Streamlit does not know
        return _page_with(card, _ICON, is_shown=is_shown)


def _page_with(card: AnalysisManifest, icon: str, *, is_shown: bool) -> StreamlitPage:
    return st.Page(
        partial(render, card.key),
        title=card.title,
        icon=icon,
        url_path=card.key,
        visibility="visible" if is_shown else "hidden",
    )


def render(key: str) -> None:
    """Draw the page of a plugin analysis for the open run."""
    analysis = opened().run.analyses.get(key)
    if analysis is None:
        st.info("This analysis was run without the extension of this page.")
        navigation.link(navigation.OVERVIEW, "Overview", icon=":material/dashboard:")
    elif analysis.tier == "compute":
        category.render(analysis)
    else:
        system.render(analysis)
