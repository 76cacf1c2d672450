"""The audit log, for admins."""

from datetime import UTC, datetime, timedelta

import polars as pl
import streamlit as st

from jarvis.dashboard.session.current_user import current_user
from jarvis.dashboard.widgets.controls import keyed_choice, text_input
from jarvis.dashboard.widgets.row_order import PAGE_ROWS, page_number
from jarvis.dashboard.widgets.table import height_of, moment_column, without_pale_texts
from jarvis.server.access.audit import LOGIN_MARK, Action, AuditEntry, AuditFilter, Channel
from jarvis.server.access.rights import Role, may
from jarvis.server.actions import count_audit, read_audit
from jarvis.server.database import database
from jarvis.text.format import MISSING, counted

_PAGE = "access"
_ALL = "all"
_DAYS: dict[str, tuple[str, int | None]] = {
    _ALL: ("Any time", None),
    "1": ("Last day", 1),
    "7": ("Last 7 days", 7),
    "30": ("Last 30 days", 30),
}
_MAX_ROWS = 18
_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "moment": pl.Datetime("us", "UTC"),
    "person": pl.String,
    "action": pl.String,
    "subject": pl.String,
    "via": pl.String,
    "detail": pl.String,
}


def render() -> None:
    """Draw the log with filters and pages; nothing for users who are not admins."""
    person, engine = current_user(), database()
    if not may(person, Role.ADMIN):
        return
    st.subheader("Audit log")
    audit_filter, shown_by = _filters()
    lines = count_audit(engine, person, audit_filter)
    number = page_number(_PAGE, lines, shown_by, None)
    if not lines:
        is_filtered = audit_filter != AuditFilter()
        st.caption("No entry matches the filters." if is_filtered else "No entries yet.")
        return
    st.caption(f"{counted(lines, 'entry')}, newest first.")
    offset = (number - 1) * PAGE_ROWS
    _table(read_audit(engine, person, audit_filter, limit=PAGE_ROWS, offset=offset))


def _filters() -> tuple[AuditFilter, str]:
    """Draw the filters, and return them with their key."""
    places = st.columns(5, vertical_alignment="bottom")
    with places[0]:
        who = text_input(
            "access_person", "Person", "part of a name", "Only entries of this person."
        )
    with places[1]:
        action = keyed_choice(
            "access_action",
            "Action",
            {_ALL: "All actions", **{str(each): _word(each) for each in Action}},
            _ALL,
            "Only entries with this action.",
        )
    with places[2]:
        via = keyed_choice(
            "access_via",
            "Channel",
            {_ALL: "All channels", **{str(each): str(each) for each in Channel}},
            _ALL,
            "Dashboard pages, API or command line.",
        )
    with places[3]:
        subject = text_input(
            "access_subject", "Object", "id or title", "Part of the id or title of the object."
        )
    with places[4]:
        labels = {key: label for key, (label, _) in _DAYS.items()}
        time = keyed_choice("access_days", "Time", labels, _ALL, "Only entries since then.")
    days = _DAYS[time][1]
    audit_filter = AuditFilter(
        person=who or None,
        action=None if action == _ALL else Action(action),
        via=None if via == _ALL else Channel(via),
        subject=subject,
        since=None if days is None else datetime.now(UTC) - timedelta(days=days),
    )
    return audit_filter, f"{who}-{action}-{via}-{subject}-{days}"


def _word(action: Action) -> str:
    """Return the name of an action; that of ANALYZE is stored in another spelling."""
    return "analyze" if action is Action.ANALYZE else str(action)


def _table(lines: list[AuditEntry]) -> None:
    config = st.column_config
    st.dataframe(
        without_pale_texts(
            pl.DataFrame([_row(line) for line in lines], schema=_SCHEMA, orient="row")
        ),
        hide_index=True,
        height=height_of(len(lines), _MAX_ROWS),
        column_config={
            "moment": moment_column("Time", "Time of the action", has_seconds=True),
            "person": config.TextColumn("Person", help="Empty without access control"),
            "action": config.TextColumn("Action", help="What was done"),
            "subject": config.TextColumn("Object", help="Id or title of the affected object"),
            "via": config.TextColumn("Channel", help="Dashboard pages, API or command line"),
            "detail": config.TextColumn("Details", help="Further details, such as a role"),
        },
        placeholder=MISSING,
        alt="Audit log with time, person, action and object",
    )


def _row(line: AuditEntry) -> tuple[str | datetime | None, ...]:
    details = ", ".join(
        f"{name}: {value}" for name, value in line.detail.items() if name != LOGIN_MARK
    )
    return (
        *(line.moment, line.person, _word(line.action)),
        *(line.subject, str(line.via), details or None),
    )
