"""Inputs of the labels of an analysis."""

from dataclasses import dataclass

import streamlit as st

from jarvis.core.labels import MAX_TAGS, RunLabels
from jarvis.dashboard.widgets.controls import text_input

_SEPARATOR = ","


@dataclass(frozen=True, slots=True)
class LabelTexts:
    """Labels as a user typed them, tags separated by commas."""

    project: str
    branch: str
    commit: str
    tags: str

    def read(self) -> RunLabels:
        """Return the labels; raise LabelError if one is not valid."""
        return RunLabels.of(self.project, self.branch, self.commit, self.tags.split(_SEPARATOR))


def label_inputs(page: str) -> LabelTexts:
    """Draw an input for each label in one row, bound to the URL."""
    project, branch, commit, tags = st.columns([3, 3, 2, 4])
    with project:
        project_text = text_input(f"{page}_project", "Project", "name", "Groups runs over time.")
    with branch:
        branch_text = text_input(f"{page}_branch", "Branch", "main", "Branch of the code.")
    with commit:
        commit_text = text_input(f"{page}_commit", "Commit", "4f2a9c1", "Commit of the code.")
    with tags:
        tags_text = text_input(
            f"{page}_tags", "Tags", "nightly, fp8", f"At most {MAX_TAGS}, separated by commas."
        )
    return LabelTexts(project_text, branch_text, commit_text, tags_text)
