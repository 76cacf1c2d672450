"""The steps of an analysis as they run."""

from collections.abc import Callable

import streamlit as st
from streamlit.elements.lib.mutable_status_container import StatusContainer

from jarvis.pipeline import Step


def step_list() -> Callable[[Step], None]:
    """A progress callback that draws each step when it starts, how far it is, and its time."""
    drawn: dict[int, StatusContainer] = {}

    def show(step: Step) -> None:
        label = f"{step.name} ({step.number} of {step.total})"
        if step.state == "started":
            drawn[step.number] = st.status(label, type="step")
        elif step.state == "running":
            drawn[step.number].update(label=f"{label} · {step.reading}")
        else:
            done = f"{step.name} · {step.elapsed_s:.2f} s"
            drawn[step.number].update(label=done, state="complete")

    return show
