"""The editor of a report: choice and order of its findings, and its executive summary.

Everything is saved on the server for everybody who sees the analysis.
"""

from collections.abc import Iterable

import streamlit as st

from jarvis.core.notes import (
    MAX_SUMMARY_CHARS,
    FindingNotes,
    NoteField,
    ReportNotes,
    full_order,
)
from jarvis.dashboard.pages.report import saved
from jarvis.dashboard.pages.report.finding_notes import (
    finding_panel,
    select,
    selected_finding,
)
from jarvis.dashboard.pages.report.linked import linked_edits, offer_to_save
from jarvis.dashboard.pages.report.note_badges import badges
from jarvis.dashboard.pages.report.saved import Saved, stamp_line
from jarvis.dashboard.session.state import HASH_OPENED, Opened
from jarvis.dashboard.widgets.finding_cards import ORDER, priority_badge
from jarvis.findings import Priority
from jarvis.reports.details import details_of
from jarvis.reports.edits import Edits
from jarvis.reports.fair import listed_count, share
from jarvis.reports.ranking import Recommendation, recommendations
from jarvis.reports.summary import paragraph
from jarvis.server.storage.report_notes import EXCLUDED, NoteChange
from jarvis.text.format import counted
from jarvis.text.markdown import name_first, prose
from jarvis.text.messages import to_text

_MAX_CACHED_PARAGRAPHS = 256
_LIST_PX, _TEXT_PX = 496, 360
_ROWS = 12
"""Rows of findings that the list has room for."""

_WIDTHS = (7, 1)
"""Relative widths of a finding and its button."""

_INCLUDED, _TEXT = "_report_included", "_report_text"


def edited(now: Opened) -> Edits:
    """Draw the editor, and return the notes on the report."""
    ranked = recommendations(now.run)
    own = saved.read_saved(now)
    titles = saved.titles_of(ranked)
    saved.watch(now, own.notes)
    saved.show_replaced(now, lambda key: titles.get(key) or own.notes.of(key).title)
    notes, is_preview = own.notes, False
    numbered = ranked if now.run.stored is None else recommendations(now.run.stored)
    if (linked := linked_edits(now, numbered)) is not None:
        offer_to_save(now, linked, own, numbered)
        notes, is_preview = linked.over(notes), True
    shown = Saved(notes, own.row, own.can_edit and not is_preview)
    order = full_order(notes.order, list(titles))
    by_key = {item.key: item for item in ranked}
    with st.container(border=True):
        findings, panel = st.columns([2, 1])
        with findings:
            _findings(now, [by_key[key] for key in order], shown)
        with panel:
            chosen = selected_finding([*order, *_unreported(notes, order)])
            if chosen is None:
                _summary(now, shown)
            else:
                finding_panel(now, own, by_key.get(chosen), own.notes.of(chosen))
    saved.remember_seen(now, own.notes)
    return Edits.of(notes)


def _unreported(notes: ReportNotes, order: Iterable[str]) -> list[str]:
    """Return the keys of findings with notes that the report no longer has."""
    known = set(order)
    return [key for key, note in notes.findings.items() if key not in known and not note.is_empty]


def _findings(now: Opened, items: list[Recommendation], own: Saved) -> None:
    """Draw the findings with a switch and a button for notes each, and those of earlier reports."""
    notes = own.notes
    left_out = [item for item in items if item.key in notes.left_out]
    with st.container(
        horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"
    ):
        heading = f"**{_heading(len(items), len(left_out))}**"
        st.markdown(heading, width="content", help=ORDER)
        with st.container(horizontal=True, width="content", gap="xsmall"):
            low = [item for item in items if item.finding.priority is Priority.LOW]
            _set_button(now, "Include all", items, [], own)
            _set_button(now, "Leave out low priority", items, low, own)
            if notes.order:
                st.button(
                    "Order by saving",
                    key="report_by_saving",
                    type="tertiary",
                    disabled=not own.can_edit,
                    help=own.hint or _ordered_by(notes),
                    on_click=saved.save,
                    args=(now, [NoteChange(NoteField.ORDER, None)]),
                )
    st.caption(_shown(items, left_out))
    has_room = len(items) <= _ROWS
    with st.container(height="content" if has_room else _LIST_PX, border=False, gap="xsmall"):
        if not items:
            st.info("No findings: no check found a saving above its threshold.")
        for item in items:
            _row(now, item, own)
        if gone := _unreported(notes, (item.key for item in items)):
            st.caption(saved.gone_note(now))
            for key in gone:
                _gone_row(notes.of(key))


def _ordered_by(notes: ReportNotes) -> str:
    stamp = notes.stamps.get(("", NoteField.ORDER))
    return f"Ordered by {stamp_line(stamp)}" if stamp else ""


def _heading(count: int, left_out: int) -> str:
    if not left_out:
        return f"{counted(count, 'finding')} for the reports" if count else "No findings"
    return f"{count - left_out} of {counted(count, 'finding')} for the reports"


def _shown(items: list[Recommendation], left_out: list[Recommendation]) -> str:
    """Return the order of the findings, and which of the included ones the report lists."""
    included = [item.finding for item in items if item not in left_out]
    shown = listed_count(included)
    in_view = f"; the first {_ROWS} in view" if len(items) > _ROWS else ""
    order = f"Each with the share of the step time that it saves{in_view}."
    if shown >= len(included):
        return order
    return (
        f"{order} The report has the first {shown}; the detailed report and the workbook also have "
        "the others, of low priority or small saving."
    )


def _row(now: Opened, item: Recommendation, own: Saved) -> None:
    key = f"{_INCLUDED}_{now.id}_{item.number}"
    st.session_state[key] = item.key not in own.notes.left_out
    finding, notes = st.columns(_WIDTHS, vertical_alignment="center", gap="small")
    with finding:
        st.checkbox(
            _switch_label(item, own.notes.of(item.key)),
            key=key,
            disabled=not own.can_edit,
            on_change=_switch,
            args=(now, key, item.key),
            width="stretch",
        )
    with notes:
        _notes_button(item.key, f"Status, owner and comments of {item.label}", item.label)


def _gone_row(notes: FindingNotes) -> None:
    finding, button = st.columns(_WIDTHS, vertical_alignment="center", gap="small")
    finding.markdown(f"{badges(notes)} {prose(notes.title)}")
    with button:
        _notes_button(notes.key, "Status, owner and comments", notes.key)


def _notes_button(finding: str, meaning: str, name: str) -> None:
    st.button(
        "Notes",
        key=f"report_notes_{name}",
        type="tertiary",
        icon=":material/edit_note:",
        help=meaning,
        on_click=select,
        args=(finding,),
    )


def _switch_label(item: Recommendation, notes: FindingNotes) -> str:
    gain = item.finding.impact
    saving = f" {share(gain)} ·" if gain and gain.gain_ms > 0 else ""
    about = f"{item.label} {priority_badge(item.finding.priority)}{badges(notes)}"
    return f"{about}{saving} {prose(name_first(to_text(item.finding.title)).replace('aten::', ''))}"


def _switch(now: Opened, key: str, finding: str) -> None:
    value = None if st.session_state[key] else EXCLUDED
    saved.save(now, [NoteChange(NoteField.INCLUDED, value, finding)])


def _set_button(
    now: Opened,
    label: str,
    items: list[Recommendation],
    left_out: list[Recommendation],
    own: Saved,
) -> None:
    keys = {item.key for item in left_out}
    changes = [
        NoteChange(NoteField.INCLUDED, EXCLUDED if item.key in keys else None, item.key)
        for item in items
    ]
    st.button(
        label,
        key=f"report_set_{label}",
        type="tertiary",
        on_click=saved.save,
        args=(now, changes),
        disabled=not own.can_edit,
        help=own.hint or "Select these findings",
    )


@st.cache_data(max_entries=_MAX_CACHED_PARAGRAPHS, show_spinner=False, hash_funcs=HASH_OPENED)
def _paragraph(now: Opened, left_out: frozenset[str]) -> str:
    """Return the generated summary of the report without these findings, as Markdown."""
    included, omitted = Edits(left_out).partition(details_of(now.run))
    return str(prose(paragraph(now.run, included, is_whole=not omitted)))


def _summary(now: Opened, own: Saved) -> None:
    """Draw the summary; the generated one unless a user wrote another."""
    generated = _paragraph(now, own.notes.left_out)
    key, text = f"{_TEXT}_{now.id}", own.notes.summary
    st.session_state[key] = generated if text is None else text
    st.text_area(
        "**Executive summary** (Markdown)",
        key=key,
        height=_TEXT_PX,
        max_chars=MAX_SUMMARY_CHARS,
        disabled=not own.can_edit,
        on_change=_save_summary,
        args=(now, key, generated),
        help=own.hint
        or "Your text replaces the generated summary in all reports, marked as written by the "
        "author. Clear it to restore the generated summary.",
    )
    if text is None:
        hint = " Edit as you like; it is saved for everybody." if own.can_edit else ""
        st.caption(f"Auto-generated.{hint}")
        return
    stamp = own.notes.stamps.get(("", NoteField.SUMMARY))
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(f"Written by {stamp_line(stamp)}." if stamp else "From the link.")
        st.button(
            "Restore generated summary",
            key="report_restore",
            type="tertiary",
            disabled=not own.can_edit,
            on_click=saved.save,
            args=(now, [NoteChange(NoteField.SUMMARY, None)]),
            help=own.hint or "Replace the text with the generated summary",
        )


def _save_summary(now: Opened, key: str, generated: str) -> None:
    text = (st.session_state[key] or "").strip()
    value = None if text in ("", generated.strip()) else text
    saved.save(now, [NoteChange(NoteField.SUMMARY, value)])
