"""The form that changes the labels of the selected runs."""

from collections.abc import Sequence

import streamlit as st

from jarvis.core.labels import NO_LABELS, RunLabels
from jarvis.dashboard.pages.runs.rows import RunRow
from jarvis.dashboard.session.current_user import actor, current_user
from jarvis.dashboard.session.errors import toast_errors
from jarvis.dashboard.widgets.label_inputs import LabelTexts
from jarvis.server.access.rights import may_change
from jarvis.server.actions import label_analysis
from jarvis.text.format import counted

_KEY = "_runs_label"


def label_form(rows: Sequence[RunRow]) -> None:
    """Draw the popover with the form; one run shows its labels, several get the given ones."""
    can_change = all(may_change(current_user(), row.entry) for row in rows)
    one = rows[0] if len(rows) == 1 else None
    ids = "-".join(row.id for row in rows)
    with (
        st.popover(
            "Labels",
            icon=":material/label:",
            disabled=not can_change,
            help=None if can_change else "Only the owner of a run or an admin changes its labels.",
        ),
        st.form(f"{_KEY}_form_{ids}", border=False),
    ):
        shown = one.labels if one is not None else NO_LABELS
        if one is None:
            st.caption(f"Empty fields stay as they are in the {counted(len(rows), 'run')}.")
        for name, label, value in (
            ("project", "Project", shown.project),
            ("branch", "Branch", shown.branch),
            ("commit", "Commit", shown.commit),
            ("tags", "Tags" if one is not None else "Add tags", ", ".join(shown.tags)),
        ):
            st.text_input(
                label,
                value or "",
                key=_key(name, ids),
                help="Separated by commas." if name == "tags" else None,
            )
        st.form_submit_button("Save labels", type="primary", on_click=_save, args=(rows, ids))


def _save(rows: Sequence[RunRow], ids: str) -> None:
    texts = LabelTexts(
        *(st.session_state[_key(name, ids)] for name in ("project", "branch", "commit", "tags"))
    )
    with toast_errors():
        given = texts.read()
        for row, labels in [(row, _changed(row, given, len(rows))) for row in rows]:
            for analysis_id in row.analyses:
                label_analysis(actor(), analysis_id, labels)


def _changed(row: RunRow, given: RunLabels, count: int) -> RunLabels:
    return given if count == 1 else given.over(row.labels)


def _key(name: str, ids: str) -> str:
    return f"{_KEY}_{name}_{ids}"
