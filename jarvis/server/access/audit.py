"""The audit log: who did what to what, when and by which way in."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Column, ColumnElement, Engine, and_, func, insert, select, true

from jarvis.server.access.rights import Person
from jarvis.server.database import AUDIT, reading, writing

MAX_SUBJECT_LENGTH = 300
LOGIN_MARK = "login"
"""The detail that tells one login from the next; it says nothing to people."""


class Channel(StrEnum):
    """The way in."""

    PAGE = "page"
    API = "api"
    COMMAND = "command"


class Action(StrEnum):
    """What is written down."""

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
    ARCHIVE_SAVE = "archive save"
    ARCHIVE_LOAD = "archive load"
    HARDWARE_KEEP = "describe GPU"
    HARDWARE_REMOVE = "delete GPU"
    TOKEN_CREATE = "token create"
    TOKEN_REVOKE = "token revoke"


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A line of the log; ``moment`` is UTC, ``person`` None where nobody is asked who they are."""

    id: int
    moment: datetime
    person: str | None
    via: Channel
    action: Action
    subject: str
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which lines of the log are looked for; None and "" let all through."""

    person: str | None = None
    action: Action | None = None
    via: Channel | None = None
    subject: str = ""
    since: datetime | None = None
    until: datetime | None = None

    def condition(self) -> ColumnElement[bool]:
        """As SQL; ``person`` and ``subject`` are parts of what is looked for, in any case."""
        asked = []
        if self.person:
            asked.append(_has(AUDIT.c.person, self.person))
        if self.action is not None:
            asked.append(AUDIT.c.action == self.action)
        if self.via is not None:
            asked.append(AUDIT.c.via == self.via)
        if self.subject:
            asked.append(_has(AUDIT.c.subject, self.subject))
        if self.since is not None:
            asked.append(AUDIT.c.moment >= self.since)
        if self.until is not None:
            asked.append(AUDIT.c.moment < self.until)
        return and_(true(), *asked)


def record(
    engine: Engine, person: Person, via: Channel, action: Action, subject: str, **detail: Any
) -> None:
    """Write down what somebody did; ``subject`` is an id or a name, ``detail`` JSON."""
    row = {
        "moment": datetime.now(UTC),
        "person": person.name,
        "via": via,
        "action": action,
        "subject": _storable(subject[:MAX_SUBJECT_LENGTH]),
        "detail": detail,
    }
    with writing(engine) as connection:
        connection.execute(insert(AUDIT).values(row))


def recent(
    engine: Engine, wanted: AuditFilter | None = None, *, limit: int = 100, offset: int = 0
) -> list[AuditEntry]:
    """The newest lines first."""
    asked = (
        select(AUDIT)
        .where((wanted or AuditFilter()).condition())
        .order_by(AUDIT.c.moment.desc(), AUDIT.c.id.desc())
        .limit(limit)
        .offset(offset)
    )
    names = [f.name for f in fields(AuditEntry)]
    with reading(engine) as connection:
        rows = connection.execute(asked).mappings().all()
    made = [{name: row[name] for name in names} for row in rows]
    return [
        AuditEntry(**{**values, "via": Channel(values["via"]), "action": Action(values["action"])})
        for values in made
    ]


def count(engine: Engine, wanted: AuditFilter | None = None) -> int:
    """How many lines ``recent`` has to give."""
    asked = select(func.count()).select_from(AUDIT).where((wanted or AuditFilter()).condition())
    with reading(engine) as connection:
        return connection.execute(asked).scalar_one()


def _has(column: Column[str], part: str) -> ColumnElement[bool]:
    return column.icontains(_storable(part), autoescape=True)


def _storable(text: str) -> str:
    """Without what PostgreSQL or UTF-8 cannot hold."""
    return text.replace("\0", "").encode(errors="replace").decode()
