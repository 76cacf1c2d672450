"""Custom GPUs: add by form or file, list and delete."""

import streamlit as st

from jarvis.core.errors import HardwareError, JarvisError
from jarvis.dashboard.session.current_user import actor, current_user, missing_role
from jarvis.dashboard.session.errors import show_error
from jarvis.hardware import CUSTOM_PRESET, PRECISIONS, UNITS, Hardware, HardwareSpec, peak_label
from jarvis.server.actions import not_yours, remove_hardware, store_hardware
from jarvis.server.storage.custom_hardware import hardware_owners
from jarvis.text.format import decimal, tb_per_s, tflops_per_s
from jarvis.text.markdown import escape

_GPU = "hardware_gpu"
_MESSAGE, _UPLOADS = "_hardware_outcome", "_hardware_uploads"
_NAME, _PRESET, _ALIAS = "_hardware_name", "_hardware_preset", "_hardware_alias"
_BANDWIDTH, _MEMORY, _SOURCE = "_hardware_bandwidth", "_hardware_memory", "_hardware_source"
_UNITS = "_hardware_compute_units"


def render(hardware: Hardware) -> None:
    """Draw the list, the form and the upload."""
    st.subheader("Custom GPUs")
    st.caption(
        "Custom GPUs are stored on this server and can be chosen on the ingest page and with "
        "`--platform`. Built-in presets cannot be changed; use a new preset name instead."
    )
    with st.container():  # always there: a new element above would close the form below
        _show_message()
    with st.container():
        _list(hardware)
    if (missing := missing_role()) is not None:
        st.caption(f"You do not have permission to add GPUs. {missing}")
        return
    with st.expander("Describe a GPU", icon=":material/edit_note:"):
        _form()
    with st.expander("Upload a GPU description", icon=":material/upload_file:"):
        _upload()


def _show_message() -> None:
    """Draw the result of the last click once."""
    is_success, message = st.session_state.pop(_MESSAGE, (True, None))
    if message is not None and is_success:
        st.success(message, icon=":material/check_circle:")
    elif message is not None:
        st.error(message, icon=":material/error:")


def _list(hardware: Hardware) -> None:
    own = [spec for spec in hardware if hardware.custom_file(spec) is not None]
    owners = hardware_owners() if own else {}
    for spec in own:
        missing = missing_role() or not_yours(current_user(), spec, owners)
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"**{escape(spec.title)}** · {_figures(spec)}", width="content")
            st.button(
                "Delete",
                key=f"_hardware_delete_{spec.title}",
                icon=":material/delete:",
                type="tertiary",
                on_click=_remove,
                args=(spec,),
                disabled=missing is not None,
                help=missing or "Existing analyses are not affected.",
            )


def _figures(spec: HardwareSpec) -> str:
    peaks = [f"{peak_label(c)} {tflops_per_s(p)}" for c, p in spec.max_achievable_tflops.items()]
    parts = [f"{decimal(spec.memory_gb)} GB", tb_per_s(spec.tb_per_s), *peaks]
    return " · ".join(parts)


def _form() -> None:
    with st.form("hardware_form", border=False):
        left, right, bandwidth, memory = st.columns(4)
        left.text_input("Name", key=_NAME, placeholder="X100")
        right.text_input("Preset", key=_PRESET, placeholder=CUSTOM_PRESET)
        bandwidth.number_input(
            "Memory bandwidth (GB/s)",
            min_value=0.0,
            value=None,
            format="%g",
            key=_BANDWIDTH,
            placeholder="3900",
        )
        memory.number_input(
            "Memory (GB)", min_value=0.0, value=None, format="%g", key=_MEMORY, placeholder="96"
        )
        left, right, units = st.columns([3, 3, 2])
        left.text_input("Source", key=_SOURCE, placeholder="datasheet, or how it was measured")
        right.text_input(
            "Name in traces",
            key=_ALIAS,
            placeholder="name used by the profiler, if different",
            help="Traces of a GPU with this name use these peaks.",
        )
        units.number_input(
            "Compute units",
            min_value=1,
            value=None,
            key=_UNITS,
            placeholder="132",
            help="Streaming multiprocessors or compute units per device; leave empty if unknown.",
        )
        st.caption("Dense peaks in TFLOP/s; leave unknown ones empty.")
        for unit in UNITS:
            with st.container(horizontal=True, gap="small"):
                for precision in PRECISIONS:
                    st.number_input(
                        f"{precision} {unit}",
                        min_value=0.0,
                        value=None,
                        format="%g",
                        key=_peak_key(unit, precision),
                        width=120,
                    )
        st.form_submit_button("Add GPU", icon=":material/save:", on_click=_add_form)


def _peak_key(unit: str, precision: str) -> str:
    return f"_hardware_{unit}_{precision}"


def _add_form() -> None:
    given = st.session_state
    entry = {
        "name": (given[_NAME] or "").strip(),
        "preset": (given[_PRESET] or "").strip() or CUSTOM_PRESET,
        "aliases": [alias] if (alias := (given[_ALIAS] or "").strip()) else [],
        "mem_bw_gbps": given[_BANDWIDTH],
        "memory_gb": given[_MEMORY],
        "compute_units": given[_UNITS],
        "max_achievable_tflops": {
            f"{unit}_{precision}": peak
            for unit in UNITS
            for precision in PRECISIONS
            if (peak := given[_peak_key(unit, precision)]) is not None
        },
        "sources": {"default": (given[_SOURCE] or "").strip()},
    }
    labels = {
        "name": "name",
        "mem_bw_gbps": "memory bandwidth",
        "memory_gb": "memory",
    }
    missing = [label for key, label in labels.items() if not entry[key]]
    missing += ["source"] if not entry["sources"]["default"] else []
    if missing:
        st.session_state[_MESSAGE] = (False, f"Not added: fill in {', '.join(missing)}.")
        return
    try:
        _add(HardwareSpec.parse(entry))
    except HardwareError as error:
        st.session_state[_MESSAGE] = (False, escape(str(error)))


def _add(spec: HardwareSpec) -> None:
    """Store a description and select it; an error is shown as a message."""
    try:
        store_hardware(actor(), spec)
    except JarvisError as error:
        st.session_state[_MESSAGE] = (False, escape(str(error)))
        return
    st.session_state[_GPU] = spec.title
    st.session_state[_UPLOADS] = st.session_state.get(_UPLOADS, 0) + 1
    st.session_state[_MESSAGE] = (
        True,
        f"{escape(spec.title)} was added. Its peaks are shown above.",
    )


def _remove(spec: HardwareSpec) -> None:
    try:
        remove_hardware(actor(), spec)
    except JarvisError as error:
        st.session_state[_MESSAGE] = (False, escape(str(error)))
        return
    if st.session_state.get(_GPU) == spec.title:
        del st.session_state[_GPU]
    st.session_state[_MESSAGE] = (True, f"{escape(spec.title)} was deleted.")


def _upload() -> None:
    st.caption(
        "A TraceLens architecture description: a JSON object with name, mem_bw_gbps, memory_gb and "
        "max_achievable_tflops (matrix_bf16, vector_fp32 and so on)."
    )
    file = st.file_uploader(
        "Architecture description",
        type=["json"],
        key=f"_hardware_upload_{st.session_state.get(_UPLOADS, 0)}",
        max_upload_size=1,
    )
    if file is None:
        return
    try:
        spec = HardwareSpec.parse_arch_json(file.getvalue(), file.name)
    except HardwareError as error:
        show_error(error)
        return
    st.markdown(f"**{escape(spec.title)}** · {_figures(spec)}")
    st.button("Add this GPU", icon=":material/save:", on_click=_add, args=(spec,))
