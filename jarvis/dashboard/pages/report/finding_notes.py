"""The panel of one finding in the report: its place, status, owner and comments."""

from collections.abc import Collection, Mapping

import streamlit as st

from jarvis.core.notes import (
    MAX_COMMENT_CHARS,
    MAX_OWNER_CHARS,
    Comment,
    FindingNotes,
    FindingStatus,
    NoteField,
)
from jarvis.dashboard.pages.report import saved
from jarvis.dashboard.pages.report.saved import Saved, stamp_line
from jarvis.dashboard.session.current_user import actor, current_user
from jarvis.dashboard.session.errors import toast_errors
from jarvis.dashboard.session.links import check_parameter, note_control
from jarvis.dashboard.session.state import Opened
from jarvis.dashboard.widgets.finding_cards import priority_badge
from jarvis.reports.ranking import Recommendation, recommendations
from jarvis.server.note_actions import add_comment, may_remove_comment, remove_comment
from jarvis.server.storage.report_notes import NoteChange
from jarvis.text.markdown import plain_text, prose

FINDING = "report_finding"
"""URL parameter: the key of the finding whose notes are open."""

STATUS_LABELS: Mapping[FindingStatus, str] = {
    FindingStatus.OPEN: "Open",
    FindingStatus.PLANNED: "Planned",
    FindingStatus.DONE: "Done",
    FindingStatus.WONT_FIX: "Won't fix",
}
STATUS_COLORS: Mapping[FindingStatus, str] = {
    FindingStatus.OPEN: "gray",
    FindingStatus.PLANNED: "blue",
    FindingStatus.DONE: "green",
    FindingStatus.WONT_FIX: "gray",
}
"""Streamlit color names; the badge also has the status as text."""

_STATUS, _OWNER, _COMMENT = "_report_status", "_report_owner", "_report_comment"
_COMMENTS_PX = 240
_WIDTHS = (5, 1)
"""Relative widths of a text and its button."""


def select(finding: str | None) -> None:
    """Open the notes on a finding, or none; for callbacks."""
    if finding is None:
        st.query_params.pop(FINDING, None)
    else:
        st.query_params[FINDING] = finding


def selected_finding(known: Collection[str]) -> str | None:
    """Return the key of the finding whose notes are open; None for none."""
    check_parameter(FINDING, lambda text: text in known, "none")
    given = st.query_params.get(FINDING)
    if given is None or given not in known:
        st.query_params.pop(FINDING, None)
        return None
    note_control(FINDING, given)
    return given


def finding_panel(
    now: Opened, own: Saved, item: Recommendation | None, notes: FindingNotes
) -> None:
    """Draw the panel; ``item`` is None for a finding that is no longer reported."""
    title, button = st.columns(_WIDTHS, gap="small")
    head = f"{item.label} {priority_badge(item.finding.priority)} " if item else ""
    title.markdown(f"**{head}{prose(item.finding.title if item else notes.title)}**")
    button.button(
        "Close",
        key="report_close",
        type="tertiary",
        help="Back to the summary",
        on_click=select,
        args=(None,),
    )
    if item is None:
        st.caption(saved.gone_note(now))
    _decision(now, own, notes)
    if item is not None:
        _place(now, own, notes.key)
    _comments(now, own, notes)


def _decision(now: Opened, own: Saved, notes: FindingNotes) -> None:
    """Draw status and owner, with who set them."""
    status_key, owner_key = f"{_STATUS}_{now.id}_{notes.key}", f"{_OWNER}_{now.id}_{notes.key}"
    st.session_state[status_key], st.session_state[owner_key] = notes.status, notes.owner
    left, right = st.columns(2)
    with left:
        st.selectbox(
            "Status",
            list(FindingStatus),
            format_func=STATUS_LABELS.__getitem__,
            key=status_key,
            disabled=not own.can_edit,
            help=own.hint,
            on_change=_save,
            args=(now, NoteField.STATUS, status_key, notes.key),
        )
        _stamp(own, notes.key, NoteField.STATUS)
    with right:
        st.text_input(
            "Owner",
            key=owner_key,
            max_chars=MAX_OWNER_CHARS,
            placeholder="who works on it",
            disabled=not own.can_edit,
            help=own.hint,
            on_change=_save,
            args=(now, NoteField.OWNER, owner_key, notes.key),
        )
        _stamp(own, notes.key, NoteField.OWNER)


def _stamp(own: Saved, finding: str, field: NoteField) -> None:
    if line := stamp_line(own.notes.stamps.get((finding, field))):
        st.caption(line)


def _place(now: Opened, own: Saved, finding: str) -> None:
    """Draw the buttons that move the finding in the report."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.caption("Place in the report", width="content")
        for label, icon, places in (
            ("Up", ":material/arrow_upward:", -1),
            ("Down", ":material/arrow_downward:", 1),
        ):
            st.button(
                label,
                key=f"report_move_{label}",
                icon=icon,
                type="tertiary",
                disabled=not own.can_edit,
                help=own.hint,
                on_click=saved.move,
                args=(now, finding, places),
            )


def _comments(now: Opened, own: Saved, notes: FindingNotes) -> None:
    """Draw the comments, and the field for another one."""
    if notes.comments:
        with st.container(height=_COMMENTS_PX, border=False, gap="xsmall"):
            for comment in notes.comments:
                _comment(now, own, comment)
    key = f"{_COMMENT}_{now.id}_{notes.key}"
    with st.form(f"{key}_form", clear_on_submit=True, border=False):
        st.text_area(
            "Comment",
            key=key,
            height=68,
            max_chars=MAX_COMMENT_CHARS,
            placeholder="Plain text, visible to everybody who sees the analysis",
        )
        st.form_submit_button(
            "Add comment",
            icon=":material/add_comment:",
            on_click=_add,
            args=(now, key, notes.key),
        )


def _comment(now: Opened, own: Saved, comment: Comment) -> None:
    text, button = st.columns(_WIDTHS, gap="small")
    with text, st.container(gap=None):
        st.text(plain_text(comment.text))
        st.caption(stamp_line(comment.stamp))
    if may_remove_comment(current_user(), own.row, comment):
        button.button(
            "Delete",
            key=f"report_delete_{comment.id}",
            type="tertiary",
            on_click=_remove,
            args=(now, comment.id),
        )


def _save(now: Opened, field: NoteField, key: str, finding: str) -> None:
    saved.save(now, [NoteChange(field, st.session_state[key], finding)])


def _add(now: Opened, key: str, finding: str) -> None:
    with toast_errors():
        titles = saved.titles_of(recommendations(now.run))
        add_comment(actor(), now.id, finding, st.session_state[key], titles)


def _remove(now: Opened, comment_id: int) -> None:
    with toast_errors():
        remove_comment(actor(), now.id, comment_id)
