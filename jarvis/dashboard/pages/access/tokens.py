"""API tokens of the visitor: made, shown once, listed and revoked; for admins everybody's."""

from datetime import UTC, datetime, timedelta

import polars as pl
import streamlit as st

from jarvis.dashboard.session.current_user import actor, visitor
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
_MINE, _EVERYBODYS = "mine", "everybody's"
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
    """Who the visitor is here, and their tokens."""
    person = visitor()
    _say_who(person)
    st.subheader("API tokens")
    st.caption(
        "A token lets a program act in your name, as `jarvis push --token` or in the header "
        "`Authorization: Bearer TOKEN` of a request to `/api`. Whoever has it may do what its role "
        "allows: keep it like a password, and revoke it when it is no longer needed."
    )
    _form(person)
    _show_new()
    _list(person)


def _say_who(person: Person) -> None:
    if settings().access == "off":
        st.info(
            "Nobody is asked who they are here: whoever reaches this server may do everything. "
            "`JARVIS_ACCESS` changes that; docs/how-to/access.md says how.",
            icon=":material/lock_open:",
        )
        return
    what = {
        Role.VIEWER: "You can view the team's analyses.",
        Role.EDITOR: "You can view, analyze traces, and change your own analyses.",
        Role.ADMIN: "You may see and change everything here.",
    }
    st.text(f"{person.name} · {person.role}")
    st.caption(what[person.role])


def _form(person: Person) -> None:
    roles = [str(role) for role in Role if role is not Role.NONE and may(person, role)]
    with st.form("access_token", border=True):
        label, role, expiry = st.columns([3, 1, 1])
        label.text_input(
            "What will use it", key=_LABEL, max_chars=MAX_LABEL_LENGTH, placeholder="nightly push"
        )
        role.selectbox(
            "Role",
            roles,
            index=min(1, len(roles) - 1),
            key=_ROLE,
            help="The most that it may do; not more than you may.",
        )
        expiry.selectbox("Ends after", list(_DAYS), index=1, key=_EXPIRY)
        st.form_submit_button("Make a token", icon=":material/add:", on_click=_create)


def _create() -> None:
    days = _DAYS[st.session_state[_EXPIRY]]
    expires = None if days is None else datetime.now(UTC) + timedelta(days=days)
    role, label = Role(st.session_state[_ROLE]), st.session_state[_LABEL]
    with toast_errors():
        st.session_state[_NEW] = create_token(database(), actor(), role, label, expires)
        st.session_state[_LABEL] = ""


def _show_new() -> None:
    """The token just made, until the visitor has it."""
    new = st.session_state.get(_NEW)
    if new is None:
        return
    with st.container(border=True):
        st.markdown(f"**{escape(new.token.label)}** · copy it now: it is not shown again.")
        st.code(new.text, language=None)
        st.button("I have it", key="_access_seen", icon=":material/done:", on_click=_forget_new)


def _forget_new() -> None:
    st.session_state.pop(_NEW, None)


def _list(person: Person) -> None:
    tokens = list_visible_tokens(database(), person)
    has_choice = may(person, Role.ADMIN) and settings().access != "off"
    whose = _MINE
    if has_choice:
        whose = choice(
            "access_tokens", "Tokens", [_MINE, _EVERYBODYS], "Admins see and revoke everybody's."
        )
    if has_choice and whose == _MINE:
        tokens = [token for token in tokens if token.owner == person.name]
    if not tokens:
        st.caption("No token yet.")
        return
    selected = _table(tokens, has_owners=whose == _EVERYBODYS)
    if selected is None:
        st.caption("Select a token to revoke it.")
    elif selected.state is TokenState.ACTIVE:
        st.button(
            f"Revoke {escape(selected.label)}",
            key="_access_revoke",
            icon=":material/block:",
            on_click=_revoke,
            args=(selected.id,),
            help="At once and for good: programs that use it are refused from now on.",
        )
    else:
        st.caption("This token cannot be used any more.")


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
            "state": config.TextColumn("State", width=95, help="Whether it is taken now"),
            "label": config.TextColumn("Used by", help="What it was made for"),
            "role": config.TextColumn("Role", width=70, help="The most that it may do"),
            "owner": config.TextColumn("Owner", help="In whose name it acts"),
            "created": moment_column("Created", "When it was made"),
            "expires": moment_column("Ends", "From when on it is refused"),
            "last_used": moment_column("Last used", "Empty where it never was; to the minute"),
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
