"""The simulated step in figures: what the changes save together, the bound, and how sure it is."""

import streamlit as st

from jarvis.dashboard.pages.what_if.simulated import FLOOR, Together, tail_ms, together
from jarvis.dashboard.session.state import Opened
from jarvis.pipeline.simulated_steps import NOTHING_PCT, WhatIf
from jarvis.reports.uncertainty import uncertainty
from jarvis.simulation.quality import Grade
from jarvis.text.format import MINUS, counted, milliseconds, percent
from jarvis.text.markdown import escape, prose

_HELP = (
    "The recorded steps are replayed with the changes: each call and kernel starts when all that "
    "it waits for in the trace has happened. Kernels that share the GPU do not slow each other "
    "down in the replay, and host times do not depend on the load."
)


def result(now: Opened, found: Together) -> None:
    """Draw the joint result."""
    with st.container(border=True, height="stretch"):
        unchanged = together(now, ())
        if isinstance(unchanged, WhatIf):
            _joint(now, found, unchanged)
        if found.error is not None:
            st.error(prose(found.error), icon=":material/error:")
        if (why := uncertainty(now.run)) is not None:
            st.caption(prose(why))
        if (floor := floor_line(now)) is not None:
            st.caption(escape(floor))
        if after_ms := tail_ms(now):
            st.caption(
                f"The GPU finishes the work of the step {milliseconds(after_ms)} after its mark. "
                "The step time excludes this, as on all pages, but savings include what a change "
                "saves of it. The drawn step and the critical path include it, too."
            )


def _joint(now: Opened, found: Together, unchanged: WhatIf) -> None:
    recorded_ms = unchanged.step_ms.recorded
    mean = f"Mean of {counted(unchanged.steps, 'step')}." if unchanged.steps > 1 else ""
    if found.result is None or not found.texts:
        st.markdown(f"### Step now {milliseconds(recorded_ms)}", help=_HELP)
        add = "Add changes to simulate them together: their separate savings do not add up."
        st.caption(f"{mean} {add}".lstrip())
        return
    st.markdown("**Simulated step**", help=_HELP)
    st.markdown(f"### {escape(found.result.headline.removesuffix('.'))}")
    st.caption(escape(f"{found.result.small_print} {mean}".rstrip()))
    left_out = len(found.alone) - len(found.texts)
    if left_out:
        st.caption(f"Not included: {counted(left_out, 'change')} that cannot be simulated.")


def floor_line(now: Opened) -> str | None:
    """Return the step time if no compute kernel took any time; None without any."""
    floor = together(now, (FLOOR,))
    if not isinstance(floor, WhatIf) or not floor.kernel_time_saved_ms:
        return None
    recorded, after = floor.step_ms.recorded, floor.step_ms.simulated
    bound = "If compute kernels took no time, the step would"
    if floor.saved_ms < NOTHING_PCT / 100 * recorded:
        return f"{bound} take as long as now: faster kernels alone do not shorten it."
    about = "about " if floor.grade is Grade.FAIR else ""
    share = percent(100 * floor.saved_ms / recorded)
    return (
        f"{bound} take {about}{milliseconds(after)} ({MINUS}{share}): faster kernels alone save no "
        "more."
    )
