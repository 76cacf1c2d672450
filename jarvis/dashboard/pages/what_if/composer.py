"""The card in which a user composes the list of changes."""

from collections.abc import Callable, Mapping
from typing import Any

import streamlit as st

from jarvis.changes import Collective, CollectiveMode
from jarvis.dashboard.pages.what_if import changes
from jarvis.dashboard.pages.what_if.simulated import alone, parsed
from jarvis.dashboard.pages.what_if.suggestions import Labels, Suggestions, suggestions_of
from jarvis.dashboard.session.state import Opened
from jarvis.impact import TARGET_PCT
from jarvis.pipeline.simulated_steps import MERGE_LAUNCHES, ChangeAlone
from jarvis.text.format import MINUS, milliseconds
from jarvis.text.markdown import code, prose

_HELP = """\
| Change | Meaning |
|---|---|
| `finding=P1` | what a finding proposes |
| `target=NAME:PERCENT` | operations below that percentage of their roofline reach it |
| `scale=NAME:FACTOR` | GPU work takes FACTOR times as long; 0 removes its time |
| `host=PATTERN:FACTOR` | host time of operators, annotations or Python frames, likewise |
| `no-wait=PATTERN` | calls, or what is around them, do not wait for the GPU |
| `merge-launches` | one graph launch in place of the launches between two waits |
| `collective=KIND:HOW` | collectives are `hidden`, take their `transfer` only, or HOW is a factor |

NAME is an operation, a category or `compute`. PATTERN and KIND match names; `*` is any text. A name
ends at the last colon."""

_ROOFLINE, _TIMES = "To % of roofline", "Times as long"
_HIDDEN, _TRANSFER = "Hidden", "Transfer only"
_UNCHANGED_MS = 5e-4
_NAME_PX, _NUMBER_PX = 420, 130
MAX_FACTOR = 1000.0


def composer(now: Opened, texts: tuple[str, ...]) -> None:
    """Draw the fields for a new change."""
    offered = suggestions_of(now)
    kinds = {name: kind for name, kind in _KINDS.items() if kind.labels(offered)}
    with st.container(border=True, height="stretch"):
        st.markdown("**Add a change**")
        chosen = st.segmented_control(
            "Kind of change",
            list(kinds),
            key="_what_if_kind",
            default=next(iter(kinds)),
            required=True,
            label_visibility="collapsed",
        )
        kind = kinds[str(chosen)]
        with st.container(horizontal=True, vertical_alignment="bottom"):
            text = kind.fields(kind.labels(offered))
            st.button(
                "Add",
                key="_what_if_add",
                icon=":material/add:",
                on_click=changes.add,
                args=(now, texts, text),
            )
        _preview(now, text)
        _text_field(now, texts)
        if (error := changes.error()) is not None:
            st.error(prose(error), icon=":material/error:")


def _preview(now: Opened, text: str) -> None:
    """Draw what the chosen change alone would save."""
    found = alone(now, text)
    steps = len(now.run.simulation.recorded.steps_ns)
    if isinstance(found, str):
        st.caption(f"{code(text)} {prose(found)}")
        return
    is_hidden = all(
        isinstance(change, Collective) and change.mode == CollectiveMode.HIDDEN
        for change in parsed(now, text)
    )
    st.caption(f"{code(text)} alone: {saving(found, steps, is_hidden=is_hidden)}")


def saving(found: ChangeAlone, steps: int, *, is_hidden: bool = False) -> str:
    """Return what a change alone saves of a step, and of kernel time or hidden communication."""
    kernel_ms = found.kernel_time_saved_ms / steps
    step = f"step {signed(found.saved_ms)}"
    if is_hidden:
        return f"{step}, with all communication hidden ({milliseconds(kernel_ms)})"
    return f"{step}, kernel time {signed(kernel_ms)}"


def signed(saved_ms: float) -> str:
    """Return a saving with the sign of the change, a minus for less time, or ``unchanged``."""
    if abs(saved_ms) < _UNCHANGED_MS:
        return "unchanged"
    return f"{MINUS if saved_ms > 0 else '+'}{milliseconds(abs(saved_ms))}"


def _text_field(now: Opened, texts: tuple[str, ...]) -> None:
    with (
        st.form("_what_if_form", border=False),
        st.container(horizontal=True, vertical_alignment="bottom"),
    ):
        st.text_input(
            "Or type it, as for `jarvis what-if --change`",
            key=changes.TEXT,
            placeholder="scale=compute:0.5",
            help=_HELP,
        )
        st.form_submit_button(
            "Add",
            key="_what_if_submit",
            icon=":material/add:",
            on_click=changes.add_typed,
            args=(now, texts),
        )


def number_field(
    key: str, *, is_percentage: bool, default: float | None = None, **options: Any
) -> float:
    """Draw the number of a change: a percentage or a factor; ``default`` if it has no state."""
    low, high = number_range(is_percentage=is_percentage)
    if default is not None:
        options["value"] = default
    number: float = st.number_input(
        "Percent" if is_percentage else "Factor",
        low,
        high,
        step=5.0 if is_percentage else 0.1,
        format="%.4g",
        key=key,
        width=_NUMBER_PX,
        **options,
    )
    return number


def number_range(*, is_percentage: bool) -> tuple[float, float]:
    """Return the smallest and the largest number of a change."""
    return (1.0, 100.0) if is_percentage else (0.0, MAX_FACTOR)


def _name(key: str, label: str, labels: Labels) -> str:
    """Draw a choice of a name."""
    name = st.selectbox(
        label,
        list(labels),
        format_func=lambda each: labels.get(each, each),
        key=f"_what_if_{key}",
        width=_NAME_PX,
    )
    return str(name)


def _how(key: str, options: list[str]) -> str:
    how = st.segmented_control(
        "How", options, default=options[0], required=True, key=f"_what_if_{key}_how"
    )
    return str(how)


def _finding(labels: Labels) -> str:
    return f"finding={_name('finding', 'Finding', labels)}"


def _kernels(labels: Labels) -> str:
    name = _name("kernels", "Operation or category", labels)
    is_target = _how("kernels", [_TIMES, _ROOFLINE]) == _ROOFLINE
    if is_target:
        percent = number_field("_what_if_percent", is_percentage=True, default=float(TARGET_PCT))
        return f"target={name}:{percent:g}"
    factor = number_field("_what_if_factor", is_percentage=False, default=0.5)
    return f"scale={name}:{factor:g}"


def _host(labels: Labels) -> str:
    name = _name("host", "Operator, annotation or Python frame", labels)
    factor = number_field("_what_if_host_factor", is_percentage=False, default=0.0)
    return f"host={name}:{factor:g}"


def _waits(labels: Labels) -> str:
    return f"no-wait={_name('waits', 'Calls', labels)}"


def _launches(_: Labels) -> str:
    st.markdown("One graph launch in place of the launches between two waits.")
    return MERGE_LAUNCHES


def _collectives(labels: Labels) -> str:
    name = _name("collectives", "Collectives", labels)
    how = _how("collectives", [_HIDDEN, _TRANSFER, _TIMES])
    if how == _TIMES:
        factor = number_field("_what_if_collective_factor", is_percentage=False, default=0.5)
        return f"collective={name}:{factor:g}"
    return f"collective={name}:{'hidden' if how == _HIDDEN else 'transfer'}"


class _Kind:
    """A kind of change: what it can name, and its fields, which return the change."""

    def __init__(
        self, labels: Callable[[Suggestions], Labels], fields: Callable[[Labels], str]
    ) -> None:
        self.labels, self.fields = labels, fields


_KINDS: Mapping[str, _Kind] = {
    "Finding": _Kind(lambda offered: offered.findings, _finding),
    "Kernel time": _Kind(lambda offered: offered.kernels, _kernels),
    "Host time": _Kind(lambda offered: offered.host, _host),
    "Waits": _Kind(lambda offered: offered.waits, _waits),
    "Launches": _Kind(lambda _: {MERGE_LAUNCHES: MERGE_LAUNCHES}, _launches),
    "Communication": _Kind(lambda offered: offered.collectives, _collectives),
}
