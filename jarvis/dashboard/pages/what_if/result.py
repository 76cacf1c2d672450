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
                f"The GPU works for the step until {milliseconds(after_ms)} after its mark. The "
                "step time is without that, as on all pages; what changes save of that counts as "
                "saved step time. The drawn step and the critical path include it."
            )


def _joint(now: Opened, found: Together, unchanged: WhatIf) -> None:
    recorded_ms = unchanged.step_ms.recorded
    several = (
        f"median of {counted(unchanged.steps, 'step')}; the savings of findings are of the mean"
    )
    median = several if unchanged.steps > 1 else ""
    if found.result is None or not found.texts:
        st.markdown(f"### Step now {milliseconds(recorded_ms)}", help=_HELP)
        add = "Add changes to simulate them together; savings alone do not add up."
        st.caption(". ".join(filter(None, (median.capitalize(), add))))
        return
    st.markdown("**Simulated step**", help=_HELP)
    st.markdown(f"### {escape(found.result.headline.removesuffix('.'))}")
    times = f" Step times: {median}." if median else ""
    st.caption(escape(f"{found.result.small_print}{times}"))
    left_out = len(found.alone) - len(found.texts)
    if left_out:
        st.caption(f"Without {counted(left_out, 'change')} that cannot be simulated.")


def floor_line(now: Opened) -> str | None:
    """Return the step with all compute kernels at no time; None without any."""
    floor = together(now, (FLOOR,))
    if not isinstance(floor, WhatIf) or not floor.kernel_time_saved_ms:
        return None
    recorded, after = floor.step_ms.recorded, floor.step_ms.simulated
    bound = f"With all compute kernels at no time the step takes {milliseconds(after)}"
    if floor.saved_ms < NOTHING_PCT / 100 * recorded:
        return f"{bound}, as now: faster kernels alone save nothing of it."
    about = "about " if floor.grade is Grade.FAIR else ""
    share = percent(100 * floor.saved_ms / recorded)
    return f"{bound} ({about}{MINUS}{share}): faster kernels alone save no more."
