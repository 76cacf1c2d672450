"""The audit log for admins: who did what, when, and by which way in."""

from datetime import UTC, datetime, timedelta

import polars as pl
import streamlit as st

from jarvis.dashboard.session.current_user import visitor
from jarvis.dashboard.widgets.controls import keyed_choice, text_input
from jarvis.dashboard.widgets.row_order import PAGE_ROWS, page_number
from jarvis.dashboard.widgets.table import moment_column
from jarvis.server.access.audit import LOGIN_MARK, Action, AuditEntry, AuditFilter, Channel
from jarvis.server.access.rights import Role, may
from jarvis.server.actions import count_audit, read_audit
from jarvis.server.database import database
from jarvis.text.format import MISSING, count

_PAGE = "access"
_ALL = "all"
_DAYS: dict[str, tuple[str, int | None]] = {
    _ALL: ("All of it", None),
    "1": ("Last day", 1),
    "7": ("Last 7 days", 7),
    "30": ("Last 30 days", 30),
}
_TABLE_PX = 560
_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "moment": pl.Datetime("us", "UTC"),
    "person": pl.String,
    "action": pl.String,
    "subject": pl.String,
    "via": pl.String,
    "detail": pl.String,
}


def render() -> None:
    """The log with its filters, a page at a time; nothing for those who may not read it."""
    person, engine = visitor(), database()
    if not may(person, Role.ADMIN):
        return
    st.subheader("Audit log")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        wanted, shown_by = _filters()
        lines = count_audit(engine, person, wanted)
        number = page_number(_PAGE, lines, shown_by, None)
    if not lines:
        st.caption("Nothing like this was done here.")
        return
    st.caption(f"{count(lines)} lines, the newest first.")
    offset = (number - 1) * PAGE_ROWS
    _table(read_audit(engine, person, wanted, limit=PAGE_ROWS, offset=offset))


def _filters() -> tuple[AuditFilter, str]:
    """What to look for, and what tells it apart from another."""
    who = text_input("access_person", "Person", "part of a name", "Lines of this person only.")
    action = keyed_choice(
        "access_action",
        "Action",
        {_ALL: "All actions", **{str(each): str(each) for each in Action}},
        _ALL,
        "Lines about this only.",
    )
    via = keyed_choice(
        "access_via",
        "By",
        {_ALL: "All ways", **{str(each): str(each) for each in Channel}},
        _ALL,
        "Through the pages, the API or the command line.",
    )
    subject = text_input(
        "access_subject", "What", "id or title", "Part of what it was done to: an id or a title."
    )
    labels = {key: label for key, (label, _) in _DAYS.items()}
    days = _DAYS[keyed_choice("access_days", "When", labels, _ALL, "Lines since then only.")][1]
    wanted = AuditFilter(
        person=who or None,
        action=None if action == _ALL else Action(action),
        via=None if via == _ALL else Channel(via),
        subject=subject,
        since=None if days is None else datetime.now(UTC) - timedelta(days=days),
    )
    return wanted, f"{who}-{action}-{via}-{subject}-{days}"


def _table(lines: list[AuditEntry]) -> None:
    config = st.column_config
    st.dataframe(
        pl.DataFrame([_row(line) for line in lines], schema=_SCHEMA, orient="row"),
        hide_index=True,
        height=_TABLE_PX if len(lines) > _TABLE_PX // 36 else "auto",
        column_config={
            "moment": moment_column("When", "When it was done", has_seconds=True),
            "person": config.TextColumn("Person", help="Empty where access is not limited"),
            "action": config.TextColumn("Action", help="What was done"),
            "subject": config.TextColumn("What", help="The id or title of what it was done to"),
            "via": config.TextColumn("By", help="Pages, API or command line"),
            "detail": config.TextColumn("More", help="What else is known of it, like a role"),
        },
        placeholder=MISSING,
        alt="Audit log with moment, person, action and what it was done to",
    )


def _row(line: AuditEntry) -> tuple[str | datetime | None, ...]:
    told = {name: value for name, value in line.detail.items() if name != LOGIN_MARK}
    more = ", ".join(f"{name}: {value}" for name, value in told.items())
    return (line.moment, line.person, str(line.action), line.subject, str(line.via), more or None)
