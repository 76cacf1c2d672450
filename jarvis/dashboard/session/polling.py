"""Parts of a page that are drawn again and again while something runs."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

import streamlit as st

from jarvis.dashboard.isolation import isolated
from jarvis.dashboard.session.current_user import visitor
from jarvis.server.access.rights import Role, may

_P = ParamSpec("_P")


def polled(seconds: float) -> Callable[[Callable[_P, None]], Callable[_P, None]]:
    """A part that is drawn every so many seconds, as long as the page draws it at all.

    What it raises becomes a sentence, as in the page around it, and the next time may go well.
    """

    def decorate(part: Callable[_P, None]) -> Callable[_P, None]:
        @st.fragment(run_every=seconds)
        @wraps(part)
        def drawn(*args: _P.args, **kwargs: _P.kwargs) -> None:
            with isolated("This part of the page"):
                if not may(visitor(), Role.VIEWER):
                    st.rerun()  # the login is over: the whole page asks for another one
                part(*args, **kwargs)

        return drawn

    return decorate
