"""The what-if page: changes, what they save together, and the simulated step."""

import streamlit as st

from jarvis.core.errors import NotSimulatedError
from jarvis.dashboard.isolation import isolated
from jarvis.dashboard.pages.what_if.change_list import change_list
from jarvis.dashboard.pages.what_if.changes import composed
from jarvis.dashboard.pages.what_if.composer import composer
from jarvis.dashboard.pages.what_if.critical_path import critical_path
from jarvis.dashboard.pages.what_if.definitions import definitions
from jarvis.dashboard.pages.what_if.result import result
from jarvis.dashboard.pages.what_if.simulated import Together
from jarvis.dashboard.pages.what_if.step_timeline import step_timeline
from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.state import Opened
from jarvis.text.markdown import prose


def render(now: Opened) -> None:
    """Draw the page for the open run."""
    texts = composed()
    try:
        _ = now.run.simulation.recorded  # raises if steps cannot be simulated
    except NotSimulatedError as error:
        _not_simulated(now, error)
        return
    found = Together(now, texts)
    left, right = st.columns([2, 1])
    with left:
        change_list(now, found, texts)
        composer(now, texts)
    with right, isolated("The result"):
        result(now, found)
    with isolated("The timeline of the step"):
        step_timeline(now, found)
    with isolated("The critical path"):
        critical_path(now, found)
    definitions(now)


def _not_simulated(now: Opened, error: NotSimulatedError) -> None:
    """Explain why there is nothing to simulate, and what to do."""
    remedy = (
        ""
        if now.run.manifest.simulation is None
        else "Kernel time saved is on the pages of the categories; a trace with the calls of the "
        "host, recorded with CPU activities, can be simulated."
    )
    st.info(prose(f"{error} {remedy}"), icon=":material/visibility_off:")
    navigation.link(navigation.INGEST, "Analyze a trace", icon=":material/upload_file:")
