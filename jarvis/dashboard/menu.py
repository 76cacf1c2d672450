"""The menu: pages of their own, and one page for each analysis, also of extensions."""

from functools import partial

import streamlit as st
from streamlit.errors import StreamlitAPIException
from streamlit.navigation.page import StreamlitPage

from jarvis.analyses import load_analyses
from jarvis.analyses.base import AnalysisManifest
from jarvis.core.workspace import resource
from jarvis.dashboard import sidebar
from jarvis.dashboard.pages.category import page as category
from jarvis.dashboard.pages.system import page as system
from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.state import opened
from jarvis.findings import Tier
from jarvis.server.settings import settings
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


Menu = dict[str, list[StreamlitPage]]


def menu(catalog: Catalog) -> Menu:
    """Return the menu's sections with their pages, including those of plugins in stored runs."""
    return {
        "": [
            _file_page("ingest", "Ingest", "upload_file", is_default=True),
            st.Page(_to_ingest, title="Ingest", url_path="ingest", visibility="hidden"),
            _file_page("overview", "Overview", "dashboard"),
        ],
        "Kernels": [*_analysis_pages("compute"), *plugin_pages("compute", catalog)],
        "System": [
            *_analysis_pages("system"),
            *_analysis_pages("fusion"),
            *plugin_pages("system", catalog),
            _file_page("timeline", "Timeline", "view_timeline"),
            _file_page("call_tree", "Call tree", "account_tree"),
        ],
        "Results": [
            _file_page("what_if", "What-if", "alt_route"),
            _file_page("compare", "Compare", "compare_arrows"),
            _file_page("report", "Report", "description"),
            _file_page("replay", "Replay", "replay"),
            _file_page("hardware", "Hardware", "memory"),
            _file_page("jobs", "Jobs", "checklist"),
            _file_page("access", "Access", "key", is_shown=settings().access != "off"),
        ],
    }


def _file_page(
    name: str, title: str, icon: str, *, is_default: bool = False, is_shown: bool = True
) -> StreamlitPage:
    path = resource("pages") / f"{name}.py"
    # The default page is served at the root but still reserves the URL path of its file name.
    url_path = "start" if is_default else name
    return st.Page(
        path,
        title=title,
        icon=f":material/{icon}:",
        url_path=url_path,
        default=is_default,
        visibility="visible" if is_shown else "hidden",
    )


def _to_ingest() -> None:
    """Redirect ``/ingest`` to the root, where the default page is served."""
    navigation.go(navigation.INGEST)


def _analysis_pages(tier: str) -> list[StreamlitPage]:
    render = category.render if tier == "compute" else system.render
    return [
        st.Page(partial(render, analysis), title=analysis.title, icon=analysis.icon, url_path=key)
        for key, analysis in load_analyses().items()
        if analysis.tier == tier
    ]
