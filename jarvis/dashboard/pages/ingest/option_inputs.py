"""Controls of the analysis options that have no other control on the ingest page."""

from collections.abc import Sequence
from dataclasses import Field, fields
from typing import Any

from streamlit.delta_generator import DeltaGenerator

from jarvis.core.request import AnalysisOptions, public_name
from jarvis.dashboard.widgets.controls import percent_slider, text_input

_OTHER_CONTROLS = ("platform", "preset", "reference")

OPTIONS = tuple(f for f in fields(AnalysisOptions) if f.name not in _OTHER_CONTROLS)
"""Options of type text or percentage; other types need a new kind of control."""


def option_inputs(page: str, places: Sequence[DeltaGenerator]) -> dict[str, Any]:
    """Draw each option's control in one of ``places``; return the values by field name."""
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
