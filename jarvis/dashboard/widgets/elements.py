"""Streamlit elements with this project's defaults: chart, metric card, lazy expander."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

import streamlit as st
from streamlit.elements.lib.mutable_expander_container import ExpanderContainer

from jarvis.analyses.severity import Ladder
from jarvis.charts import PICKED, Drawing, EncodedDrawing, text_colors
from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.links import check_parameter, note_control
from jarvis.dashboard.session.state import palette
from jarvis.findings import Severity
from jarvis.perf_report.unavailable import unavailable_reason
from jarvis.run import Run

_EDGE = {"bottom": 4}
"""Margin of a chart in pixels, instead of the 20 that Streamlit adds below charts without one."""


def is_unavailable(run: Run, tables: Iterable[str]) -> bool:
    """Return whether the run lacks a page's tables; if so, show why."""
    reason = unavailable_reason(run.manifest.absent_tables, tables)
    if reason is None:
        return False
    st.info(reason, icon=":material/visibility_off:")
    navigation.link(navigation.OVERVIEW, "Overview", icon=":material/dashboard:")
    return True


def render_chart(
    drawing: Drawing | EncodedDrawing,
    alt: str,
    *,
    key: str | None = None,
    selection: str | None = None,
    on_select: Callable[[], None] | None = None,
) -> list[dict[str, Any]]:
    """Draw a chart and return the fields of each selected mark.

    Args:
        drawing: The chart.
        alt: Accessible description.
        key: Widget key.
        selection: Name of the chart's selection; None for a chart without one.
        on_select: Called before the page is drawn again for a selection.
    """
    spec = {
        "padding": _EDGE,
        **drawing.spec,
        "config": text_colors(palette()),
        "datasets": dict(drawing.arrow),
    }
    if selection is None:
        st.vega_lite_chart(spec, key=key, alt=alt)
        return []
    event = st.vega_lite_chart(
        spec, key=key, alt=alt, on_select=on_select or "rerun", selection_mode=selection
    )
    marks: list[dict[str, Any]] = event["selection"].get(selection) or []
    return marks


def chart_of_links(
    drawing: EncodedDrawing, alt: str, *, key: str, field: str, addresses: Mapping[str, str]
) -> None:
    """Draw a layered chart whose first layer's marks are links in the same tab.

    Args:
        drawing: The chart.
        alt: Accessible description.
        key: Widget key.
        field: Field that names a mark.
        addresses: Pages by the value of the field.
    """
    marks = drawing.spec["layer"][0]
    kind = marks["mark"] if isinstance(marks["mark"], dict) else {"type": marks["mark"]}
    # A layer on top of the others, as a click belongs to the topmost mark.
    targets = {
        **marks,
        "mark": {**kind, "opacity": 0.001, "cursor": "pointer"},
        "params": [{"name": PICKED, "select": {"type": "point", "fields": [field]}}],
    }

    def follow() -> None:
        clicked = st.session_state[key]["selection"].get(PICKED) or []
        if clicked and (address := addresses.get(str(clicked[0][field]))):
            navigation.follow(address)

    spec = {**drawing.spec, "layer": [*drawing.spec["layer"], targets]}
    render_chart(replace(drawing, spec=spec), alt, key=key, selection=PICKED, on_select=follow)


SEVERITY_COLORS: Mapping[Severity, Literal["red", "orange", "yellow", "blue", "gray", "green"]] = {
    Severity.CRITICAL: "red",
    Severity.HIGH: "orange",
    Severity.MEDIUM: "yellow",
    Severity.LOW: "blue",
    Severity.ACCEPTABLE: "gray",
    Severity.GOOD: "green",
    Severity.NOT_AVAILABLE: "gray",
}
"""Streamlit color names; the severity is always a word, too."""

LOSS_WORDS: Mapping[Severity, str] = {
    Severity.CRITICAL: "critical",
    Severity.HIGH: "high",
    Severity.MEDIUM: "elevated",
    Severity.LOW: "fair",
    Severity.ACCEPTABLE: "acceptable",
    Severity.GOOD: "good",
    Severity.NOT_AVAILABLE: "not available",
}
SHARE_WORDS: Mapping[Severity, str] = {
    **LOSS_WORDS,
    Severity.HIGH: "low",
    Severity.MEDIUM: "reduced",
}
"""Words of grades: of lost time, and of the share that is left."""


def scale_note(ladder: Ladder) -> str:
    """Return from which percentages on lost time has which word, as a sentence."""
    steps = ", ".join(f"{LOSS_WORDS[grade]} above {above:g}%" for above, grade in reversed(ladder))
    word = LOSS_WORDS[Severity.MEDIUM]
    return f"It is {steps}; a finding on it of at least medium priority raises that to {word}."


def metric_card(
    label: str,
    value: str,
    below: str | None = None,
    *,
    help_text: str,
    severity: Severity | None = None,
) -> None:
    """Draw a metric card: label, value, a line below, and a help text on hover.

    ``severity`` colors the line.
    """
    st.metric(
        label,
        value,
        below,
        delta_color="off" if severity is None else SEVERITY_COLORS[severity],
        delta_arrow="off",
        border=True,
        height="stretch",
        help=help_text,
    )


_OPEN, _CLOSED = "true", "false"


def lazy_expander(label: str, key: str, *, icon: str | None = None) -> ExpanderContainer:
    """Draw an expander, closed by default; its state is in the URL as ``key``.

    Check its ``open`` before drawing in it: Streamlit also renders the body of collapsed expanders.
    """
    check_parameter(key, lambda text: text in (_OPEN, _CLOSED), "closed")
    expander = st.expander(label, key=key, icon=icon, on_change="rerun", bind="query-params")
    if expander.open:
        note_control(key, _OPEN)
    return expander
