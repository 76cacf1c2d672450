"""Navigation menu: fixed pages, and one page for each registered analysis."""

from functools import partial

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from jarvis.analyses import load_analyses
from jarvis.core.workspace import resource
from jarvis.dashboard.pages.category import page as category
from jarvis.dashboard.pages.system import page as system
from jarvis.dashboard.plugin_pages import plugin_pages
from jarvis.dashboard.session import navigation
from jarvis.server.settings import settings
from jarvis.server.storage.catalog import Catalog

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
