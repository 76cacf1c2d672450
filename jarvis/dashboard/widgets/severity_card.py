"""Metric cards with a severity grade."""

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
    """Draw a metric with its grade and the description of the grade."""
    facts = facts_of(assessment)
    grade = Severity(str(facts.get("severity", Severity.NOT_AVAILABLE)))
    with st.container(border=True, height="stretch"):
        st.metric(title, value, help=meaning)
        st.badge(grade.lower(), color=_SEVERITY_COLORS[grade])
        if description := facts.get("description"):
            st.caption(prose(str(description)))


def facts_of(metric: JsonValue) -> Mapping[str, Any]:
    """Return a metric's entries; empty if it is not a mapping."""
    return metric if isinstance(metric, dict) else {}
