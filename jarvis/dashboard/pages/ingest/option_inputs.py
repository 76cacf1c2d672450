"""The options of an analysis that no other part of the ingest page asks for."""

from collections.abc import Sequence
from dataclasses import Field, fields
from typing import Any

from streamlit.delta_generator import DeltaGenerator

from jarvis.core.request import AnalysisOptions, public_name
from jarvis.dashboard.widgets.controls import percent_slider, text_input

_ASKED_ELSEWHERE = ("platform", "preset", "reference")

OPTIONS = tuple(f for f in fields(AnalysisOptions) if f.name not in _ASKED_ELSEWHERE)
"""Texts and percentages; an option of another type needs a control here."""


def option_inputs(page: str, places: Sequence[DeltaGenerator]) -> dict[str, Any]:
    """Draw a control for each option, each in its place; the values by the names of the fields."""
    values = {}
    for option, place in zip(OPTIONS, places, strict=True):
        with place:
            values[option.name] = _input(f"{page}_{public_name(option.name)}", option)
    return values


def _input(key: str, option: "Field[Any]") -> Any:
    label, description = option.metadata["title"], option.metadata["description"]
    if isinstance(option.default, float):
        return percent_slider(key, label, option.default, f"The {description}.")
    return text_input(key, label, description) or None
