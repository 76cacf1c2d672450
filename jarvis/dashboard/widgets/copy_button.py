"""The button that copies a link to the clipboard with one click."""

from pathlib import Path

import streamlit as st


def _source(ending: str) -> str:
    return Path(__file__).with_suffix(ending).read_text(encoding="utf-8")


COMPONENT = "jarvis_copy_button"

_component = st.components.v2.component(
    COMPONENT, html=_source(".html"), css=_source(".css"), js=_source(".js")
)


def copy_button(link: str) -> None:
    """Draw the button *Copy link*."""
    _component(key="_copy_link", data={"link": link})
