"""The targets of the open analysis in the head of its pages."""

from collections.abc import Iterator
from dataclasses import replace

import streamlit as st

from jarvis.analyses.base import Analysis
from jarvis.core.request import Targets
from jarvis.dashboard.session import carried
from jarvis.dashboard.session.links import BELOW, TARGET
from jarvis.dashboard.session.state import Opened
from jarvis.impact import BOTTLENECK_EFFICIENCY_PCT
from jarvis.pipeline import has_fixed_findings
from jarvis.run import Run

EFFICIENCY = "Target efficiency"
_TARGET_HELP = (
    "Share of the roofline that well-tuned operations are assumed to reach. Findings, savings, "
    "reports and downloads of this analysis are those at this target."
)
_BELOW_HELP = "Operations below this efficiency are highlighted; never above the target."


def own_parameter(key: str) -> str:
    """Return the URL parameter of a category's own target."""
    return f"{key}_target"


def at_chosen_targets(now: Opened) -> Opened:
    """Return an analysis at the targets that the URL or an earlier page chose, without sliders."""
    return replace(now, chosen=_chosen_targets(now.stored))


def with_targets(now: Opened, analysis: Analysis | None) -> tuple[Opened, str]:
    """Draw the sliders; return the analysis at their values, and what a reader must know of them.

    ``analysis`` is that of the page; a category can have its own target, and one without rows has
    no sliders.
    """
    stored, targets = now.stored, _chosen_targets(now.stored)
    row = st.container(
        horizontal=True, horizontal_alignment="right", vertical_alignment="bottom", gap="small"
    )
    is_shown = not _is_empty(stored, analysis)
    with row:
        if not has_fixed_findings(stored):
            _draw_targets(stored, targets, analysis, is_shown)
        default_pct = BOTTLENECK_EFFICIENCY_PCT
        below_pct = carried.read(BELOW, default_pct)
        _slider(BELOW, "Highlight below", below_pct, default_pct, _BELOW_HELP, is_shown)
    page_target_pct = targets.of_category(analysis.key if analysis else None)
    shown = replace(now, chosen=targets, below_pct=min(below_pct, page_target_pct))
    return shown, " ".join(_notes(stored, targets, below_pct, page_target_pct))


def _is_empty(stored: Run, analysis: Analysis | None) -> bool:
    """Return whether a category has neither rows nor findings."""
    result = None if analysis is None else stored.results.get(analysis.key)
    if result is None or result.tier != "compute":
        return False
    return not result.row_count and not result.findings


def _chosen_targets(stored: Run) -> Targets:
    if has_fixed_findings(stored):
        return stored.targets
    target_pct = carried.read(TARGET, stored.target_pct)
    defaults = _defaults_of_categories(stored, target_pct)
    own = {key: carried.read(own_parameter(key), pct) for key, pct in defaults.items()}
    return Targets.of(target_pct, own)


def _defaults_of_categories(stored: Run, target_pct: float) -> dict[str, float]:
    """Return the target of each category unless another one is chosen for it."""
    own = dict(stored.targets.own)
    categories = (key for key, result in stored.results.items() if result.tier == "compute")
    return {key: own.get(key, target_pct) for key in categories}


def _draw_targets(stored: Run, targets: Targets, analysis: Analysis | None, is_shown: bool) -> None:
    """Draw the sliders of the target and of that of the page's category."""
    _slider(TARGET, EFFICIENCY, targets.pct, stored.target_pct, _TARGET_HELP, is_shown)
    for key, default in _defaults_of_categories(stored, targets.pct).items():
        parameter, value = own_parameter(key), targets.of_category(key)
        if is_shown and analysis is not None and analysis.key == key:
            _own_target(stored.results[key].title, parameter, value, targets.pct, default)
        else:
            carried.write(parameter, value, default, is_own=True)


def _own_target(
    title: str, parameter: str, value: float, target_pct: float, default: float
) -> None:
    """Draw the popover with the target of the page's category."""
    is_own = value != target_pct
    label = f"Own: {value:g}%" if is_own else "Own target"
    with st.popover(label, icon=":material/tune:", type="primary" if is_own else "secondary"):
        meaning = f"Target of {title} in place of that of the analysis."
        _slider(parameter, f"Target of {title}", value, default, meaning, is_shown=True)
        st.button(
            f"Use {target_pct:g}% as the analysis does",
            key=f"{parameter}_reset",
            on_click=carried.choose_by_control,
            args=(parameter, round(target_pct)),
            disabled=not is_own,
        )


def _slider(
    parameter: str, label: str, value: float, default: float, meaning: str, is_shown: bool
) -> None:
    """Draw a slider of a percentage that all pages share; a page without it keeps its value."""
    if is_shown:
        _drawn_slider(parameter, label, value, meaning)
    carried.write(parameter, value, default, is_own=parameter not in (TARGET, BELOW))


def _drawn_slider(parameter: str, label: str, value: float, meaning: str) -> None:
    low, high = carried.SLIDER_RANGE_PCT
    shown = min(max(round(value), low), high)
    if carried.is_other_page(parameter) or st.session_state.get(parameter) != shown:
        # Only then: a value that is set overrules what a user changed meanwhile.
        st.session_state[parameter] = shown
    st.slider(
        label,
        low,
        high,
        format="%d%%",
        key=parameter,
        help=meaning,
        width=_SLIDER_PX,
        on_change=_choose,
        args=(parameter,),
    )


def _choose(parameter: str) -> None:
    carried.choose_by_control(parameter, st.session_state[parameter])


_SLIDER_PX = 155


def _notes(
    stored: Run, targets: Targets, below_pct: float, page_target_pct: float
) -> Iterator[str]:
    """Yield sentences about targets that differ from what the sliders show."""
    if targets.own:
        own = (f"{stored.results[key].title} {pct:g}%" for key, pct in targets.own)
        yield f"With a target of their own: {', '.join(own)}."
    if below_pct > page_target_pct:
        yield f"Highlighted are operations below the target of {page_target_pct:g}%."
    if has_fixed_findings(stored):
        release = f"Jarvis {stored.manifest.jarvis_version} made this analysis"
        yield (
            f"Findings are at a target of {stored.target_pct:g}%: {release}. Analyze the trace "
            "again to change their target."
        )
