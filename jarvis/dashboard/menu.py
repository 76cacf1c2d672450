"""The menu: pages of their own, and one page for each analysis, also of extensions."""

from copy import copy
from functools import lru_cache, partial

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

_MAX_CACHED = 64

START = "_start_page"
"""Session key of the page at the root."""

START_PAGES = {
    navigation.RUNS: ("Runs", "list_alt"),
    navigation.INGEST: ("Ingest", "upload_file"),
}
"""Pages that the root can show: titles and icons."""

_CONTROLS = {navigation.RUNS: ("runs_",), navigation.INGEST: ("ingest_", "archive_")}
"""Prefixes of the URL parameters of these pages."""


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
    analysis = opened().stored.analyses.get(key)
    if analysis is None:
        st.info("This analysis was run without the extension of this page.")
        navigation.link(navigation.OVERVIEW, "Overview", icon=":material/dashboard:")
    elif analysis.tier == "compute":
        category.render(analysis)
    else:
        system.render(analysis)


Menu = dict[str, list[StreamlitPage]]


def start_page(catalog: Catalog) -> str:
    """Return the page at the root: the list of runs, or *Ingest* if there are none.

    Links to the root with controls of a page open that page. A session keeps its start page, also
    after its first analysis, so that the page of a user does not change while it is used.
    """
    if START not in st.session_state:
        pages = [name for name, prefixes in _CONTROLS.items() if _is_given(prefixes)]
        default = navigation.RUNS if catalog.entries else navigation.INGEST
        st.session_state[START] = pages[0] if pages else default
    start: str = st.session_state[START]
    return start


def _is_given(prefixes: tuple[str, ...]) -> bool:
    return any(name.startswith(prefixes) for name in st.query_params)


def menu(catalog: Catalog) -> Menu:
    """Return the menu's sections with their pages, including those of plugins in stored runs."""
    start = start_page(catalog)
    is_inference = _has_table(catalog, sidebar.requested_id(catalog), "inference_steps")
    return {
        "": [
            *(
                page
                for name, (title, icon) in START_PAGES.items()
                for page in _start_pages(name, title, icon, is_start=name == start)
            ),
            _file_page("overview", "Overview", "dashboard"),
        ],
        "Kernels": [*_analysis_pages("compute"), *plugin_pages("compute", catalog)],
        "System": [
            *_analysis_pages("system"),
            *_analysis_pages("fusion"),
            *plugin_pages("system", catalog),
            _file_page("timeline", "Timeline", "view_timeline"),
            _file_page("call_tree", "Call tree", "account_tree"),
            _file_page("ranks", "Ranks", "lan", is_shown=bool(catalog.distributed)),
        ],
        "Inference": [
            *_analysis_pages("system", of_inference=True, is_shown=is_inference),
            _file_page("serving", "Serving", "speed", is_shown=is_inference),
            _file_page("layers", "Layers", "layers", is_shown=is_inference),
            _file_page("graphs", "Graphs", "hub", is_shown=is_inference),
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


def _has_table(catalog: Catalog, analysis_id: str | None, table: str) -> bool:
    """Return whether the stored run of an analysis has a table."""
    manifests = (entry.manifest for entry in catalog.entries if entry.id == analysis_id)
    return any(table in manifest.tables for manifest in manifests)


def _start_pages(name: str, title: str, icon: str, *, is_start: bool) -> list[StreamlitPage]:
    """Return a page; the start page twice, as it is served at the root and at its own URL path."""
    own = _file_page(name, title, icon, is_shown=not is_start)
    return [_file_page(name, title, icon, url_path="start"), own] if is_start else [own]


def _file_page(
    name: str, title: str, icon: str, *, url_path: str | None = None, is_shown: bool = True
) -> StreamlitPage:
    return copy(_known_file_page(name, title, icon, url_path, is_shown=is_shown))


@lru_cache(_MAX_CACHED)
def _known_file_page(
    name: str, title: str, icon: str, url_path: str | None, *, is_shown: bool
) -> StreamlitPage:
    """Return a page to copy: a rerun changes its pages, and Streamlit looks for the file of each
    new one."""
    return st.Page(
        resource("pages") / f"{name}.py",
        title=title,
        icon=f":material/{icon}:",
        url_path=url_path or name,
        default=url_path is not None,
        visibility="visible" if is_shown else "hidden",
    )


def _analysis_pages(
    tier: Tier, *, of_inference: bool = False, is_shown: bool = True
) -> list[StreamlitPage]:
    """Return the pages of a tier: of the analyses of all runs, or of those of inference only."""
    render = category.render if tier == "compute" else system.render
    return [
        st.Page(
            partial(render, analysis),
            title=analysis.title,
            icon=analysis.icon,
            url_path=key,
            visibility="visible" if is_shown else "hidden",
        )
        for key, analysis in load_analyses().items()
        if analysis.tier == tier and bool(analysis.only_with) == of_inference
    ]
