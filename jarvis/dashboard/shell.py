"""The frame of every page: menu, sidebar, page body and error messages."""

from collections.abc import Callable
from importlib import import_module

import streamlit as st

from jarvis.charts import Palette, ink
from jarvis.dashboard import login, sidebar
from jarvis.dashboard.isolation import show_failure
from jarvis.dashboard.menu import Menu, menu, start_page
from jarvis.dashboard.page_links import page_links, searched_pages
from jarvis.dashboard.session import links, navigation, state
from jarvis.dashboard.session.current_user import visible_catalog
from jarvis.dashboard.session.navigation import install_history_patch
from jarvis.dashboard.session.state import NotOneRankError
from jarvis.dashboard.sidebar import show_removal_notice
from jarvis.dashboard.widgets.distributed import rank_choice
from jarvis.dashboard.widgets.finding_cards import EVIDENCE
from jarvis.dashboard.widgets.job_view import job_chip
from jarvis.dashboard.widgets.keyboard import keyboard
from jarvis.dashboard.widgets.window import watch_window
from jarvis.server.storage.catalog import Catalog, name_of

# Streamlit imports it lazily; Altair, in another session's thread, could then use it half imported.
import_module("pandas")

_NAME = "Jarvis"
_SIDEBAR_PX = 300
"""Wide enough for the name of a trace and its GPU."""


def main() -> None:
    """Draw the page of the URL."""
    st.set_page_config(
        page_title=_NAME,
        page_icon=_tab_icon(state.palette()),
        layout="wide",
        initial_sidebar_state=_SIDEBAR_PX,
    )
    st.logo(_logo(state.palette()), size="large")
    st.html(_style(state.palette()))
    try:
        _draw_page()
    except Exception as error:  # mostly database errors: no page works without it
        show_failure(error, "This page")
        st.caption("Reload once this is fixed; your view is kept in the URL.")


def _draw_page() -> None:
    login.gate()
    catalog = visible_catalog()
    sections = menu(catalog)
    every = (page for pages in sections.values() for page in pages)
    navigation.remember(every, start_page(catalog))
    page = st.navigation(sections, position="hidden")
    if (parameters := links.renamed()) is not None:
        st.switch_page(page, query_params=parameters)
    navigation.switch_if_followed()
    st.set_page_config(page_title=tab_title(page.title, sidebar.requested_id(catalog), catalog))
    draw(page.run, page.url_path, catalog, sections)
    install_history_patch()


def tab_title(page: str, analysis_id: str | None, catalog: Catalog) -> str:
    """Return the title of the browser tab: page, name of the open analysis, product."""
    names = (name_of(entry.manifest) for entry in catalog.entries if entry.id == analysis_id)
    return " · ".join([page, *names, _NAME])


def draw(body: Callable[[], None], url_path: str, catalog: Catalog, sections: Menu) -> None:
    """Draw a page and the sidebar; an exception is shown as an error message."""
    with state.one_rerun():
        _draw(body, url_path, catalog, sections)


def _draw(body: Callable[[], None], url_path: str, catalog: Catalog, sections: Menu) -> None:
    links.begin_page(url_path)
    show_removal_notice()
    with st.sidebar:
        sidebar.choose_analysis(catalog)
        facts_slot = st.container()
        with st.container(horizontal=True, gap="small"):
            link_slot, menu_slot = st.container(width="stretch"), st.container(width="stretch")
        jobs_slot = st.container()
        login.user_line()
        keyboard(searched_pages(sections))
        pages_slot = st.container()
        watch_window()
    try:
        body()
        with facts_slot:
            sidebar.describe_analysis(catalog)
            sidebar.rank_links(catalog, url_path)
        with menu_slot:
            sidebar.manage_analysis(catalog)
    except NotOneRankError as error:
        rank_choice(catalog.find_distributed(error.analysis_id), url_path)
    except Exception as error:
        show_failure(error, "This page")
        next_steps()
    with pages_slot:  # after the page, whose text the browser then shows before it draws the links
        page_links(sections, sidebar.marks_of_opened(catalog))
    with link_slot:
        sidebar.copy_link(url_path)
    with jobs_slot:
        job_chip()


def _style(colors: Palette) -> str:
    """Return styles that Streamlit has no option for.

    Text on the primary color, which Streamlit has as white in any theme. Names and options in one
    line where they fit: browsers break ``--an-option`` at hyphens. Evidence of findings in as many
    columns as fit.
    """
    evidence = f"[class*=st-key-{EVIDENCE}_]"
    return (
        "<style>[data-testid^=stBaseButton-primary]:not(:disabled),"
        f"[data-testid=stMultiSelect] [data-tag] {{color: {ink(colors.primary)}}}"
        "[data-testid=stMarkdownContainer] :is(p, li) > code {display: inline-block; "
        "max-width: 100%}"
        f"{evidence} table {{display: block; border: 0}}"
        f"{evidence} thead {{position: absolute; clip-path: inset(50%)}}"
        f"{evidence} tr {{display: grid; grid-template-columns: 13rem minmax(0, 1fr)}}"
        f"{evidence} td {{border-width: 0 0 1px; overflow-wrap: anywhere}}"
        f"{evidence} [data-testid=stElementContainer]:not(:last-child) tbody, "
        f"{evidence} [data-testid=stElementContainer]:only-child tbody {{display: grid; "
        "column-gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(min(22rem, 100%), 1fr))}"
        "</style>"
    )


def _logo(colors: Palette) -> str:
    """Return the logo with the name as SVG."""
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 118 32" width="118" height="32">'
        f"{_mark(colors)}"
        f'<text x="42" y="24" font-family="Source Sans, sans-serif" font-size="23" '
        f'font-weight="700" fill="{colors.text}">Jarvis</text></svg>'
    )


def _tab_icon(colors: Palette) -> str:
    """Return the square logo as SVG; browsers would fetch a named icon from another server."""
    svg = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 36 36" width="64" height="64">'
    return f"{svg}{_mark(colors)}</svg>"


def _mark(colors: Palette) -> str:
    """Return the logo's shapes: a roofline with an operation below it."""
    return (
        f'<path d="M3 28 L16 8 H33" fill="none" stroke="{colors.primary}" stroke-width="3.4" '
        'stroke-linecap="round" stroke-linejoin="round"/>'
        f'<circle cx="25" cy="19" r="4" fill="{colors.below_threshold}"/>'
    )


def next_steps() -> None:
    """Draw links for a page that cannot be shown."""
    if state.current_id() is not None:
        st.caption("Choose another analysis in the sidebar, or start a new one.")
    navigation.link(navigation.INGEST, "Analyze a trace", icon=":material/upload_file:")
