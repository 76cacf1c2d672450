"""URL parameters: the analysis and every control, so that a copied link shows the same page."""

from collections.abc import Callable, Mapping
from urllib.parse import urlencode, urlsplit, urlunsplit

import streamlit as st

from jarvis.analyses import load_analyses
from jarvis.text.markdown import prose

ANALYSIS = "analysis"
"""The URL parameter that names the analysis."""

REFERENCE = "reference"
"""The URL parameter that names the reference of a comparison."""

TARGET, BELOW = "target", "below"
"""URL parameters of the target efficiency and of the highlight threshold, which all pages share."""

RENAMED: Mapping[str, str] = {
    "overview_target": TARGET,
    **{f"{key}_below": BELOW for key in load_analyses()},
}
"""Parameter names of earlier releases and their current names."""

_CONTROLS, _PAGE = "_controls", "_page"
_CHECKED = "_checked_parameters"
_NOTICES = "_notices"


def begin_page(path: str) -> None:
    """Reset the link of the page of a URL path, and reserve the place of notices at its top."""
    st.session_state[_CONTROLS], st.session_state[_PAGE] = {}, path
    st.session_state[_NOTICES] = st.container()


def url_path() -> str:
    """Return the URL path of the page that is drawn."""
    path: str = st.session_state[_PAGE]
    return path


def current_name(parameter: str) -> str:
    """Return the current name of a parameter."""
    return RENAMED.get(parameter, parameter)


def renamed() -> dict[str, list[str]] | None:
    """Return the URL's parameters under their current names; None if none is renamed."""
    if RENAMED.keys().isdisjoint(st.query_params):
        return None
    return {current_name(name): st.query_params.get_all(name) for name in st.query_params}


def notice(text: str) -> None:
    """Show at the top of the page which part of its link could not be used."""
    st.session_state[_NOTICES].warning(prose(text), icon=":material/link_off:")


def note_control(key: str, value: object) -> None:
    """Put a control's value into the page's link: defaults too, each of a list, no empty ones."""
    if value not in (None, "", []):
        st.session_state[_CONTROLS][key] = value


def page_link_url(url_path: str, analysis_id: str | None) -> str:
    """Return the URL of the page with the values of all controls."""
    parameters = {ANALYSIS: analysis_id} if analysis_id else {}
    query = urlencode(parameters | st.session_state[_CONTROLS], doseq=True)
    here = urlsplit(st.context.url or f"/{url_path}")
    return urlunsplit((here.scheme, here.netloc, here.path, query, ""))


def check_parameter(key: str, is_valid: Callable[[str], bool], instead: object) -> None:
    """Show a notice if the URL has an invalid value for a control.

    The control then uses its default, ``instead``. Each value is checked once.
    """
    given = st.query_params.get(key)
    checked = st.session_state.setdefault(_CHECKED, {})
    if given is None or checked.get(key) == given:
        return
    checked[key] = given
    if not is_valid(given):
        notice(
            f"The link has {key} = {given[:40]!r}, which is not valid here; {instead} is used "
            "instead."
        )
