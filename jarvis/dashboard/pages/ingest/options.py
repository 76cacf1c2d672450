"""The options of a new analysis: GPU, report options, target efficiency."""

from collections.abc import Sequence
from dataclasses import Field, fields
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from jarvis.core.request import AnalysisOptions, public_name
from jarvis.dashboard.widgets.controls import percent_slider, text_input
from jarvis.dashboard.widgets.elements import metric_card
from jarvis.hardware import HardwareSpec, load_hardware, peak_label, preset_label
from jarvis.pipeline import gpu_properties
from jarvis.text.format import decimal, listed, tb_per_s, tflops_per_s
from jarvis.text.markdown import escape
from jarvis.trace import TraceInfo

_OTHER_CONTROLS = ("platform", "preset", "reference", "category_targets")

OPTIONS = tuple(f for f in fields(AnalysisOptions) if f.name not in _OTHER_CONTROLS)
"""Options of type text or percentage; other types need a new kind of control."""


def option_inputs(page: str, places: Sequence[DeltaGenerator]) -> dict[str, Any]:
    """Draw each option's control in one of ``places``; return the values by field name."""
    values = {}
    for option, place in zip(OPTIONS, places, strict=True):
        with place:
            values[option.name] = _input(f"{page}_{public_name(option.name)}", option)
    return values


def _input(key: str, option: "Field[Any]") -> Any:
    label, description = option.metadata["title"], option.metadata["description"]
    if isinstance(option.default, float):
        return percent_slider(key, label, option.default, f"The {description}.")
    return text_input(key, label, description) or None


SHOWN_PRECISION = "matrix_bf16"
_PLATFORM, _PRESET, _TRACE = "ingest_platform", "ingest_preset", "_ingest_trace"


def choose_gpu(info: TraceInfo) -> AnalysisOptions:
    """Draw the choice of GPU and preset; return it as options, None for the trace's defaults."""
    hardware = load_hardware()
    candidates = hardware.candidates(info)
    _set_default(candidates, info)
    _show_detected(candidates, info)
    platform_place, preset_place = st.columns(2)
    with platform_place:
        platform = st.selectbox(
            "Platform",
            list(dict.fromkeys((*(spec.name for spec in candidates), *hardware.names()))),
            index=None,
            key=_PLATFORM,
            placeholder="choose the GPU: without it, no efficiencies",
            help="The GPU whose peaks are used for rooflines and efficiencies.",
            bind="query-params",
        )
    if platform is None:
        st.caption("Without a platform there are no peaks, so efficiencies are not available.")
        return AnalysisOptions()
    presets = hardware.presets(platform)
    with preset_place:
        preset = st.selectbox(
            "Preset",
            presets,
            format_func=preset_label,
            key=_PRESET,
            disabled=len(presets) == 1,
            help="Set of peaks: the default ones, or those of another source.",
            bind="query-params",
        )
    preset = preset if preset in presets else presets[0]
    spec = hardware.get(platform, preset)
    _figures(spec)
    chosen, chosen_preset = hardware.choice(spec, info)
    return AnalysisOptions(platform=chosen, preset=chosen_preset)


def _set_default(candidates: Sequence[HardwareSpec], info: TraceInfo) -> None:
    """Select the GPU of a newly chosen trace, unless the link has another one."""
    if st.session_state.get(_TRACE) == info.sha256:
        return
    is_from_link = _TRACE not in st.session_state and _PLATFORM in st.query_params
    st.session_state[_TRACE] = info.sha256
    if not is_from_link:
        st.session_state[_PLATFORM] = candidates[0].name if len(candidates) == 1 else None


def _show_detected(candidates: Sequence[HardwareSpec], info: TraceInfo) -> None:
    device = escape(info.device_name or "")
    names = listed([escape(spec.name) for spec in candidates], len(candidates))
    if info.device_name and load_hardware().match(info.device_name):
        st.caption(f"Detected in the trace: {device} ({names}).")
        return
    unknown = f"The GPU of the trace, {device}, is unknown to this server"
    reason = unknown if device else f"The {info.form} does not name its GPU"
    if len(candidates) > 1:
        properties = gpu_properties(info)
        st.caption(f"{reason}. Known GPUs with {properties}: {names}. Choose the right one.")
    elif candidates:
        st.caption(f"{reason}. The only known GPU with {gpu_properties(info)}: {names}.")
    else:
        st.caption(f"{reason}." if device else f"{reason}: choose it.")


def _figures(spec: HardwareSpec) -> None:
    peak = spec.peak_tflops(SHOWN_PRECISION)
    label = peak_label(SHOWN_PRECISION)
    places = st.columns([5, 7, 5])
    with places[0]:
        metric_card(
            "Bandwidth",
            tb_per_s(spec.tb_per_s),
            help_text=escape(spec.source_of("mem_bw_gbps") or ""),
        )
    with places[1]:
        metric_card(
            f"Peak {label}",
            tflops_per_s(peak) if peak else "unknown",
            help_text=escape(spec.source_of(SHOWN_PRECISION) or "unknown, so no efficiency"),
        )
    with places[2]:
        metric_card(
            "Memory",
            f"{decimal(spec.memory_gb)} GB",
            help_text=escape(spec.source_of("memory_gb") or ""),
        )
