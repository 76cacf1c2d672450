"""Notes on the report of the open analysis: read, written for everybody, and conflicts shown."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import streamlit as st

from jarvis.core.notes import FindingStatus, NoteField, ReportNotes, Stamp
from jarvis.dashboard.session.current_user import actor, current_user
from jarvis.dashboard.session.errors import toast_errors
from jarvis.dashboard.session.polling import polled
from jarvis.dashboard.session.state import Opened
from jarvis.reports.ranking import Recommendation, recommendations
from jarvis.server.access.rights import may_change
from jarvis.server.actions import get_visible_analysis
from jarvis.server.database import database
from jarvis.server.note_actions import edit_report, move_finding, read_notes
from jarvis.server.storage.analysis_rows import AnalysisRow
from jarvis.server.storage.report_notes import (
    NoteChange,
    ReplacedNote,
    read_revision,
)
from jarvis.text.format import utc_minute
from jarvis.text.markdown import code, escape, plain_text, prose
from jarvis.text.messages import to_text

POLL_S = 15.0
"""Interval in which an open page looks for changes by others."""

_SEEN, _REPLACED = "_report_seen", "_report_replaced"
_FIELD_NAMES = {
    NoteField.SUMMARY: "the summary",
    NoteField.ORDER: "the order",
    NoteField.INCLUDED: "the choice",
    NoteField.STATUS: "the status",
    NoteField.OWNER: "the owner",
}


@dataclass(frozen=True, slots=True)
class Saved:
    """The stored notes, and what the user may do with them."""

    notes: ReportNotes
    row: AnalysisRow
    can_edit: bool

    @property
    def hint(self) -> str | None:
        """Return why the user cannot edit; None if they can."""
        return None if self.can_edit else "Only the owner of the analysis or an admin changes this."


def read_saved(now: Opened) -> Saved:
    """Return the stored notes on the report."""
    user = current_user()
    row = get_visible_analysis(user, now.id)
    return Saved(read_notes(user, now.id), row, may_change(user, row))


def titles_of(ranked: Iterable[Recommendation]) -> dict[str, str]:
    """Return the titles of the findings by key, by saving at the targets of the page."""
    return {item.key: to_text(item.finding.title) for item in ranked}


def gone_note(now: Opened) -> str:
    """Return why findings with notes are not listed."""
    if now.run.stored is None:
        return "No longer reported by this analysis; the notes remain."
    return "Not reported at this target; the notes remain."


def remember_seen(now: Opened, notes: ReportNotes) -> None:
    """Store the revision that this page shows, to detect changes by others."""
    st.session_state[_SEEN] = (now.id, notes.revision)


def save(now: Opened, changes: Iterable[NoteChange]) -> None:
    """Write fields of the notes; for callbacks."""
    with toast_errors():
        written = edit_report(
            actor(), now.id, changes, titles=titles_of(recommendations(now.run)), seen=_seen(now)
        )
        st.session_state[_REPLACED] = (now.id, written.replaced, False)


def move(now: Opened, finding: str, places: int) -> None:
    """Move a finding in the stored order; for callbacks."""
    with toast_errors():
        written = move_finding(
            actor(),
            now.id,
            finding,
            places,
            titles=titles_of(recommendations(now.run)),
            seen=_seen(now),
        )
        st.session_state[_REPLACED] = (now.id, written.replaced, True)


def show_replaced(now: Opened, title_of: Callable[[str], str]) -> None:
    """Draw what the last change of this page replaced without having shown it.

    ``title_of`` returns the title of a finding by its key.
    """
    analysis, replaced, is_move = st.session_state.get(_REPLACED, (None, (), False))
    for number, note in enumerate(replaced if analysis == now.id else ()):
        if is_move:
            st.info(
                f"{code(note.stamp.name)} changed the order meanwhile. Your move follows theirs.",
                icon=":material/merge:",
            )
        else:
            _replaced(now, note, title_of(note.finding) if note.finding else "", number)


def watch(now: Opened, notes: ReportNotes) -> None:
    """Draw a message as soon as another user changes the notes that this page shows."""
    _watch(now.id, notes.revision)


@polled(POLL_S)
def _watch(analysis_id: str, shown: int) -> None:
    if read_revision(database(), analysis_id) <= shown:
        return
    newest = read_notes(current_user(), analysis_id).last_change
    by = f" by {code(newest.name)}" if newest else ""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.info(f"The report was changed{by}. This page shows the previous version.")
        if st.button("Show the changes", icon=":material/refresh:", key="report_refresh"):
            st.rerun()


def stamp_line(stamp: Stamp | None) -> str:
    """Return who wrote a note and when, as Markdown; empty without a note."""
    return "" if stamp is None else f"{code(stamp.name)}, {utc_minute(stamp.moment)}"


def _seen(now: Opened) -> int | None:
    analysis, revision = st.session_state.get(_SEEN, (None, 0))
    return revision if analysis == now.id else None


def _replaced(now: Opened, note: ReplacedNote, title: str, number: int) -> None:
    of = f" of {prose(title)}" if title else ""
    st.warning(
        f"{code(note.stamp.name)} changed {_FIELD_NAMES[note.field]}{of}{_value(note)} "
        f"({utc_minute(note.stamp.moment)}). Your change replaced it.",
        icon=":material/merge:",
    )
    if note.field is NoteField.SUMMARY and note.value:
        with st.expander("The replaced summary"):
            st.text(plain_text(note.value))
    st.button(
        "Restore the replaced version",
        key=f"report_restore_{number}",
        on_click=save,
        args=(now, [NoteChange(note.field, note.value, note.finding)]),
    )


def _value(note: ReplacedNote) -> str:
    """Return the replaced value of a short field, as Markdown."""
    if note.field is NoteField.STATUS:
        return f" to {note.value or FindingStatus.OPEN}"
    if note.field is NoteField.OWNER:
        return f" to {escape(note.value)}" if note.value else " to no one"
    return ""
