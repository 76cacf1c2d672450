"""What the words of simulated steps mean, and the figures of this trace that a replay uses."""

import streamlit as st

from jarvis.dashboard.session.state import Opened
from jarvis.dashboard.widgets.elements import lazy_expander
from jarvis.simulation.simulation import MAX_SLOWDOWN
from jarvis.text.format import count, microseconds, percent

WORDS = {
    "Step": "the time between two step marks, else the recording; of several steps, the mean",
    "Step time saved": "the recorded step minus the replayed one",
    "Kernel time saved": "the sum of the times by which kernels get shorter",
    "Hidden": "kernel time saved that the step does not gain, because other work takes as long",
    "Room": "how many times as long an operation could take without a longer step, at most "
    f"{MAX_SLOWDOWN:.0f} times",
    "Critical path": "the chain of calls, kernels and waits that determines when the steps end",
}


def definitions(now: Opened) -> None:
    """Draw an expander with the words, the constants of the trace and how far to trust them."""
    expander = lazy_expander(
        "What these numbers mean", "what_if_definitions", icon=":material/function:"
    )
    if expander.open:
        with expander:
            st.markdown("\n".join(f"- **{word}**: {meaning}." for word, meaning in WORDS.items()))
            st.markdown("\n".join(f"- {fact}." for fact in _facts(now)))


def _facts(now: Opened) -> list[str]:
    """Return the constants and the quality of the simulation of a run, as sentences."""
    info = now.run.manifest.simulation
    if info is None:
        return []
    usual, quality, graph = info.constants, info.quality, now.run.simulation.graph
    launch, gap, sync = (microseconds(ns / 1e3) for ns in (usual.launch, usual.gap, usual.sync))
    moments, dependencies = count(graph.time.size), count(graph.src.size)
    usual_pct = percent(100 + quality.replay_error_pct)
    return [
        f"Usual times in this trace: {launch} from a launch call to its work on an idle stream, "
        f"{gap} between two kernels of a stream, {sync} from the end of awaited work to the end of "
        "the call that waits for it",
        f"The graph has {moments} moments and {dependencies} dependencies; its replay without "
        "changes is the recording to the nanosecond",
        f"Grade: {quality.grade.value}. Of the critical path of the recording, "
        f"{percent(quality.unexplained_pct)} is in no recorded event, and the cause of "
        f"{percent(quality.inferred_pct)} is inferred; with usual times only, the recording would "
        f"take {usual_pct} of its time",
    ]
