"""Error isolation: if a part of a page fails, show an error there and draw the rest of the page.

Streamlit's control flow (stop, rerun) is not an ``Exception`` and is never caught here.
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
    """Show an error message instead of the block if it fails.

    ``part`` is the name of the block in the message, such as "Roofline".
    """
    try:
        yield
    except Exception as error:
        show_failure(error, part)


def show_failure(error: Exception, part: str) -> None:
    """Show what failed and what to do, without server paths; log unexpected errors."""
    if isinstance(error, JarvisError):
        sentence = str(error)
    elif isinstance(error, OSError):
        log.error("operating system error while drawing a page", exc_info=error)
        sentence = (
            f"The server could not read or write a file: {error.strerror or error}. Ask an admin "
            "to check its disk space, then reload the page."
        )
    else:
        number = secrets.token_hex(4)
        log.error(
            "a part of a page failed", exc_info=error, extra={"part": part, "failure": number}
        )
        sentence = (
            f"{part} cannot be shown because of an error in Jarvis or in an extension. Reload the "
            f"page. If the error remains, report the error id {number} to an admin of this server; "
            "the server log has the details under this id."
        )
    st.error(prose(sentence), icon=":material/error:")
