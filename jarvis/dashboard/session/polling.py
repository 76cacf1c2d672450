"""Parts of a page that are redrawn periodically."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

import streamlit as st

from jarvis.dashboard.isolation import isolated
from jarvis.dashboard.session.current_user import current_user
from jarvis.server.access.rights import Role, may

_P = ParamSpec("_P")


def polled(seconds: float) -> Callable[[Callable[_P, None]], Callable[_P, None]]:
    """Decorate a part of a page so that it is redrawn every ``seconds`` seconds.

    An error is shown as a message, and the part is drawn again at the next interval.
    """

    def decorate(part: Callable[_P, None]) -> Callable[_P, None]:
        @st.fragment(run_every=seconds)
        @wraps(part)
        def fragment(*args: _P.args, **kwargs: _P.kwargs) -> None:
            with isolated("This part of the page"):
                if not may(current_user(), Role.VIEWER):
                    st.rerun()  # the login has expired: the page shows the login form
                part(*args, **kwargs)

        return fragment

    return decorate
