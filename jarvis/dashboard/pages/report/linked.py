"""Edits in the link of an earlier release: applied as a preview, with an offer to save them."""

import re
from dataclasses import dataclass, replace

import streamlit as st

from jarvis.core.notes import MAX_SUMMARY_CHARS, NoteField, ReportNotes
from jarvis.dashboard.pages.report import saved
from jarvis.dashboard.pages.report.saved import Saved
from jarvis.dashboard.session.links import check_parameter, note_control
from jarvis.dashboard.session.state import Opened
from jarvis.reports.ranking import Recommendation
from jarvis.server.storage.report_notes import EXCLUDED, NoteChange
from jarvis.text.format import counted

WITHOUT, SUMMARY = "report_without", "report_summary"
"""URL parameters: the numbers of the findings left out, and the author's summary."""

_NUMBERS = re.compile(r"\d{1,6}(,\d{1,6})*")
_OPENED = "_report_analysis"


@dataclass(frozen=True, slots=True)
class LinkedEdits:
    """The edits of a link; None for what it does not have."""

    left_out: frozenset[str] | None
    summary: str | None

    def over(self, notes: ReportNotes) -> ReportNotes:
        """Return the notes with these edits instead of the stored ones."""
        if self.summary is not None:
            notes = replace(notes, summary=self.summary)
        if self.left_out is None:
            return notes
        keys = notes.findings.keys() | self.left_out
        findings = {key: replace(notes.of(key), is_included=True) for key in sorted(keys)}
        for key in self.left_out:
            findings[key] = replace(findings[key], is_included=False)
        return replace(notes, findings=findings)

    def changes(self, ranked: list[Recommendation]) -> list[NoteChange]:
        """Return the changes that save these edits."""
        changes = []
        if self.summary is not None:
            changes.append(NoteChange(NoteField.SUMMARY, self.summary))
        if self.left_out is not None:
            for item in ranked:
                value = EXCLUDED if item.key in self.left_out else None
                changes.append(NoteChange(NoteField.INCLUDED, value, item.key))
        return changes


def linked_edits(now: Opened, ranked: list[Recommendation]) -> LinkedEdits | None:
    """Return the edits in the URL; None if it has none, or only those of another analysis.

    ``ranked`` are the findings of the stored analysis, whose numbers earlier releases wrote.
    """
    if st.session_state.get(_OPENED, now.id) != now.id:
        _discard()
    st.session_state[_OPENED] = now.id
    keys = {item.number: item.key for item in ranked}
    check_parameter(WITHOUT, lambda text: _is_choice(text, keys), "every finding")
    given, summary = st.query_params.get(WITHOUT), st.query_params.get(SUMMARY)
    if given is not None and not _is_choice(given, keys):
        del st.query_params[WITHOUT]
        given = None
    if given is None and not summary:
        return None
    for parameter, value in ((WITHOUT, given), (SUMMARY, summary)):
        note_control(parameter, value)
    left_out = None if given is None else frozenset(keys[int(n)] for n in given.split(","))
    return LinkedEdits(left_out, summary[:MAX_SUMMARY_CHARS] if summary else None)


def offer_to_save(
    now: Opened, linked: LinkedEdits, own: Saved, ranked: list[Recommendation]
) -> None:
    """Draw what the link contains, and buttons that save or discard it."""
    parts = [] if linked.summary is None else ["a summary"]
    if linked.left_out is not None:
        parts.append(f"{counted(len(linked.left_out), 'finding')} left out")
    with st.container(horizontal=True, vertical_alignment="center"):
        st.info(
            f"Edits in this link, shown but not saved: {' and '.join(parts)}.",
            icon=":material/preview:",
            width="stretch",
        )
        st.button(
            "Save for everybody",
            key="report_save_link",
            type="primary",
            disabled=not own.can_edit,
            help=own.hint,
            on_click=_save,
            args=(now, linked, ranked),
        )
        st.button("Discard", key="report_discard_link", on_click=_discard)


def _save(now: Opened, linked: LinkedEdits, ranked: list[Recommendation]) -> None:
    saved.save(now, linked.changes(ranked))
    _discard()


def _discard() -> None:
    st.query_params.pop(WITHOUT, None)
    st.query_params.pop(SUMMARY, None)


def _is_choice(text: str, known: dict[int, str]) -> bool:
    return bool(_NUMBERS.fullmatch(text)) and known.keys() >= {int(n) for n in text.split(",")}
