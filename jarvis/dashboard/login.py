"""Before the pages: who has to log in first, and who may not come in."""

import streamlit as st

from jarvis.dashboard.session.current_user import login_mark, visitor
from jarvis.server.access import audit
from jarvis.server.access.audit import LOGIN_MARK, Action, AuditFilter, Channel
from jarvis.server.access.rights import Person, Role, may
from jarvis.server.access.roles import UnknownPersonError
from jarvis.server.database import database
from jarvis.server.settings import settings
from jarvis.text.markdown import prose

_NOTED = "_login_noted"
_PLACE = "jarvis_wanted_page"
_LOGINS_LOOKED_AT = 50
"""More logins of one person than this are hardly open at once."""

_REMEMBER = f"""
export default () => sessionStorage.setItem("{_PLACE}", location.pathname + location.search)
"""
_GO_ON = f"""
export default () => {{
  const wanted = sessionStorage.getItem("{_PLACE}")
  sessionStorage.removeItem("{_PLACE}")
  if (wanted && wanted !== location.pathname + location.search)
    location.replace(location.origin + wanted)
}}
"""

_remember_page = st.components.v2.component("jarvis_remember_page", js=_REMEMBER)
_go_on = st.components.v2.component("jarvis_go_on", js=_GO_ON)


def gate() -> None:
    """Let in who may look at pages; everyone else is told what to do, and the run ends.

    A link that was opened before the login is opened after it: the provider always leads back to
    the first page.
    """
    now = settings()
    if now.access == "off":
        return
    try:
        person = visitor()
    except UnknownPersonError as error:
        _closed(str(error))
    if person.name is None:
        _ask_to_log_in()
    if not may(person, Role.VIEWER):
        _closed(
            f"{person.name} is logged in and has no role here yet. Ask an admin of this server for "
            "one."
        )
    if now.access == "oidc":
        _go_on(key="_go_on", height=0)
    _note_login(person)


def user_line() -> None:
    """A line of the sidebar: the person, the role, and the way out."""
    now = settings()
    if now.access == "off":
        return
    person = visitor()
    st.text(f"{person.name} · {person.role}", help="Who you are here, and your role.")
    if now.access == "oidc":
        _log_out_button(person)


def _ask_to_log_in() -> None:
    if settings().access == "header":
        _closed(
            "Who you are is told by a proxy, and this request came without that. Open the server "
            "by its public address."
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


def _note_login(person: Person) -> None:
    """Write a login down once, not for every tab that it opens."""
    if st.session_state.get(_NOTED) == person:
        return
    st.session_state[_NOTED] = person
    engine, mark = database(), login_mark()
    asked = AuditFilter(person=person.name, action=Action.LOG_IN)
    lines = audit.recent(engine, asked, limit=_LOGINS_LOOKED_AT)
    noted = {line.detail.get(LOGIN_MARK) for line in lines if line.person == person.name}
    if mark not in noted:
        detail = {"role": person.role, LOGIN_MARK: mark}
        audit.record(engine, person, Channel.PAGE, Action.LOG_IN, person.name or "", **detail)
