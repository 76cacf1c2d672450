"""A trace on another machine, to be analyzed there: which machine, which path, which GPU."""

from dataclasses import dataclass

import streamlit as st

from jarvis.core.request import AnalysisOptions
from jarvis.dashboard.widgets.controls import keyed_choice, list_choice, text_input
from jarvis.hardware import load_hardware
from jarvis.server.ingest.remote_runs import TARGETS_VARIABLE
from jarvis.server.settings import settings
from jarvis.text.markdown import escape

_OWN_GPU = ""


@dataclass(frozen=True, slots=True)
class RemoteTrace:
    """A machine of the settings, and the path of a trace there."""

    name: str
    path: str


def choose_remote(page: str) -> RemoteTrace | None:
    """The machine and the path, or None while one of them is missing."""
    targets = settings().targets
    if not targets:
        st.info(
            "This server knows no other machine. Whoever runs it describes some in "
            f"`{TARGETS_VARIABLE}`, or in the part `targets` of its configuration file: the host "
            "that ssh connects to, and a container where there is one.",
            icon=":material/link_off:",
        )
        return None
    name = list_choice(f"{page}_target", "Machine", list(targets), "Where the trace lies.")
    path = text_input(f"{page}_remote_path", "Path on that machine", "/scratch/run/trace.json.gz")
    target = targets[name]
    inside = f" in the container {target.container}" if target.container else ""
    among = f" Traces may lie in {', '.join(target.roots)}." if target.roots else ""
    st.caption(
        escape(
            f"Jarvis on {target.host}{inside} analyses it there, by ssh; the analysis comes back, "
            f"the trace stays.{among}"
        )
    )
    return RemoteTrace(name, path) if path else None


def choose_gpu_unseen(page: str) -> AnalysisOptions:
    """The GPU to judge against, where the trace is not here to look into."""
    hardware = load_hardware()
    names = hardware.names()
    labels = {_OWN_GPU: "the trace's own"} | {name: name for name in names}
    platform_place, preset_place = st.columns(2)
    with platform_place:
        platform = keyed_choice(
            f"{page}_remote_platform",
            "Platform",
            labels,
            _OWN_GPU,
            "The GPU whose peaks the operations are judged against.",
        )
    if platform == _OWN_GPU:
        st.caption("The GPU is found in the trace when it is read there.")
        return AnalysisOptions()
    with preset_place:
        preset = list_choice(
            f"{page}_remote_preset",
            "Preset",
            hardware.presets(platform),
            "Which set of figures: the reference ones, or better-sourced ones.",
        )
    return AnalysisOptions(platform=platform, preset=preset)
