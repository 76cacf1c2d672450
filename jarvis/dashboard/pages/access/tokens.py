"""API tokens of the user (for admins, of all users): create, list and revoke."""

from datetime import UTC, datetime, timedelta

import polars as pl
import streamlit as st

from jarvis.dashboard.session.current_user import actor, current_user
from jarvis.dashboard.session.errors import toast_errors
from jarvis.dashboard.widgets.controls import choice
from jarvis.dashboard.widgets.table import moment_column
from jarvis.server.access.rights import Person, Role, may
from jarvis.server.access.tokens import DEFAULT_DAYS, MAX_LABEL_LENGTH, PREFIX, Token, TokenState
from jarvis.server.actions import create_token, list_visible_tokens, revoke_token
from jarvis.server.database import database
from jarvis.server.settings import settings
from jarvis.text.format import MISSING
from jarvis.text.markdown import escape

_LABEL, _ROLE, _EXPIRY = "_access_label", "_access_role", "_access_expiry"
_NEW, _TABLE = "_access_new_token", "_access_tokens"
_OWN, _ALL = "mine", "everybody's"
_NEVER = "never"
_DAYS: dict[str, int | None] = {
    "30 days": 30,
    f"{DEFAULT_DAYS} days": DEFAULT_DAYS,
    "1 year": 365,
    _NEVER: None,
}
_MARKS = {
    TokenState.ACTIVE: "✓ active",
    TokenState.EXPIRED: "◷ expired",
    TokenState.REVOKED: "⊘ revoked",
}
_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "state": pl.String,
    "label": pl.String,
    "role": pl.String,
    "owner": pl.String,
    "created": pl.Datetime("us", "UTC"),
    "expires": pl.Datetime("us", "UTC"),
    "last_used": pl.Datetime("us", "UTC"),
    "id": pl.String,
}


def render() -> None:
    """Draw the user's name, role and tokens."""
    person = current_user()
    _identity(person)
    st.subheader("API tokens")
    st.caption(
        "A token lets a program act in your name: pass it to `jarvis push --token`, or to `/api` "
        "in the header `Authorization: Bearer TOKEN`. Treat it like a password, and revoke it when "
        "you no longer need it."
    )
    _form(person)
    _show_new()
    _list(person)


def _identity(person: Person) -> None:
    if settings().access == "off":
        st.info(
            "Access control is off: anyone who can reach this server can do everything. To change "
            "this, set `JARVIS_ACCESS`; see docs/how-to/access.md.",
            icon=":material/lock_open:",
        )
        return
    permissions = {
        Role.VIEWER: "You can view the team's analyses.",
        Role.EDITOR: "You can view analyses, analyze traces, and change your own analyses.",
        Role.ADMIN: "You can view and change everything.",
    }
    st.text(f"{person.name} · {person.role}")
    st.caption(permissions[person.role])


def _form(person: Person) -> None:
    roles = [str(role) for role in Role if role is not Role.NONE and may(person, role)]
    with st.form("access_token", border=True):
        label, role, expiry = st.columns([3, 1, 1])
        label.text_input(
            "Label", key=_LABEL, max_chars=MAX_LABEL_LENGTH, placeholder="nightly push"
        )
        role.selectbox(
            "Role",
            roles,
            index=min(1, len(roles) - 1),
            key=_ROLE,
            help="Permissions of the token, at most your own.",
        )
        expiry.selectbox("Expires after", list(_DAYS), index=1, key=_EXPIRY)
        st.form_submit_button("Create token", icon=":material/add:", on_click=_create)


def _create() -> None:
    days = _DAYS[st.session_state[_EXPIRY]]
    expires = None if days is None else datetime.now(UTC) + timedelta(days=days)
    role, label = Role(st.session_state[_ROLE]), st.session_state[_LABEL]
    with toast_errors():
        st.session_state[_NEW] = create_token(database(), actor(), role, label, expires)
        st.session_state[_LABEL] = ""


def _show_new() -> None:
    """Draw the new token until the user confirms having copied it."""
    new = st.session_state.get(_NEW)
    if new is None:
        return
    with st.container(border=True):
        st.markdown(f"**{escape(new.token.label)}** · copy it now: it is not shown again.")
        st.code(new.text, language=None)
        st.button("Done", key="_access_seen", icon=":material/done:", on_click=_forget_new)


def _forget_new() -> None:
    st.session_state.pop(_NEW, None)


def _list(person: Person) -> None:
    tokens = list_visible_tokens(database(), person)
    has_choice = may(person, Role.ADMIN) and settings().access != "off"
    whose = _OWN
    if has_choice:
        whose = choice(
            "access_tokens", "Tokens", [_OWN, _ALL], "Admins can see and revoke all tokens."
        )
    if has_choice and whose == _OWN:
        tokens = [token for token in tokens if token.owner == person.name]
    if not tokens:
        st.caption("No tokens yet.")
        return
    selected = _table(tokens, has_owners=whose == _ALL)
    if selected is None:
        st.caption("Select a token to revoke it.")
    elif selected.state is TokenState.ACTIVE:
        st.button(
            f"Revoke {escape(selected.label)}",
            key="_access_revoke",
            icon=":material/block:",
            on_click=_revoke,
            args=(selected.id,),
            help="Takes effect immediately and cannot be undone.",
        )
    else:
        st.caption("This token is expired or revoked.")


def _revoke(token_id: str) -> None:
    with toast_errors():
        revoke_token(database(), actor(), token_id)


def _table(tokens: list[Token], *, has_owners: bool) -> Token | None:
    config = st.column_config
    chosen = st.dataframe(
        pl.DataFrame([_row(token) for token in tokens], schema=_SCHEMA, orient="row"),
        key=_TABLE,
        on_select="rerun",
        selection_mode="single-row",
        hide_index=True,
        column_order=[name for name in _SCHEMA if has_owners or name != "owner"],
        column_config={
            "state": config.TextColumn("State", width=95, help="Active, expired or revoked"),
            "label": config.TextColumn("Label", help="Purpose of the token"),
            "role": config.TextColumn("Role", width=70, help="Permissions of the token"),
            "owner": config.TextColumn("Owner", help="User in whose name it acts"),
            "created": moment_column("Created", "Time of creation"),
            "expires": moment_column("Expires", "Time of expiry"),
            "last_used": moment_column("Last used", "Time of last use, empty if never used"),
            "id": config.TextColumn(
                "Id", help=f"Token prefix after {PREFIX}_ (the secret is not stored)"
            ),
        },
        placeholder=MISSING,
        alt="API tokens with state, role, owner and times",
    )
    rows = chosen.selection.rows
    return tokens[rows[0]] if rows and rows[0] < len(tokens) else None


def _row(token: Token) -> tuple[str | datetime | None, ...]:
    return (
        _MARKS[token.state],
        token.label,
        str(token.role),
        token.owner,
        token.created,
        token.expires,
        token.last_used,
        token.id,
    )
