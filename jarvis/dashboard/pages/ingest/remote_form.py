"""Form to analyze a trace on another machine: machine, path and GPU."""

from dataclasses import dataclass

import streamlit as st

from jarvis.core.request import AnalysisOptions
from jarvis.dashboard.widgets.controls import keyed_choice, list_choice, text_input
from jarvis.hardware import load_hardware, preset_label
from jarvis.server.settings import settings
from jarvis.text.markdown import escape

_OWN_GPU = ""


@dataclass(frozen=True, slots=True)
class RemoteTrace:
    """The name of a machine in the settings, and the path of a trace on it."""

    name: str
    path: str


def choose_remote(page: str) -> RemoteTrace | None:
    """Draw the choice of machine and path; return None while one is missing."""
    targets = settings().targets
    name = list_choice(f"{page}_target", "Machine", list(targets), "Machine with the trace.")
    path = text_input(f"{page}_remote_path", "Path on that machine", "/scratch/run/trace.json.gz")
    target = targets[name]
    inside = f" in the container {target.container}" if target.container else ""
    allowed = f" Allowed folders: {', '.join(target.roots)}." if target.roots else ""
    st.caption(
        escape(
            f"Jarvis on {target.host}{inside} analyzes the trace over SSH; only the analysis is "
            f"copied to this server.{allowed}"
        )
    )
    return RemoteTrace(name, path) if path else None


def choose_gpu_unseen(page: str) -> AnalysisOptions:
    """Draw the choice of GPU and preset for a trace that this server cannot read."""
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
            "The GPU whose peaks are used for rooflines and efficiencies.",
        )
    if platform == _OWN_GPU:
        st.caption("The GPU is detected when the trace is read.")
        return AnalysisOptions()
    with preset_place:
        presets = hardware.presets(platform)
        preset = keyed_choice(
            f"{page}_remote_preset",
            "Preset",
            {preset: preset_label(preset) for preset in presets},
            presets[0],
            "Set of peaks: the default ones, or those of another source.",
        )
    return AnalysisOptions(platform=platform, preset=preset)
