"""The list of changes, each with what it alone saves."""

import streamlit as st

from jarvis.dashboard.pages.what_if import changes
from jarvis.dashboard.pages.what_if.composer import number_field, number_range, signed
from jarvis.dashboard.pages.what_if.simulated import Together
from jarvis.dashboard.pages.what_if.suggestions import suggestions_of
from jarvis.dashboard.session.state import Opened
from jarvis.text.markdown import code, escape, prose

_WIDTHS = (4.6, 1.9, 1.7, 1.7, 0.8)
_HEADS = ("Change", "Number", "Alone: step", "kernel time", "")


def change_list(now: Opened, found: Together, texts: tuple[str, ...]) -> None:
    """Draw the list, if there are changes."""
    if not texts:
        return
    with st.container(border=True):
        with st.container(horizontal=True, horizontal_alignment="distribute"):
            st.markdown("**Changes, simulated together**", width="content")
            st.button(
                "Remove all",
                key="_what_if_clear",
                type="tertiary",
                icon=":material/delete:",
                on_click=changes.clear,
            )
        for place, head in zip(st.columns(_WIDTHS), _HEADS, strict=True):
            place.caption(head)
        for number, text in enumerate(texts):
            _row(now, found, texts, number, text)


def _row(now: Opened, found: Together, texts: tuple[str, ...], number: int, text: str) -> None:
    name, value, step, kernel, button = st.columns(_WIDTHS, vertical_alignment="center")
    with name:
        st.markdown(code(text))
        if (title := suggestions_of(now).findings.get(text.removeprefix("finding="))) is not None:
            st.caption(escape(title))
    with value:
        _number(texts, number, text)
    single = found.alone[text]
    if isinstance(single, str):
        name.error(prose(single), icon=":material/error:")
    else:
        steps = len(now.run.simulation.recorded.steps_ns)
        step.markdown(signed(single.saved_ms))
        kernel.markdown(signed(single.kernel_time_saved_ms / steps))
    button.button(
        "Remove",
        key=f"_what_if_remove_{number}",
        icon=":material/close:",
        help=f"Remove {text}.",
        on_click=changes.remove,
        args=(texts, text),
    )


def _number(texts: tuple[str, ...], number: int, text: str) -> None:
    """Draw the number of a change, if it has one; another one is simulated at once."""
    value = changes.number_of(text)
    if value is None:
        return
    key = f"_what_if_number_{number}"
    is_percentage = changes.is_percentage(text)
    low, high = number_range(is_percentage=is_percentage)
    st.session_state[key] = min(max(value, low), high)
    number_field(
        key,
        is_percentage=is_percentage,
        label_visibility="collapsed",
        on_change=changes.replace,
        args=(texts, text, key),
    )
