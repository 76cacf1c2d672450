"""Cards with a graded figure."""

from collections.abc import Mapping
from typing import Any, Literal

import streamlit as st
from pydantic import JsonValue

from jarvis.findings import Severity
from jarvis.text.markdown import prose

_SEVERITY_COLORS: Mapping[Severity, Literal["red", "orange", "yellow", "blue", "gray", "green"]] = {
    Severity.CRITICAL: "red",
    Severity.HIGH: "orange",
    Severity.MEDIUM: "yellow",
    Severity.LOW: "blue",
    Severity.ACCEPTABLE: "gray",
    Severity.GOOD: "green",
    Severity.NOT_AVAILABLE: "gray",
}


def grade_card(title: str, value: str, assessment: JsonValue, meaning: str) -> None:
    """A figure with its grade in words and color, and the sentence behind it."""
    facts = facts_of(assessment)
    grade = Severity(str(facts.get("severity", Severity.NOT_AVAILABLE)))
    with st.container(border=True, height="stretch"):
        st.metric(title, value, help=meaning)
        st.badge(grade.lower(), color=_SEVERITY_COLORS[grade])
        if description := facts.get("description"):
            st.caption(prose(str(description)))


def facts_of(metric: JsonValue) -> Mapping[str, Any]:
    """The entries of a metric; none where it is no mapping."""
    return metric if isinstance(metric, dict) else {}
