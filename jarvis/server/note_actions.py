"""Authorized operations on the notes of reports, as those of ``actions``."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from jarvis.core.notes import Comment, NoteField, ReportNotes, full_order, moved
from jarvis.run import Run
from jarvis.server.access.audit import Action
from jarvis.server.access.rights import Person, may_change
from jarvis.server.actions import (
    Actor,
    belongs_to,
    changeable_analysis,
    get_visible_analysis,
    record,
)
from jarvis.server.database import database
from jarvis.server.errors import ForbiddenError, UnknownNoteError
from jarvis.server.storage import report_notes
from jarvis.server.storage.analysis_rows import AnalysisRow
from jarvis.server.storage.catalog import analysis_root
from jarvis.server.storage.report_notes import (
    NoteChange,
    WrittenNotes,
    checked_change,
    order_value,
)
from jarvis.text.messages import to_text

_MAX_AUDITED_CHARS = 200
"""Length of a note in the audit log."""


def read_notes(person: Person, analysis_id: str) -> ReportNotes:
    """Return the notes on a report; raise UnknownAnalysisError if the person sees none."""
    get_visible_analysis(person, analysis_id)
    return report_notes.read_notes(database(), analysis_id)


def edit_report(
    actor: Actor,
    analysis_id: str,
    changes: Iterable[NoteChange],
    *,
    titles: Mapping[str, str] | None = None,
    seen: int | None = None,
    is_strict: bool = False,
) -> WrittenNotes:
    """Write fields of the notes on a report.

    Args:
        titles: titles of the findings by key, by saving, of a report at other targets; None for
            those of the stored analysis.
        seen: the revision of the notes that the person has seen.
        is_strict: raise instead of replacing values that were written after ``seen``.

    Raises:
        NoteError: a value is not valid.
        UnknownNoteError: the report neither has such a finding nor notes on it.
        StaleNotesError: as ``is_strict`` says.
        ForbiddenError, UnknownAnalysisError: as in ``pin_analysis``.
    """
    changeable_analysis(actor, analysis_id, "edit the report of")
    checked = [checked_change(change) for change in changes]
    known = {**_finding_titles(analysis_id), **(titles or {})}

    def changes_of(notes: ReportNotes) -> list[NoteChange]:
        return [_titled(change, known, notes) for change in checked]

    return _edited(actor, analysis_id, changes_of, seen, is_strict=is_strict)


def move_finding(
    actor: Actor,
    analysis_id: str,
    finding: str,
    places: int,
    *,
    titles: Mapping[str, str] | None = None,
    seen: int | None = None,
) -> WrittenNotes:
    """Move a finding in the order of the report as it is now, so that no other move is lost.

    Args:
        places: places to the end; negative to the start.
        titles: as in ``edit_report``.
        seen: the revision of the notes that the person has seen.

    Raises:
        UnknownNoteError: the report has no such finding.
        ForbiddenError, UnknownAnalysisError: as in ``pin_analysis``.
    """
    changeable_analysis(actor, analysis_id, "edit the report of")
    ranked = list(titles or _finding_titles(analysis_id))
    if finding not in ranked:
        raise _no_finding(finding)

    def changes_of(notes: ReportNotes) -> list[NoteChange]:
        order = moved(full_order(notes.order, ranked), finding, places)
        if order == ranked:
            return [NoteChange(NoteField.ORDER, None)]
        # Findings that are not reported at these targets keep their places.
        everything = [*notes.order, *(key for key in order if key not in notes.order)]
        return [NoteChange(NoteField.ORDER, order_value(full_order(order, everything)))]

    return _edited(actor, analysis_id, changes_of, seen)


def add_comment(
    actor: Actor,
    analysis_id: str,
    finding: str,
    text: str,
    titles: Mapping[str, str] | None = None,
) -> Comment:
    """Add a comment on a finding; everyone who sees the analysis may.

    Args:
        titles: as in ``edit_report``.

    Raises:
        UnknownAnalysisError: the person cannot see such an analysis.
        UnknownNoteError: the report neither has such a finding nor notes on it.
        NoteError: the comment is not valid, or there are too many.
    """
    notes = read_notes(actor.person, analysis_id)
    known = {**_finding_titles(analysis_id), **(titles or {})}
    if finding not in known and finding not in notes.findings:
        raise _no_finding(finding)
    title = known.get(finding) or notes.of(finding).title
    name = actor.person.name
    comment = report_notes.add_comment(database(), analysis_id, name, finding, title, text)
    record(database(), actor, Action.COMMENT, analysis_id, finding=finding, comment=comment.id)
    return comment


def may_remove_comment(person: Person, row: AnalysisRow, comment: Comment) -> bool:
    """Return whether a person may delete a comment: its author, or who may change the analysis."""
    stamp = comment.stamp
    is_theirs = stamp.imported_by is None and person.name in {stamp.author} - {None}
    return is_theirs or may_change(person, row)


def remove_comment(actor: Actor, analysis_id: str, comment_id: int) -> None:
    """Delete a comment.

    Raises:
        UnknownAnalysisError: the person cannot see such an analysis.
        UnknownNoteError: there is no such comment.
        ForbiddenError: another user wrote it, and the person may not change the analysis.
    """
    row = get_visible_analysis(actor.person, analysis_id)
    finding, comment = report_notes.find_comment(database(), analysis_id, comment_id)
    if not may_remove_comment(actor.person, row, comment):
        raise ForbiddenError(
            f"Only {comment.stamp.name}, the owner of analysis {analysis_id} or an admin may "
            f"delete this comment. {belongs_to(row.owner)}"
        )
    report_notes.remove_comment(database(), analysis_id, comment_id)
    record(
        database(),
        actor,
        Action.COMMENT_REMOVE,
        analysis_id,
        finding=finding,
        comment=comment_id,
        author=comment.stamp.name,
    )


def _finding_titles(analysis_id: str) -> dict[str, str]:
    """Return the titles of the findings by key, in the order by saving."""
    from jarvis.reports.ranking import recommendations  # other actions do not need reports

    run = Run.load(analysis_root(analysis_id))
    return {each.key: to_text(each.finding.title) for each in recommendations(run)}


def _titled(change: NoteChange, titles: Mapping[str, str], notes: ReportNotes) -> NoteChange:
    """Return a change with the title of its finding; raise UnknownNoteError if there is none."""
    if not change.finding:
        return change
    if change.finding not in titles and change.finding not in notes.findings:
        raise _no_finding(change.finding)
    return replace(change, title=titles.get(change.finding) or notes.of(change.finding).title)


def _no_finding(finding: str) -> UnknownNoteError:
    return UnknownNoteError(f"The report has no finding {finding[:80]!r}. Reload the page.")


def _edited(
    actor: Actor,
    analysis_id: str,
    changes_of: Callable[[ReportNotes], list[NoteChange]],
    seen: int | None,
    *,
    is_strict: bool = False,
) -> WrittenNotes:
    """Write notes, and an audit entry for each changed field."""
    name = actor.person.name
    written = report_notes.write_notes(
        database(), analysis_id, name, changes_of, seen=seen, is_strict=is_strict
    )
    for change in written.changes:
        detail = {"finding": change.finding} if change.finding else {}
        value = (change.value or "")[:_MAX_AUDITED_CHARS]
        record(
            database(),
            actor,
            Action.EDIT_REPORT,
            analysis_id,
            field=change.field,
            value=value,
            **detail,
        )
    return written
