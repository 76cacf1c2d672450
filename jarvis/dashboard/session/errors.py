"""Error messages on a page, and as toasts after a click."""

from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from jarvis.core.errors import JarvisError
from jarvis.text.markdown import escape, prose


def show_error(error: JarvisError) -> None:
    """Show an error message on the page."""
    st.error(escape(str(error)), icon=":material/error:")


@contextmanager
def toast_errors() -> Iterator[None]:
    """Show a JarvisError as a toast; for callbacks, which run before the page is redrawn."""
    try:
        yield
    except JarvisError as error:
        st.toast(prose(str(error)), icon=":material/error:", duration="long")
