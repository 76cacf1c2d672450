"""Cards with one figure each."""

import streamlit as st


def figure(label: str, value: str, below: str | None = None, *, help_text: str) -> None:
    """A bordered card: the label, the value, a plain line below, and on hover what it means."""
    st.metric(
        label,
        value,
        below,
        delta_color="off",
        delta_arrow="off",
        border=True,
        height="stretch",
        help=help_text,
    )
