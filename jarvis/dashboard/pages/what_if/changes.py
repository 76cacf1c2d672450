"""The list of changes, in the URL as repeated ``change=`` parameters."""

import re

import streamlit as st

from jarvis.core.errors import ChangeError
from jarvis.dashboard.pages.what_if.simulated import alone
from jarvis.dashboard.session.links import note_control, notice
from jarvis.dashboard.session.state import Opened
from jarvis.pipeline.simulated_steps import MAX_CHANGES

CHANGE = "change"
"""The URL parameter of a change."""

TEXT = "_what_if_text"
"""Widget key of the text field; it exists while the page is shown."""

_STORED = "_what_if_changes"
_ERROR = "_what_if_error"
_NUMBER = re.compile(r"^(target|scale|host|collective)=(.+):(\d+(?:\.\d*)?)$", re.DOTALL)


def composed() -> tuple[str, ...]:
    """Return the changes of the URL, and put them into the page's link.

    A click in the menu drops the URL's parameters, so the list is stored in the session, too.
    """
    given = st.query_params.get_all(CHANGE)
    if not given and TEXT not in st.session_state and (stored := st.session_state.get(_STORED)):
        given = list(stored)
        st.query_params[CHANGE] = given
    texts = tuple(dict.fromkeys(text for text in given if text))
    if len(texts) > MAX_CHANGES:
        notice(f"The link has {len(texts)} changes; the first {MAX_CHANGES} are simulated.")
        texts = texts[:MAX_CHANGES]
    st.session_state[_STORED] = texts
    note_control(CHANGE, list(texts))
    return texts


def _write(texts: tuple[str, ...]) -> None:
    st.session_state[_STORED] = texts
    st.session_state.pop(_ERROR, None)
    if texts:
        st.query_params[CHANGE] = list(texts)
    else:
        st.query_params.pop(CHANGE, None)


def add(now: Opened, texts: tuple[str, ...], text: str) -> None:
    """Add a change to the list; if that is not possible, remember why. A callback."""
    try:
        _check(now, texts, text)
    except ChangeError as error:
        st.session_state[_ERROR] = str(error)
    else:
        _write((*texts, text))


def _check(now: Opened, texts: tuple[str, ...], text: str) -> None:
    if text in texts:
        raise ChangeError(f"The list has {text} already.")
    if len(texts) >= MAX_CHANGES:
        raise ChangeError(f"At most {MAX_CHANGES} changes can be simulated together.")
    if isinstance(found := alone(now, text), str):
        raise ChangeError(found)


def add_typed(now: Opened, texts: tuple[str, ...]) -> None:
    """Add the change in the text field, and clear the field. A callback."""
    text = (st.session_state.get(TEXT) or "").strip()
    if text:
        add(now, texts, text)
        if error() is None:
            st.session_state[TEXT] = ""


def remove(texts: tuple[str, ...], text: str) -> None:
    """Remove a change from the list. A callback."""
    _write(tuple(other for other in texts if other != text))


def clear() -> None:
    """Remove all changes. A callback."""
    _write(())


def replace(texts: tuple[str, ...], text: str, key: str) -> None:
    """Replace the number of a change by that of a widget. A callback."""
    changed = with_number(text, float(st.session_state[key]))
    _write(tuple(dict.fromkeys(changed if other == text else other for other in texts)))


def number_of(text: str) -> float | None:
    """Return the number at the end of a change, or None for a change without one."""
    found = _NUMBER.match(text)
    return None if found is None else float(found[3])


def with_number(text: str, number: float) -> str:
    """Return a change with another number."""
    return f"{text.rpartition(':')[0]}:{number:g}"


def is_percentage(text: str) -> bool:
    """Return whether the number of a change is a percentage, not a factor."""
    return text.startswith("target=")


def error() -> str | None:
    """Return why the last change could not be added."""
    text: str | None = st.session_state.get(_ERROR)
    return text
