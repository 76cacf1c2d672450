"""Notes on reports in archives, of which those of other servers are not trusted."""

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Engine
from sqlalchemy.engine import RowMapping

from jarvis.core.notes import (
    MAX_COMMENT_CHARS,
    MAX_COMMENTS,
    MAX_KEY_CHARS,
    MAX_TITLE_CHARS,
    NoteField,
    Stamp,
    checked_text,
)
from jarvis.server.database import reading, writing
from jarvis.server.storage.report_notes import (
    MAX_FIELDS,
    NoteChange,
    checked_change,
    comment_rows,
    field_rows,
    lock_analysis,
    next_revision,
    revision_of,
    write_comment,
    write_field,
)


class _Archived(BaseModel):
    """Notes in an archive; those of another server are not trusted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    finding: str = Field("", max_length=MAX_KEY_CHARS, pattern=r"^[A-Za-z0-9_.:-]*$")
    title: str = Field("", max_length=MAX_TITLE_CHARS)
    author: str | None = Field(None, max_length=MAX_TITLE_CHARS)
    moment: datetime


class ArchivedField(_Archived):
    """A field in an archive."""

    field: NoteField
    value: str


class ArchivedComment(_Archived):
    """A comment in an archive."""

    text: str = Field(max_length=MAX_COMMENT_CHARS)


class ArchivedNotes(BaseModel):
    """The notes of an archived analysis."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fields: tuple[ArchivedField, ...] = Field(max_length=MAX_FIELDS)
    comments: tuple[ArchivedComment, ...] = Field(max_length=MAX_COMMENTS)


def archived_notes(engine: Engine, analysis_id: str) -> ArchivedNotes | None:
    """Return the notes of an analysis for its archive; None if there are none."""
    with reading(engine) as connection:
        fields = tuple(
            ArchivedField(**_archived(row), field=row["field"], value=row["value"])
            for row in field_rows(connection, analysis_id)
            if row["value"] is not None
        )
        comments = tuple(
            ArchivedComment(**_archived(row), text=row["text"])
            for row in comment_rows(connection, analysis_id)
        )
    return ArchivedNotes(fields=fields, comments=comments) if fields or comments else None


def check_notes(notes: ArchivedNotes) -> None:
    """Raise NoteError if an archived note is not valid."""
    for field in notes.fields:
        checked_change(_change(field))
    for comment in notes.comments:
        checked_text("comment", comment.text, MAX_COMMENT_CHARS)


def import_notes(
    engine: Engine, analysis_id: str, notes: ArchivedNotes, imported_by: str | None
) -> None:
    """Store checked notes of an archive for an analysis that has none, marked as imported."""
    with writing(engine) as connection:
        lock_analysis(connection, analysis_id)
        if revision_of(connection, analysis_id):
            return
        revision = next_revision(connection, analysis_id)
        for field in notes.fields:
            change = checked_change(_change(field))
            write_field(connection, analysis_id, change, revision, _imported(field, imported_by))
        for comment in notes.comments:
            text = checked_text("comment", comment.text, MAX_COMMENT_CHARS)
            stamp = _imported(comment, imported_by)
            write_comment(
                connection, analysis_id, comment.finding, _line(comment.title), text, stamp
            )


def _archived(row: RowMapping) -> dict[str, Any]:
    names = ("finding", "title", "author", "moment")
    return {name: row[name] for name in names}


def _change(field: ArchivedField) -> NoteChange:
    return NoteChange(field.field, field.value, field.finding, _line(field.title))


def _line(text: str) -> str:
    return checked_text("text", text, MAX_TITLE_CHARS, is_line=True)


def _imported(note: _Archived, imported_by: str | None) -> Stamp:
    author = note.author and _line(note.author)
    moment = note.moment if note.moment.tzinfo else note.moment.replace(tzinfo=UTC)
    return Stamp(author, moment, imported_by or "")
