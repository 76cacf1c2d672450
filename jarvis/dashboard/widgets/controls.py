"""Controls of pages, each bound to a URL parameter prefixed with the page's name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import streamlit as st

from jarvis.dashboard.session.carried import SLIDER_RANGE_PCT, is_percentage
from jarvis.dashboard.session.links import check_parameter, note_control
from jarvis.schemas.names import C

ALL = "all"
BOUNDS = (ALL, "compute", "memory")
_BOX_PX = 260
_SEARCHED = (C.name, "arguments", C.main_kernel, C.called_from, C.op_category)


@dataclass(frozen=True, slots=True)
class Controls:
    """Values of the filters of a category page."""

    bound: str
    min_share_pct: float
    search: str

    def passing(self, rows: pl.DataFrame) -> pl.Series:
        """Return whether each row passes the filters."""
        if not self.are_set:
            return pl.Series(np.ones(rows.height, np.bool_))
        conditions = []
        if self.min_share_pct > 0:
            conditions.append(pl.col(C.percent_of_category) >= self.min_share_pct)
        if self.bound != ALL:
            conditions.append(pl.col(C.bound) == self.bound)
        if self.search:
            words = self.search.lower()
            conditions.append(
                pl.any_horizontal(
                    pl.col(name).fill_null("").str.to_lowercase().str.contains(words, literal=True)
                    for name in _SEARCHED
                )
            )
        return rows.select(pl.all_horizontal(conditions)).to_series()

    @property
    def are_set(self) -> bool:
        """Return whether any filter is set."""
        return self.bound != ALL or self.min_share_pct > 0 or bool(self.search)

    @property
    def filter_id(self) -> str:
        """Key of the row filters."""
        return f"{self.bound}-{self.min_share_pct}-{self.search}"


def category_controls(page: str) -> Controls:
    """Draw the filters of a category page."""
    with st.container(border=True, horizontal=True):
        chosen_bound = choice(
            f"{page}_bound", "Bound", BOUNDS, "Limit of the operation in the roofline model."
        )
        min_share = share_input(f"{page}_min")
        text = text_input(
            f"{page}_search",
            "Search",
            "name or shape",
            "Part of an operation's name, shapes, kernel, module or category.",
        )
    return Controls(chosen_bound, min_share, text)


def clear_filters(page: str) -> None:
    """Draw the button that resets the filters of ``category_controls``."""
    st.button(
        "Clear filters",
        key=f"{page}_clear",
        icon=":material/filter_alt_off:",
        on_click=st.session_state.update,
        args=({f"{page}_bound": ALL, f"{page}_min": 0.0, f"{page}_search": ""},),
    )


def percent_slider(key: str, label: str, default: float, help_text: str) -> int:
    """Draw a slider of whole percentages."""
    low, high = SLIDER_RANGE_PCT
    check_parameter(key, is_percentage, f"{default:.0f}")
    value: int = st.slider(
        label,
        low,
        high,
        int(default),
        format="%d%%",
        key=key,
        help=help_text,
        bind="query-params",
    )
    note_control(key, value)
    return value


def share_input(key: str) -> float:
    """Draw the input of the minimum share of the category's time."""

    def is_valid(text: str) -> bool:
        try:
            return 0 <= float(text) <= 100
        except ValueError:
            return False

    check_parameter(key, is_valid, "0")
    value = st.number_input(
        "Min. share (%)",
        min_value=0.0,
        max_value=100.0,
        value=0.0,
        step=0.5,
        format="%.1f",
        key=key,
        help="Hide operations with a smaller share of the category's GPU time.",
        bind="query-params",
    )
    note_control(key, value)
    return float(value)


def choice(key: str, label: str, options: Sequence[str], help_text: str) -> str:
    """Draw a choice among a few options; the first is the default."""
    check_parameter(key, lambda text: text in options, options[0])
    value = st.segmented_control(
        label,
        options,
        default=options[0],
        required=True,
        key=key,
        help=help_text,
        bind="query-params",
    )
    note_control(key, value)
    return str(value)


def text_input(key: str, label: str, placeholder: str, help_text: str | None = None) -> str:
    """Draw a text input, empty by default."""
    value = st.text_input(
        label, key=key, placeholder=placeholder, help=help_text, bind="query-params"
    )
    note_control(key, value)
    return (value or "").strip()


def list_choice(key: str, label: str, options: Sequence[str], help_text: str) -> str:
    """Draw a choice among many options; the first is the default."""
    check_parameter(key, lambda text: text in options, options[0])
    value = st.selectbox(label, options, key=key, help=help_text, bind="query-params")
    note_control(key, value)
    return str(value)


def keyed_choice(
    key: str,
    label: str,
    labels: Mapping[str, str],
    default: str,
    help_text: str,
    width: int = _BOX_PX,
) -> str:
    """Draw a choice among many keys, shown by their labels; the URL holds the key.

    ``width`` is in pixels.
    """

    def box(options: Sequence[str], shown: Callable[[str], str]) -> str:
        return st.selectbox(
            label,
            options,
            format_func=shown,
            key=key,
            width=width,
            help=help_text,
            persist_state="session",
        )

    return _keyed(key, labels, default, box)


def keyed_segments(key: str, label: str, labels: Mapping[str, str], help_text: str) -> str:
    """Draw a choice among a few keys, like ``keyed_choice``; the first is the default."""

    def segments(options: Sequence[str], shown: Callable[[str], str]) -> str | None:
        return st.segmented_control(
            label,
            options,
            required=True,
            format_func=shown,
            key=key,
            help=help_text,
            persist_state="session",
        )

    return _keyed(key, labels, next(iter(labels)), segments)


def _keyed(
    key: str,
    labels: Mapping[str, str],
    default: str,
    draw: Callable[[Sequence[str], Callable[[str], str]], str | None],
) -> str:
    """Return the key chosen in ``draw``, and synchronize it with the URL.

    A bound control would write the label into the URL, and labels can change between releases.
    """
    # Streamlit cannot choose among options that mix strings and enumeration members.
    labels, default = {str(name): text for name, text in labels.items()}, str(default)
    seen = f"_{key}_seen"
    check_parameter(key, lambda text: text in labels, labels[default])
    given = st.query_params.get(key)
    if given is not None and given != st.session_state.get(seen):
        st.session_state[key] = given if given in labels else default
    elif st.session_state.get(key) not in labels:
        st.session_state[key] = default
    value = draw(list(labels), lambda name: labels.get(name, name))
    if value == default:
        st.query_params.pop(key, None)
    elif given != value:
        st.query_params[key] = str(value)
    st.session_state[seen] = value
    note_control(key, value)
    return str(value)


def whole_number(key: str, label: str, default: int, low: int, high: int, meaning: str) -> int:
    """Draw an input of an integer from ``low`` to ``high``."""

    def is_valid(value: str) -> bool:
        return value.isdecimal() and low <= int(value) <= high

    check_parameter(key, is_valid, default)
    value = st.number_input(
        label, low, high, default, key=key, width=110, help=meaning, bind="query-params"
    )
    note_control(key, value)
    return int(value)
