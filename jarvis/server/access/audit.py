"""Audit log: who did what to which resource, when, and through which channel."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Column, ColumnElement, Engine, and_, func, insert, select, text, true
from sqlalchemy.engine import Connection

from jarvis.server.access.rights import Person
from jarvis.server.database import AUDIT, reading, writing

MAX_SUBJECT_LENGTH = 300
LOGIN_MARK = "login"
"""Key of the detail that distinguishes logins of one person; not shown in the log."""

_MAX_LOGINS = 50
"""Number of a person's latest logins searched for the current one."""


class Channel(StrEnum):
    """Interface through which an action was performed."""

    PAGE = "page"
    API = "api"
    COMMAND = "command"


class Action(StrEnum):
    """An action that is recorded."""

    LOG_IN = "log in"
    LOG_OUT = "log out"
    UPLOAD = "upload"
    ANALYZE = "analyse"
    COMPARE = "compare"
    REPROJECT = "reproject"
    EXPORT = "export"
    REPLAY = "replay"
    CANCEL = "cancel"
    RETRY = "retry"
    REMOVE = "remove"
    PIN = "pin"
    UNPIN = "unpin"
    SET_VISIBILITY = "set visibility"
    LABEL = "label"
    EDIT_REPORT = "edit report"
    COMMENT = "comment"
    COMMENT_REMOVE = "delete comment"
    ARCHIVE_SAVE = "archive save"
    ARCHIVE_LOAD = "archive load"
    HARDWARE_KEEP = "describe GPU"
    HARDWARE_REMOVE = "delete GPU"
    TOKEN_CREATE = "token create"
    TOKEN_REVOKE = "token revoke"


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An entry of the log; ``moment`` is in UTC, ``person`` is None if access control is off."""

    id: int
    moment: datetime
    person: str | None
    via: Channel
    action: Action
    subject: str
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Filter of log entries; fields that are None or "" match everything."""

    person: str | None = None
    action: Action | None = None
    via: Channel | None = None
    subject: str = ""
    since: datetime | None = None
    until: datetime | None = None

    def condition(self) -> ColumnElement[bool]:
        """Return the filter as SQL; ``person`` and ``subject`` match substrings, ignoring case."""
        conditions = []
        if self.person:
            conditions.append(_has(AUDIT.c.person, self.person))
        if self.action is not None:
            conditions.append(AUDIT.c.action == self.action)
        if self.via is not None:
            conditions.append(AUDIT.c.via == self.via)
        if self.subject:
            conditions.append(_has(AUDIT.c.subject, self.subject))
        if self.since is not None:
            conditions.append(AUDIT.c.moment >= self.since)
        if self.until is not None:
            conditions.append(AUDIT.c.moment < self.until)
        return and_(true(), *conditions)


def record(
    engine: Engine, person: Person, via: Channel, action: Action, subject: str, **detail: Any
) -> None:
    """Add an entry to the log.

    Args:
        subject: id or name of the resource.
        detail: JSON-serializable values.
    """
    with writing(engine) as connection:
        _insert(connection, person, via, action, subject, detail)


def record_login(engine: Engine, person: Person, mark: str) -> None:
    """Add an entry for a login unless the log has one, also if several tabs open at once.

    Args:
        mark: id of the login among those of the person.
    """
    logins = (
        select(AUDIT.c.detail)
        .where(AUDIT.c.person == person.name, AUDIT.c.action == Action.LOG_IN)
        .order_by(AUDIT.c.moment.desc(), AUDIT.c.id.desc())
        .limit(_MAX_LOGINS)
    )

    def is_recorded(connection: Connection) -> bool:
        return any(known.get(LOGIN_MARK) == mark for known in connection.scalars(logins))

    with reading(engine) as connection:
        if is_recorded(connection):  # usual, and needs no lock
            return
    with writing(engine) as connection:
        if connection.dialect.name == "postgresql":  # SQLite has one writer at a time
            connection.execute(text("LOCK TABLE audit IN SHARE ROW EXCLUSIVE MODE"))
        if not is_recorded(connection):
            detail = {"role": person.role, LOGIN_MARK: mark}
            name = person.name or ""
            _insert(connection, person, Channel.PAGE, Action.LOG_IN, name, detail)


def _insert(
    connection: Connection,
    person: Person,
    via: Channel,
    action: Action,
    subject: str,
    detail: Mapping[str, Any],
) -> None:
    row = {
        "moment": datetime.now(UTC),
        "person": person.name,
        "via": via,
        "action": action,
        "subject": _storable(subject[:MAX_SUBJECT_LENGTH]),
        "detail": detail,
    }
    connection.execute(insert(AUDIT).values(row))


def recent(
    engine: Engine, wanted: AuditFilter | None = None, *, limit: int = 100, offset: int = 0
) -> list[AuditEntry]:
    """Return the entries that match a filter, newest first."""
    query = (
        select(AUDIT)
        .where((wanted or AuditFilter()).condition())
        .order_by(AUDIT.c.moment.desc(), AUDIT.c.id.desc())
        .limit(limit)
        .offset(offset)
    )
    names = [f.name for f in fields(AuditEntry)]
    with reading(engine) as connection:
        rows = connection.execute(query).mappings().all()
    entries = [{name: row[name] for name in names} for row in rows]
    return [
        AuditEntry(**{**values, "via": Channel(values["via"]), "action": Action(values["action"])})
        for values in entries
    ]


def count(engine: Engine, wanted: AuditFilter | None = None) -> int:
    """Return the number of entries that match a filter."""
    query = select(func.count()).select_from(AUDIT).where((wanted or AuditFilter()).condition())
    with reading(engine) as connection:
        return connection.execute(query).scalar_one()


def _has(column: Column[str], part: str) -> ColumnElement[bool]:
    return column.icontains(_storable(part), autoescape=True)


def _storable(text: str) -> str:
    """Return the text without characters that PostgreSQL or UTF-8 cannot store."""
    return text.replace("\0", "").encode(errors="replace").decode()
