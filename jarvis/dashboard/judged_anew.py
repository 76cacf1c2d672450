"""The open analysis against other hardware, from what it stores: an analysis of its own."""

from time import perf_counter

import streamlit as st

from jarvis.dashboard import links, navigation
from jarvis.dashboard.hardware import open_analysis
from jarvis.dashboard.state import Opened
from jarvis.dashboard.step_list import step_list
from jarvis.errors import JarvisError
from jarvis.hardware import Hardware, HardwareSpec
from jarvis.reports.markup import escape
from jarvis.server.catalogue import name_of
from jarvis.server.submission import Kept, resubmit

_LAST = "_hardware_judged"


def render(spec: HardwareSpec, hardware: Hardware) -> None:
    """Offer it for the chosen preset, and lead to what came of it."""
    now = open_analysis()
    if now is None:
        st.caption("Open an analysis, and it can be judged against any of these GPUs.")
        return
    manifest = now.run.manifest
    name = f"{escape(name_of(manifest))} ({now.id})"
    if manifest.hardware == spec:
        st.caption(
            f"The open analysis, {name}, is judged against {escape(spec.title)}. Choose another "
            "preset above to judge it against that one."
        )
        return
    with st.container(border=True):
        st.markdown(
            f"**Judge {name} against {escape(spec.title)}.** The measured times stay what they "
            "are; rooflines, efficiencies, findings and reports are worked out against these "
            "figures, without reading the trace. That makes an analysis of its own."
        )
        if st.button(
            f"Judge against {escape(spec.title)}", type="primary", icon=":material/speed:"
        ):
            _judge(now, spec, hardware)
        _say_outcome(now, spec)


def _judge(now: Opened, spec: HardwareSpec, hardware: Hardware) -> None:
    st.session_state.pop(_LAST, None)
    device = now.run.manifest.trace.device_name
    begin = perf_counter()
    try:
        kept = resubmit(now.id, *hardware.choice(spec, device), step_list())
    except JarvisError as error:
        st.error(escape(str(error)), icon=":material/error:")
        return
    st.session_state[_LAST] = ((now.id, spec.title), kept, perf_counter() - begin)


def _say_outcome(now: Opened, spec: HardwareSpec) -> None:
    """How it ended, while the same analysis and preset are shown."""
    of, kept, seconds = st.session_state.get(_LAST, (None, None, 0.0))
    if of != (now.id, spec.title) or not isinstance(kept, Kept):
        return
    if kept.is_reused:
        st.info("This was done before; the kept analysis is as good.", icon=":material/history:")
    else:
        st.success(f"Judged anew in {seconds:.1f} s.", icon=":material/check_circle:")
    navigation.link(
        navigation.OVERVIEW,
        f"Open the analysis against {escape(spec.title)}",
        icon=":material/dashboard:",
        **{links.ANALYSIS: kept.id},
    )
