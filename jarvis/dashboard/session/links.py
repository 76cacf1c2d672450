"""What the URL holds: the analysis and every control, so that a copied link shows the same page."""

from collections.abc import Callable, Mapping
from urllib.parse import urlencode, urlsplit, urlunsplit

import streamlit as st

from jarvis.text.markdown import prose

ANALYSIS = "analysis"
"""The URL parameter that names the analysis."""

RENAMED: Mapping[str, str] = {}
"""Parameters of links of earlier releases, and what they are called now."""

_CONTROLS = "_controls"
_JUDGED = "_judged_parameters"
_NOTICES = "_notices"


def begin_page() -> None:
    """Start a page: nothing is in its link yet; words about a bad link go to its top."""
    st.session_state[_CONTROLS] = {}
    st.session_state[_NOTICES] = st.container()


def current_name(parameter: str) -> str:
    """What a parameter of a link is called in this version."""
    return RENAMED.get(parameter, parameter)


def renamed() -> dict[str, str] | None:
    """The parameters of the URL under the names of this version; None where they have them."""
    given = st.query_params.to_dict()
    if RENAMED.keys().isdisjoint(given):
        return None
    return {current_name(name): value for name, value in given.items()}


def notice(text: str) -> None:
    """Say at the top of the page what of its link could not be followed."""
    st.session_state[_NOTICES].warning(prose(text), icon=":material/link_off:")


def note_control(key: str, value: object) -> None:
    """Put a control's value into the page's link, defaults too; empty ones need no place."""
    if value not in (None, ""):
        st.session_state[_CONTROLS][key] = value


def page_link_url(url_path: str, analysis_id: str | None) -> str:
    """The address of the page as it is now, every control written out."""
    parameters = {ANALYSIS: analysis_id} if analysis_id else {}
    query = urlencode(parameters | st.session_state[_CONTROLS])
    here = urlsplit(st.context.url or f"/{url_path}")
    return urlunsplit((here.scheme, here.netloc, here.path, query, ""))


def check_parameter(key: str, is_valid: Callable[[str], bool], instead: object) -> None:
    """Say so where the URL gives a control a value that it cannot have.

    The control then takes its default, ``instead``. A value is judged once, when it arrives.
    """
    given = st.query_params.get(key)
    judged = st.session_state.setdefault(_JUDGED, {})
    if given is None or judged.get(key) == given:
        return
    judged[key] = given
    if not is_valid(given):
        notice(
            f"The link asks for {key} = {given[:40]!r}, which is not possible here; "
            f"{instead} is used instead."
        )
