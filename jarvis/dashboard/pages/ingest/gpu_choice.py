"""The GPU to judge against: found in the trace, changeable, with its figures."""

import streamlit as st

from jarvis.charts import peak_label
from jarvis.core.request import AnalysisOptions
from jarvis.dashboard.widgets.elements import figure
from jarvis.hardware import HardwareSpec, load_hardware
from jarvis.text.format import decimal, tb_per_s, tflops_per_s
from jarvis.text.markdown import escape
from jarvis.trace import TraceInfo

SHOWN_PRECISION = "matrix_bf16"
_PLATFORM, _PRESET, _TRACE = "ingest_platform", "ingest_preset", "_ingest_trace"


def choose_gpu(info: TraceInfo) -> AnalysisOptions:
    """Draw the choice for one trace; None for its own GPU and its default preset."""
    hardware = load_hardware()
    found = hardware.match(info.device_name) if info.device_name else None
    _start_with(found, info)
    _say_what_was_found(found, info)
    platform_place, preset_place = st.columns(2)
    with platform_place:
        platform = st.selectbox(
            "Platform",
            hardware.names(),
            index=None,
            key=_PLATFORM,
            placeholder="not known: no efficiencies",
            help="The GPU whose peaks the operations are judged against.",
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
            key=_PRESET,
            disabled=len(presets) == 1,
            help="Which set of figures: the reference ones, or better-sourced ones.",
            bind="query-params",
        )
    preset = preset if preset in presets else presets[0]
    spec = hardware.get(platform, preset)
    _figures(spec)
    chosen, chosen_preset = hardware.choice(spec, info.device_name)
    return AnalysisOptions(platform=chosen, preset=chosen_preset)


def _start_with(found: HardwareSpec | None, info: TraceInfo) -> None:
    """A trace that was just chosen brings its own GPU, unless the link names another one."""
    if st.session_state.get(_TRACE) == info.sha256:
        return
    is_from_link = _TRACE not in st.session_state and _PLATFORM in st.query_params
    st.session_state[_TRACE] = info.sha256
    if not is_from_link:
        st.session_state[_PLATFORM] = found.name if found else None


def _say_what_was_found(found: HardwareSpec | None, info: TraceInfo) -> None:
    if info.device_name is None:
        st.caption(f"The {info.form} does not name its GPU: choose it.")
    elif found is None:
        st.caption(f"The trace names {escape(info.device_name)}, which is not described here.")
    else:
        st.caption(f"Found in the trace: {escape(info.device_name)}, that is {found.name}.")


def _figures(spec: HardwareSpec) -> None:
    peak = spec.peak_tflops(SHOWN_PRECISION)
    words = peak_label(SHOWN_PRECISION)
    places = st.columns([5, 7, 5])
    with places[0]:
        figure(
            "Bandwidth",
            tb_per_s(spec.tb_per_s),
            help_text=escape(spec.source_of("mem_bw_gbps") or ""),
        )
    with places[1]:
        figure(
            f"Peak {words}",
            tflops_per_s(peak) if peak else "not known",
            help_text=escape(spec.source_of(SHOWN_PRECISION) or "no figure, so no efficiency"),
        )
    with places[2]:
        figure(
            "Memory",
            f"{decimal(spec.memory_gb)} GB",
            help_text=escape(spec.source_of("memory_gb") or ""),
        )
