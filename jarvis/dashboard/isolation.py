"""Errors of a part of a page: a sentence in its place, while the rest of the page stays.

What Streamlit raises to end or repeat a run is no ``Exception`` and is never caught here.
"""

import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from jarvis.core.errors import JarvisError
from jarvis.text.markdown import prose

log = logging.getLogger(__name__)


@contextmanager
def isolated(part: str) -> Iterator[None]:
    """Show a sentence where the block draws, if it fails; ``part`` names it, as "Roofline"."""
    try:
        yield
    except Exception as error:
        show_failure(error, part)


def show_failure(error: Exception, part: str) -> None:
    """Show what failed and what to do, without the server's paths; log what nobody expected."""
    if isinstance(error, JarvisError):
        sentence = str(error)
    elif isinstance(error, OSError):
        log.error("a page met an error of the system", exc_info=error)
        sentence = (
            f"The server could not read or write a file: {error.strerror or error}. An admin "
            "should check its disk space; then reload the page."
        )
    else:
        number = secrets.token_hex(4)
        log.error(
            "a part of a page failed", exc_info=error, extra={"part": part, "failure": number}
        )
        sentence = (
            f"{part} cannot be shown because of an error in Jarvis or in an extension. Reload the "
            f"page. If the error stays, report the number {number} to the person who runs this "
            "server: the server's log has the details under it."
        )
    st.error(prose(sentence), icon=":material/error:")
