"""Whole percentages that all pages of an analysis share, in the URL and from page to page.

A control bound to the URL keeps its value only while it is drawn.
"""

from collections.abc import Mapping

import streamlit as st

from jarvis.dashboard.session.links import check_parameter, note_control, url_path

SLIDER_RANGE_PCT = (5, 100)

_CHOSEN, _SEEN, _PAGE = "_carried", "_carried_seen", "_carried_page"


def is_percentage(text: str) -> bool:
    """Return whether a URL's value is a percentage that sliders have."""
    low, high = SLIDER_RANGE_PCT
    return text.isdecimal() and low <= int(text) <= high


def carried() -> Mapping[str, str]:
    """Return the chosen values by parameter, for links to other pages."""
    return {name: str(value) for name, value in _chosen().items()}


def read(parameter: str, default_pct: float) -> float:
    """Return the percentage that the URL or an earlier page chose, else the default.

    A URL without the parameter means the default if it replaced one with it on the same page, as
    the browser's Back does; links to other pages can lack it.
    """
    check_parameter(parameter, is_percentage, f"{default_pct:g}")
    seen = st.session_state.setdefault(_SEEN, {})
    given, last = st.query_params.get(parameter), seen.get(parameter)
    if given is not None and given != last:
        choose(parameter, int(given) if is_percentage(given) else None)
    elif given is None and last is not None and not is_other_page(parameter):
        choose(parameter, None)
    chosen = _chosen().get(parameter)
    return default_pct if chosen is None else chosen


def is_other_page(parameter: str) -> bool:
    """Return whether the page differs from the last one that had the parameter."""
    return bool(st.session_state.get(_PAGE, {}).get(parameter) != url_path())


def choose(parameter: str, value_pct: int | None) -> None:
    """Choose a value for all pages; None is the default."""
    if value_pct is None:
        _chosen().pop(parameter, None)
    else:
        _chosen()[parameter] = value_pct


def choose_by_control(parameter: str, value_pct: int) -> None:
    """Choose the value of a control that changed, whatever the URL has, which can be older."""
    choose(parameter, value_pct)
    st.session_state.setdefault(_SEEN, {})[parameter] = st.query_params.get(parameter)


def write(parameter: str, value_pct: float, default_pct: float, *, is_own: bool = False) -> None:
    """Put a value into the URL, which omits the default, and into the page's link.

    A value of a category's own is not in the link if it is the default.
    """
    seen = st.session_state.setdefault(_SEEN, {})
    st.session_state.setdefault(_PAGE, {})[parameter] = url_path()
    if value_pct == default_pct:
        choose(parameter, None)
        st.query_params.pop(parameter, None)
        seen.pop(parameter, None)
    else:
        st.query_params[parameter] = seen[parameter] = f"{value_pct:g}"
    if is_percentage(f"{value_pct:g}") and not (is_own and value_pct == default_pct):
        note_control(parameter, f"{value_pct:g}")


def _chosen() -> dict[str, int]:
    chosen: dict[str, int] = st.session_state.setdefault(_CHOSEN, {})
    return chosen
