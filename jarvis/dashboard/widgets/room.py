"""How much longer GPU work could take without a longer step."""

import streamlit as st

from jarvis.changes import Work
from jarvis.dashboard.session.state import HASH_STORED, Opened
from jarvis.simulation.simulation import MAX_SLOWDOWN

_MAX_CACHED = 2_000
_MOVES_AT_ONCE = 1.01


@st.cache_resource(
    max_entries=_MAX_CACHED,
    show_spinner=False,
    hash_funcs={**HASH_STORED, Work: Work.model_dump_json},
)
def slowdown_of(now: Opened, work: Work) -> float | None:
    """Return how many times as long GPU work could take; None if steps are not simulated."""
    simulation = now.stored.simulation_if_any
    return None if simulation is None else simulation.slowdown(work)


def room(slowdown: float) -> str:
    """Return in words how much longer GPU work could take."""
    if slowdown < _MOVES_AT_ONCE:
        return "any longer, it lengthens the step"
    if slowdown >= MAX_SLOWDOWN:
        return f"never in this trace: even {slowdown:.0f}x as long, it does not lengthen the step"
    return f"could take {slowdown:.1f}x as long without lengthening the step"
