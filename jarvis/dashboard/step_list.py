"""The steps of an analysis as they run."""

from collections.abc import Callable

import streamlit as st
from streamlit.elements.lib.mutable_status_container import StatusContainer

from jarvis.pipeline import Step


def step_list(taken: list[str] | None = None) -> Callable[[Step], None]:
    """A progress callback that draws each step when it starts, how far it is, and its time.

    The labels of finished steps are added to ``taken`` where it is given.
    """
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
            if taken is not None:
                taken.append(done)

    return show


def finished_steps(taken: list[str]) -> None:
    """The steps of an analysis that has ended, as ``step_list`` left them."""
    for label in taken:
        st.status(label, type="step", state="complete")
