"""What could not be done, said in its place on the page, or beside it after a click."""

from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from jarvis.core.errors import JarvisError
from jarvis.text.markdown import escape, prose


def show_error(error: JarvisError) -> None:
    """While the page is drawn: why something was not done."""
    st.error(escape(str(error)), icon=":material/error:")


@contextmanager
def toast_errors() -> Iterator[None]:
    """In a callback, before the page is drawn anew: a refusal becomes a note in its corner."""
    try:
        yield
    except JarvisError as error:
        st.toast(prose(str(error)), icon=":material/error:", duration="long")
