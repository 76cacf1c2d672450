"""Notes on the reports of analyses, in the database.

Each field of a finding or a report is a row of its own, so that the last write of a field wins
without losing others. Every change has a revision, by which a writer learns what was changed since
it read the notes.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field, ValidationError
from sqlalchemy import Engine, delete, func, insert, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, RowMapping

from jarvis.core.notes import (
    FIELDS_OF_REPORT,
    MAX_COMMENT_CHARS,
    MAX_COMMENTS,
    MAX_OWNER_CHARS,
    MAX_SUMMARY_CHARS,
    MAX_TITLE_CHARS,
    Comment,
    FindingNotes,
    FindingStatus,
    NoteError,
    NoteField,
    ReportNotes,
    Stamp,
    checked_text,
)
from jarvis.core.workspace import analyses_dir
from jarvis.server.database import (
    ANALYSES,
    REPORT_COMMENTS,
    REPORT_FIELDS,
    REPORTS,
    database,
    reading,
    utc_now,
    writing,
)
from jarvis.server.errors import StaleNotesError, UnknownAnalysisError, UnknownNoteError

if TYPE_CHECKING:
    from jarvis.reports.edits import Edits

EXCLUDED = "no"
"""Stored value of ``NoteField.INCLUDED`` for a finding that is left out."""

MAX_FIELDS = 10_000
"""Maximum number of archived fields, and of findings in an order."""


@dataclass(frozen=True, slots=True)
class NoteChange:
    """A new value of a field; ``finding`` is empty for fields of the report, ``value`` None for
    the default."""

    field: NoteField
    value: str | None
    finding: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class ReplacedNote:
    """A value that was written after the revision that the writer had seen, and is replaced."""

    field: NoteField
    finding: str
    value: str | None
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class WrittenNotes:
    """The result of a change: its revision, what changed, and what was replaced unseen."""

    revision: int
    changes: tuple[NoteChange, ...]
    replaced: tuple[ReplacedNote, ...]


def read_notes(engine: Engine, analysis_id: str) -> ReportNotes:
    """Return the notes on the report of an analysis."""
    with reading(engine) as connection:
        return _read(connection, analysis_id)


def read_revision(engine: Engine, analysis_id: str) -> int:
    """Return the number of the last change of the notes; 0 if there is none."""
    with reading(engine) as connection:
        return revision_of(connection, analysis_id)


def stored_edits(root: Path) -> "Edits":
    """Return the notes on the report of a run directory; none unless it is a stored analysis."""
    from jarvis.reports.edits import UNEDITED, Edits  # only formats need reports

    if root.resolve().parent != analyses_dir().resolve():
        return UNEDITED
    return Edits.of(read_notes(database(), root.name))


def write_notes(
    engine: Engine,
    analysis_id: str,
    author: str | None,
    changes_of: Callable[[ReportNotes], Sequence[NoteChange]],
    *,
    seen: int | None = None,
    is_strict: bool = False,
) -> WrittenNotes:
    """Write fields; values that are stored already are not written again.

    Args:
        author: who writes; None if access control is off.
        changes_of: returns the changes of the notes that are stored now.
        seen: the revision that the author has seen; None if they accept any.
        is_strict: raise instead of replacing what the author has not seen.

    Raises:
        UnknownAnalysisError: the analysis was deleted.
        StaleNotesError: ``is_strict``, and a field has changed since ``seen``.
    """
    with writing(engine) as connection:
        lock_analysis(connection, analysis_id)
        stored = {
            (row["finding"], row["field"]): row for row in field_rows(connection, analysis_id)
        }
        changes, replaced = [], []
        for change in changes_of(_read(connection, analysis_id)):
            row = stored.get((change.finding, change.field))
            if change.value == (row["value"] if row else None):
                continue
            changes.append(change)
            if row is not None and seen is not None and row["revision"] > seen:
                note = ReplacedNote(change.field, change.finding, row["value"], _stamp(row))
                replaced.append(note)
        if replaced and is_strict:
            raise StaleNotesError(
                ", ".join(
                    f"{note.field} of {note.finding or 'the report'} by {note.stamp.name}"
                    for note in replaced
                )
            )
        revision = revision_of(connection, analysis_id)
        if changes:
            revision = next_revision(connection, analysis_id)
        stamp = Stamp(author, utc_now())
        for change in changes:
            write_field(connection, analysis_id, change, revision, stamp)
    return WrittenNotes(revision, tuple(changes), tuple(replaced))


def add_comment(
    engine: Engine, analysis_id: str, author: str | None, finding: str, title: str, text: str
) -> Comment:
    """Add a comment on a finding.

    Raises:
        NoteError: it is empty or too long, or there are too many.
        UnknownAnalysisError: the analysis was deleted.
    """
    text = checked_text("comment", text, MAX_COMMENT_CHARS)
    if not text:
        raise NoteError("The comment is empty.")
    stamp = Stamp(author, utc_now())
    with writing(engine) as connection:
        lock_analysis(connection, analysis_id)
        of_analysis = REPORT_COMMENTS.c.analysis_id == analysis_id
        count = connection.execute(select(func.count()).where(of_analysis)).scalar_one()
        if count >= MAX_COMMENTS:
            raise NoteError(
                f"This analysis has {count:,} comments, the maximum. Delete some first."
            )
        comment_id = write_comment(connection, analysis_id, finding, title, text, stamp)
        next_revision(connection, analysis_id)
    return Comment(comment_id, text, stamp)


def find_comment(engine: Engine, analysis_id: str, comment_id: int) -> tuple[str, Comment]:
    """Return the finding's key and a comment; raise UnknownNoteError if it does not exist."""
    for notes in read_notes(engine, analysis_id).findings.values():
        for comment in notes.comments:
            if comment.id == comment_id:
                return notes.key, comment
    raise UnknownNoteError(f"There is no comment {comment_id} on this analysis. Reload the page.")


def remove_comment(engine: Engine, analysis_id: str, comment_id: int) -> None:
    """Delete a comment if it exists."""
    with writing(engine) as connection:
        lock_analysis(connection, analysis_id)
        connection.execute(
            delete(REPORT_COMMENTS).where(
                REPORT_COMMENTS.c.analysis_id == analysis_id, REPORT_COMMENTS.c.id == comment_id
            )
        )
        next_revision(connection, analysis_id)


def lock_analysis(connection: Connection, analysis_id: str) -> None:
    """Serialize changes of an analysis's notes; raise UnknownAnalysisError without the analysis."""
    query = select(ANALYSES.c.id).where(ANALYSES.c.id == analysis_id).with_for_update()
    if connection.execute(query).scalar() is None:
        raise UnknownAnalysisError(analysis_id)


def _read(connection: Connection, analysis_id: str) -> ReportNotes:
    revision = revision_of(connection, analysis_id)
    if not revision:
        return ReportNotes()
    findings: dict[str, FindingNotes] = {}
    stamps: dict[tuple[str, NoteField], Stamp] = {}
    summary: str | None = None
    order: tuple[str, ...] = ()
    newest: list[Stamp] = []
    for row in field_rows(connection, analysis_id):
        key, field, value = row["finding"], row["field"], row["value"]
        stamps[key, field] = _stamp(row)
        newest.append(stamps[key, field])
        if field is NoteField.SUMMARY:
            summary = value
        elif field is NoteField.ORDER:
            order = tuple(json.loads(value)) if value else ()
        else:
            notes = findings.get(key, FindingNotes(key, row["title"]))
            findings[key] = _with_field(notes, field, value)
    for row in comment_rows(connection, analysis_id):
        comment = Comment(row["id"], row["text"], _stamp(row))
        newest.append(comment.stamp)
        notes = findings.get(row["finding"], FindingNotes(row["finding"], row["title"]))
        findings[notes.key] = replace(notes, comments=(*notes.comments, comment))
    return ReportNotes(
        revision=revision,
        summary=summary,
        order=order,
        findings={key: findings[key] for key in sorted(findings)},
        stamps=stamps,
        last_change=max(newest, key=lambda stamp: stamp.moment, default=None),
    )


def _with_field(notes: FindingNotes, field: NoteField, value: str | None) -> FindingNotes:
    if field is NoteField.INCLUDED:
        return replace(notes, is_included=value != EXCLUDED)
    if field is NoteField.OWNER:
        return replace(notes, owner=value or "")
    return replace(notes, status=FindingStatus(value) if value else FindingStatus.OPEN)


def field_rows(connection: Connection, analysis_id: str) -> Sequence[RowMapping]:
    """Return the rows of the fields of an analysis."""
    fields = REPORT_FIELDS
    query = select(fields).where(fields.c.analysis_id == analysis_id)
    return connection.execute(query.order_by(fields.c.finding, fields.c.field)).mappings().all()


def comment_rows(connection: Connection, analysis_id: str) -> Sequence[RowMapping]:
    """Return the rows of the comments on an analysis, oldest first."""
    comments = REPORT_COMMENTS
    query = select(comments).where(comments.c.analysis_id == analysis_id)
    return connection.execute(query.order_by(comments.c.id)).mappings().all()


def _stamp(row: RowMapping) -> Stamp:
    return Stamp(row["author"], row["moment"], row["imported_by"])


def revision_of(connection: Connection, analysis_id: str) -> int:
    """Return the number of the last change; 0 if there is none."""
    query = select(REPORTS.c.revision).where(REPORTS.c.analysis_id == analysis_id)
    return int(connection.execute(query).scalar() or 0)


def next_revision(connection: Connection, analysis_id: str) -> int:
    """Count one more change, and return its number."""
    revision = revision_of(connection, analysis_id) + 1
    statement = _insert(connection, REPORTS).values(analysis_id=analysis_id, revision=revision)
    connection.execute(
        statement.on_conflict_do_update(index_elements=["analysis_id"], set_={"revision": revision})
    )
    return revision


def write_field(
    connection: Connection, analysis_id: str, change: NoteChange, revision: int, stamp: Stamp
) -> None:
    """Write a field, or replace its value."""
    content = {
        "title": change.title[:MAX_TITLE_CHARS],
        "value": change.value,
        "revision": revision,
        **asdict(stamp),
    }
    key = {"analysis_id": analysis_id, "finding": change.finding, "field": change.field}
    statement = _insert(connection, REPORT_FIELDS).values(**key, **content)
    connection.execute(statement.on_conflict_do_update(index_elements=list(key), set_=content))


def write_comment(
    connection: Connection, analysis_id: str, finding: str, title: str, text: str, stamp: Stamp
) -> int:
    """Add a comment, and return its id."""
    row = {
        "analysis_id": analysis_id,
        "finding": finding,
        "title": title[:MAX_TITLE_CHARS],
        "text": text,
        **asdict(stamp),
    }
    added = connection.execute(insert(REPORT_COMMENTS).values(row).returning(REPORT_COMMENTS.c.id))
    return int(added.scalar_one())


def _insert(connection: Connection, table: Any) -> Any:
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    return dialect.insert(table)


def checked_change(change: NoteChange) -> NoteChange:
    """Return a change with a valid value; None for the default.

    Raises:
        NoteError: the value is not valid.
    """
    value = change.value
    if (change.field in FIELDS_OF_REPORT) != (not change.finding):
        raise NoteError(f"{change.field} is not a note on {change.finding or 'a report'}.")
    if value is not None:
        value = _checked(change.field, value)
    return replace(change, value=value)


def _checked(field: NoteField, value: str) -> str | None:
    if field is NoteField.SUMMARY:
        return checked_text("summary", value, MAX_SUMMARY_CHARS) or None
    if field is NoteField.OWNER:
        return checked_text("owner", value, MAX_OWNER_CHARS, is_line=True) or None
    if field is NoteField.INCLUDED:
        return EXCLUDED if value == EXCLUDED else None
    if field is NoteField.STATUS:
        if value not in set(FindingStatus):
            raise NoteError(f"There is no status {value[:40]!r}. Use {', '.join(FindingStatus)}.")
        return None if value == FindingStatus.OPEN else value
    return _checked_order(value)


def _checked_order(value: str) -> str | None:
    try:
        keys = _Order.model_validate_json(f'{{"keys":{value}}}').keys
    except ValidationError as error:
        raise NoteError("The order is not a list of findings.") from error
    return json.dumps(keys) if keys else None


class _Order(BaseModel):
    keys: list[str] = Field(max_length=MAX_FIELDS)


def order_value(keys: Iterable[str]) -> str | None:
    """Return an order as it is stored; None for the default."""
    listed = list(keys)
    return json.dumps(listed) if listed else None
