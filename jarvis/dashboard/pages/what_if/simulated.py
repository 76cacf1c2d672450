"""What the page shows of a run under changes, cached for reruns of the page."""

import streamlit as st

from jarvis.core.errors import ChangeError
from jarvis.dashboard.session.state import HASH_OPENED, Opened, timeline_of
from jarvis.pipeline.simulated_steps import (
    ChangeAlone,
    Changes,
    WhatIf,
    parse_change,
    simulated_changes,
)
from jarvis.reports.account import MIN_NAMED_PCT
from jarvis.run.replayed_steps import ReplayedSteps, StepLanes

FLOOR = "scale=compute:0"
_MAX_CACHED_PARSED = 64
_MAX_CACHED_CHANGES, _MAX_CACHED_LISTS, _MAX_CACHED_RUNS, _MAX_CACHED_STEPS = 2_000, 256, 8, 32


class Together:
    """Changes and what they save together and alone; or why some cannot be made.

    ``result`` is None if the changes that are possible alone are impossible together (``error``).
    ``texts`` are the simulated changes.
    """

    def __init__(self, now: Opened, texts: tuple[str, ...]) -> None:
        self.alone = {text: alone(now, text) for text in texts}
        self.texts = tuple(text for text in texts if isinstance(self.alone[text], ChangeAlone))
        found = together(now, self.texts)
        self.result = found if isinstance(found, WhatIf) else None
        self.error = found if isinstance(found, str) else None


@st.cache_resource(max_entries=_MAX_CACHED_PARSED, show_spinner=False, hash_funcs=HASH_OPENED)
def parsed(now: Opened, text: str) -> Changes:
    """Return the changes that a text names; raise as ``parse_change``."""
    return parse_change(text, now.run)


@st.cache_resource(max_entries=_MAX_CACHED_CHANGES, show_spinner=False, hash_funcs=HASH_OPENED)
def alone(now: Opened, text: str) -> ChangeAlone | str:
    """Return what a change alone would save, or why it is not possible."""
    try:
        return simulated_changes(now.run, [(text, parsed(now, text))]).changes[0]
    except ChangeError as error:
        return str(error)


@st.cache_resource(max_entries=_MAX_CACHED_LISTS, show_spinner=False, hash_funcs=HASH_OPENED)
def together(now: Opened, texts: tuple[str, ...]) -> WhatIf | str:
    """Return what changes save together, or why they are not possible together."""
    try:
        return simulated_changes(now.run, [(text, parsed(now, text)) for text in texts])
    except ChangeError as error:
        return str(error)


def tail_ms(now: Opened) -> float:
    """Return for how long the GPU works for the steps after the last mark; 0 if that is little."""
    recorded = now.run.simulation.recorded
    return recorded.tail_ns / 1e6 * (recorded.tail_ns >= MIN_NAMED_PCT / 100 * recorded.step_ns)


@st.cache_resource(max_entries=_MAX_CACHED_RUNS, show_spinner=False, hash_funcs=HASH_OPENED)
def steps_of(now: Opened) -> ReplayedSteps:
    """Return the steps of a run as events on lanes."""
    return ReplayedSteps(timeline_of(now))


@st.cache_resource(max_entries=_MAX_CACHED_STEPS, show_spinner=False, hash_funcs=HASH_OPENED)
def step_lanes(now: Opened, texts: tuple[str, ...], number: int) -> StepLanes:
    """Return the events of a step under possible changes."""
    changes = [change for text in texts for change in parsed(now, text)]
    return steps_of(now).step(now.run.simulation.node_times(changes), number)
