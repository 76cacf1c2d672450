"""Login: require users to log in before they see pages."""

import streamlit as st

from jarvis.dashboard.session.current_user import current_user, login_mark
from jarvis.server.access import audit
from jarvis.server.access.audit import Action, Channel
from jarvis.server.access.rights import Person, Role, may
from jarvis.server.database import database
from jarvis.server.errors import UnknownPersonError
from jarvis.server.settings import settings
from jarvis.text.markdown import prose

_RECORDED = "_login_noted"
_PLACE = "jarvis_wanted_page"
_REMEMBER = f"""
export default () => sessionStorage.setItem("{_PLACE}", location.pathname + location.search)
"""
_RETURN = f"""
export default () => {{
  const wanted = sessionStorage.getItem("{_PLACE}")
  sessionStorage.removeItem("{_PLACE}")
  if (wanted && wanted !== location.pathname + location.search)
    location.replace(location.origin + wanted)
}}
"""

_remember_page = st.components.v2.component("jarvis_remember_page", js=_REMEMBER)
_return_to_page = st.components.v2.component("jarvis_go_on", js=_RETURN)


def gate() -> None:
    """Stop the run with a message unless the user may view pages.

    The page that was requested before the login is opened after it, as the provider always
    redirects to the first page.
    """
    now = settings()
    if now.access == "off":
        return
    try:
        person = current_user()
    except UnknownPersonError as error:
        _closed(str(error))
    if person.name is None:
        _ask_to_log_in()
    if not may(person, Role.VIEWER):
        _closed(
            f"{person.name} is logged in but has no role on this server yet. Ask an admin for one."
        )
    if now.access == "oidc":
        _return_to_page(key="_go_on", height=0)
    _record_login(person)


def user_line() -> None:
    """Draw the user's name and role and the log-out button in the sidebar."""
    now = settings()
    if now.access == "off":
        return
    person = current_user()
    st.text(f"{person.name} · {person.role}", help="Your name and role on this server.")
    if now.access == "oidc":
        _log_out_button(person)


def _ask_to_log_in() -> None:
    if settings().access == "header":
        _closed(
            "A proxy identifies users of this server, and this request did not come through it. "
            "Open the server by its public address."
        )
    st.title("Jarvis")
    st.markdown("Log in to see the analyses of your team.")
    _remember_page(key="_remember_page", height=0)
    if st.button("Log in", type="primary", icon=":material/login:", key="_log_in"):
        st.login()
    st.stop()


def _closed(reason: str) -> None:
    st.title("Jarvis")
    st.error(prose(reason), icon=":material/lock:")
    if settings().access == "oidc":
        _log_out_button(None)
    st.stop()


def _log_out_button(person: Person | None) -> None:
    if st.button("Log out", icon=":material/logout:", key="_log_out"):
        if person is not None and person.name is not None:
            audit.record(database(), person, Channel.PAGE, Action.LOG_OUT, person.name)
        st.logout()
        st.stop()  # the page to log in appears once the browser has removed the cookie


def _record_login(person: Person) -> None:
    """Write one audit entry for each login, not one for each tab."""
    if st.session_state.get(_RECORDED) != person:
        audit.record_login(database(), person, login_mark())
        st.session_state[_RECORDED] = person
