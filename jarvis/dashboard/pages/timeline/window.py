"""The window of the timeline: the fields of its start and length, and links to a window."""

import math
from dataclasses import dataclass

import polars as pl
import streamlit as st

from jarvis.dashboard.session.links import check_parameter, note_control
from jarvis.run.timeline import Timeline, Window
from jarvis.schemas.names import C

START, LENGTH = "timeline_start", "timeline_length"
"""URL parameters: start and length of the window in ms since the start of the recording."""

_DIGITS = 4
MIN_MS = 0.001
"""Minimum length of the window."""

_MARGIN = 0.25
"""Margin on either side of a shown span, as a share of its length."""

_SMALL, _STEPS_MARGIN = 0.5, 0.05
"""The page opens at marked steps that are less than this share of the recording."""


@dataclass(frozen=True, slots=True)
class ShownWindow:
    """The window of a timeline, with times for tables."""

    timeline: Timeline
    recording: Window
    window: Window

    @property
    def whole_ms(self) -> float:
        """Return the length of the recording in ms."""
        return length_ms(self.recording)

    def start_ms(self, column: str = C.ts_ns) -> pl.Expr:
        """Return a column of times in ms since the start of the recording, as ``start_ms``."""
        return ((pl.col(column) - self.recording.start_ns) / 1e6).alias("start_ms")

    def share_pct(self, time_ns: int) -> float:
        """Return a duration in percent of the window."""
        return 100 * time_ns / self.window.length_ns


def window_fields(recording: Window, steps: Window | None) -> Window:
    """Draw the fields, and return the window, which is within the recording.

    The first window is the recording, or the marked steps if they are a small part of it.
    """
    whole_ms = length_ms(recording)
    first_start_ms, first_span_ms = 0.0, whole_ms
    if steps is not None and steps.length_ns < _SMALL * recording.length_ns:
        parameters = parameters_around(recording, steps.start_ns, steps.end_ns, _STEPS_MARGIN)
        first_start_ms, first_span_ms = (float(parameters[key]) for key in (START, LENGTH))
        first_span_ms = round(min(first_span_ms, whole_ms - first_start_ms), _DIGITS)
    _reset_outside(whole_ms)
    start_ms = _field(START, "Start (ms)", first_start_ms, 0.0, whole_ms - MIN_MS, "%.3f")
    span_ms = _field(LENGTH, "Length (ms)", first_span_ms, MIN_MS, whole_ms, "%.4g")
    first = recording.start_ns + round(start_ms * 1e6)
    return Window(
        first, min(first + round(span_ms * 1e6), recording.start_ns + round(whole_ms * 1e6))
    )


def length_ms(recording: Window) -> float:
    """Return the length of the recording in ms, rounded up to the precision of the fields."""
    rounded = math.ceil(recording.length_ns / 1e6 * 10**_DIGITS) / 10**_DIGITS
    return float(max(rounded, 2 * MIN_MS))


def show(start_ms: float, span_ms: float, whole_ms: float) -> None:
    """Move the window on the next rerun of the page, limited to the recording."""
    span = min(max(span_ms, MIN_MS), whole_ms)
    st.session_state[LENGTH] = round(span, _DIGITS)
    st.session_state[START] = round(min(max(start_ms, 0.0), whole_ms - span), _DIGITS)


def show_around(start_ms: float, span_ms: float, whole_ms: float) -> None:
    """Move the window to a span with a margin on either side."""
    margin = max(span_ms * _MARGIN, MIN_MS)
    show(start_ms - margin, span_ms + 2 * margin, whole_ms)


def parameters_around(
    recording: Window, start_ns: int, end_ns: int, margin_share: float = _MARGIN
) -> dict[str, str]:
    """Return the URL parameters of a window around a time span."""
    span_ms = (end_ns - start_ns) / 1e6
    margin = max(span_ms * margin_share, MIN_MS)
    start_ms = max((start_ns - recording.start_ns) / 1e6 - margin, 0.0)
    length = min(span_ms + 2 * margin, length_ms(recording))
    return {START: f"{start_ms:.{_DIGITS}f}", LENGTH: f"{length:.{_DIGITS}f}"}


def _field(key: str, label: str, default: float, low: float, high: float, form: str) -> float:
    def is_valid(text: str) -> bool:
        try:
            return low <= float(text) <= high
        except ValueError:
            return False

    check_parameter(key, is_valid, f"{default:.{_DIGITS}f}")
    value = st.number_input(
        label,
        min_value=low,
        max_value=high,
        value=default,
        format=form,
        step=max(float(st.session_state.get(LENGTH, high)) / 2, MIN_MS),
        key=key,
        width=150,
        bind="query-params",
        help="Time since the start of the recording. The timeline below can be zoomed, too.",
    )
    note_control(key, round(value, _DIGITS))
    return float(value)


def _reset_outside(whole_ms: float) -> None:
    """Reset fields beyond the recording, which can be left from another analysis."""
    for key, maximum in ((START, whole_ms - MIN_MS), (LENGTH, whole_ms)):
        if st.session_state.get(key, 0.0) > maximum:
            del st.session_state[key]
