"""What could not be done on a click, said beside the page."""

from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from jarvis.errors import JarvisError
from jarvis.reports.markup import prose


@contextmanager
def said_as_toast() -> Iterator[None]:
    """In a callback, before the page is drawn anew: a refusal becomes a note in its corner."""
    try:
        yield
    except JarvisError as error:
        st.toast(prose(str(error)), icon=":material/error:", duration="long")
