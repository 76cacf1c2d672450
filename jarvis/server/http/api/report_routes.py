"""API routes of reports: read and write the notes of a team."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict, Field

from jarvis.core.notes import (
    MAX_COMMENT_CHARS,
    MAX_KEY_CHARS,
    MAX_OWNER_CHARS,
    MAX_SUMMARY_CHARS,
    Comment,
    FindingNotes,
    FindingStatus,
    NoteField,
    ReportNotes,
    full_order,
)
from jarvis.reports.ranking import Recommendation, recommendations
from jarvis.run import Run
from jarvis.server import actions, note_actions
from jarvis.server.access.audit import Channel
from jarvis.server.access.rights import Person, Role, require, require_viewer
from jarvis.server.actions import Actor
from jarvis.server.http.api.callers import MAX_ID_LENGTH, Caller
from jarvis.server.storage.report_notes import EXCLUDED, NoteChange, order_value
from jarvis.text.messages import to_text

_MAX_FINDINGS = 2000
_MAX_ID = 2**31 - 1

AnalysisId = Annotated[str, Path(description="id of an analysis", max_length=MAX_ID_LENGTH)]
FindingKey = Annotated[str, Path(description="key of a finding", max_length=MAX_KEY_CHARS)]

router = APIRouter(prefix="/analyses/{analysis_id}/report", tags=["reports"])

_SEEN = Field(
    None,
    ge=0,
    description="the revision that was read: if one of these fields was changed since, nothing is "
    "written (409); by default the last write wins",
)


class ChangeView(BaseModel, title="Change of a note"):
    """Who wrote a field, and when."""

    field: NoteField
    author: str | None = Field(description="null if access control was off")
    moment: datetime
    imported_by: str | None = Field(
        description="who imported it from an archive, empty if access control was off; null if it "
        "was written on this server"
    )


class CommentView(BaseModel, title="Comment"):
    """A comment on a finding; fields as those of a change of a note."""

    id: int
    text: str = Field(description="plain text")
    author: str | None
    moment: datetime
    imported_by: str | None


class FindingNotesView(BaseModel, title="Notes on a finding"):
    """A finding with its notes."""

    key: str = Field(description="the same at every target and when the analysis is run again")
    label: str | None = Field(description="number by saving, like P1; null if it is not reported")
    title: str
    is_reported: bool = Field(description="false if only its notes remain")
    is_included: bool = Field(description="whether the report includes it")
    status: FindingStatus
    owner: str
    comments: list[CommentView]
    changes: list[ChangeView] = Field(description="last change of each field")


class ReportView(BaseModel, title="Report"):
    """The notes on the report of an analysis."""

    revision: int = Field(description="number of the last change; 0 without any")
    summary: str | None = Field(description="the author's summary as Markdown; null if generated")
    is_ordered: bool = Field(description="whether the order is that of the author, not by saving")
    changes: list[ChangeView] = Field(description="last change of summary and order")
    findings: list[FindingNotesView] = Field(description="in the order of the report")


class ReportChanges(BaseModel, title="Changes of a report"):
    """Fields to change; others stay."""

    model_config = ConfigDict(extra="forbid")

    summary: str | None = Field(
        None,
        max_length=MAX_SUMMARY_CHARS,
        description="the author's summary as Markdown; null restores the generated one",
    )
    order: list[Annotated[str, Field(max_length=MAX_KEY_CHARS)]] | None = Field(
        None,
        max_length=_MAX_FINDINGS,
        description="keys of the findings in order; null restores the order by saving",
    )
    seen_revision: int | None = _SEEN


class FindingChanges(BaseModel, title="Changes of a finding's notes"):
    """Fields to change; others stay."""

    model_config = ConfigDict(extra="forbid")

    status: FindingStatus | None = Field(None, description="null is open")
    owner: str | None = Field(
        None, max_length=MAX_OWNER_CHARS, description="who works on it; null if not assigned"
    )
    is_included: bool = Field(True, description="whether the report includes it")
    seen_revision: int | None = _SEEN


class NewComment(BaseModel, title="New comment"):
    """A comment to add."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(max_length=MAX_COMMENT_CHARS, description="plain text")


@router.get("", summary="Show the notes on a report")
def show(person: Caller, analysis_id: AnalysisId) -> ReportView:
    """Return all findings with status, owner and comments, and the author's summary and order."""
    require_viewer(person)
    return _view(person, analysis_id)


@router.patch("", summary="Change summary and order of a report")
def change(person: Caller, analysis_id: AnalysisId, changes: ReportChanges) -> ReportView:
    """Only the owner of the analysis and admins may; return the notes."""
    written = []
    if "summary" in changes.model_fields_set:
        written.append(NoteChange(NoteField.SUMMARY, changes.summary))
    if "order" in changes.model_fields_set:
        value = None if changes.order is None else order_value(changes.order)
        written.append(NoteChange(NoteField.ORDER, value))
    return _written(person, analysis_id, written, changes.seen_revision)


@router.patch("/findings/{finding}", summary="Change the notes on a finding")
def change_finding(
    person: Caller, analysis_id: AnalysisId, finding: FindingKey, changes: FindingChanges
) -> ReportView:
    """Only the owner of the analysis and admins may; return the notes."""
    given = changes.model_fields_set
    written = []
    if "status" in given:
        written.append(NoteChange(NoteField.STATUS, changes.status, finding))
    if "owner" in given:
        written.append(NoteChange(NoteField.OWNER, changes.owner, finding))
    if "is_included" in given:
        value = None if changes.is_included else EXCLUDED
        written.append(NoteChange(NoteField.INCLUDED, value, finding))
    return _written(person, analysis_id, written, changes.seen_revision)


@router.post("/findings/{finding}/comments", summary="Comment on a finding", status_code=201)
def comment(
    person: Caller, analysis_id: AnalysisId, finding: FindingKey, new: NewComment
) -> CommentView:
    """Add a comment; everyone who sees the analysis may."""
    require(person, Role.VIEWER, "comment on findings")
    made = note_actions.add_comment(Actor(person, Channel.API), analysis_id, finding, new.text)
    return _comment(made)


@router.delete("/comments/{comment_id}", summary="Delete a comment", status_code=204)
def remove_comment(
    person: Caller,
    analysis_id: AnalysisId,
    comment_id: Annotated[int, Path(description="id of a comment", ge=0, le=_MAX_ID)],
) -> Response:
    """Its author, the owner of the analysis and admins may."""
    require(person, Role.VIEWER, "comment on findings")
    note_actions.remove_comment(Actor(person, Channel.API), analysis_id, comment_id)
    return Response(status_code=204)


def _written(
    person: Person, analysis_id: str, changes: list[NoteChange], seen: int | None
) -> ReportView:
    require(person, Role.EDITOR, "edit reports")
    actor = Actor(person, Channel.API)
    note_actions.edit_report(actor, analysis_id, changes, seen=seen, is_strict=seen is not None)
    return _view(person, analysis_id)


def _view(person: Person, analysis_id: str) -> ReportView:
    notes = note_actions.read_notes(person, analysis_id)
    run = Run.load(actions.visible_run_dir(person, analysis_id))
    ranked = {item.key: item for item in recommendations(run)}
    order = full_order(notes.order, list(ranked))
    gone = [key for key in notes.findings if key not in ranked]
    return ReportView(
        revision=notes.revision,
        summary=notes.summary,
        is_ordered=bool(notes.order),
        changes=_changes(notes, ""),
        findings=[_finding(notes, key, ranked.get(key)) for key in (*order, *gone)],
    )


def _finding(notes: ReportNotes, key: str, item: Recommendation | None) -> FindingNotesView:
    of_finding: FindingNotes = notes.of(key)
    return FindingNotesView(
        key=key,
        label=item.label if item else None,
        title=to_text(item.finding.title) if item else of_finding.title,
        is_reported=item is not None,
        is_included=of_finding.is_included,
        status=of_finding.status,
        owner=of_finding.owner,
        comments=[_comment(each) for each in of_finding.comments],
        changes=_changes(notes, key),
    )


def _changes(notes: ReportNotes, key: str) -> list[ChangeView]:
    return [
        ChangeView(field=field, **asdict(stamp))
        for (finding, field), stamp in notes.stamps.items()
        if finding == key
    ]


def _comment(comment: Comment) -> CommentView:
    return CommentView(id=comment.id, text=comment.text, **asdict(comment.stamp))
