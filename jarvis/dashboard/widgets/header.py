"""The head of a page: title, subject, and the warnings of trace health."""

import streamlit as st

from jarvis.analyses.base import Analysis
from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.state import Opened, cached, of_stored, opened
from jarvis.dashboard.widgets.targets import with_targets
from jarvis.findings import Tier
from jarvis.reports.gaps import Gap, gaps_of, warnings_with
from jarvis.reports.health import MARKS, health_line, health_of
from jarvis.text.markdown import escape, prose, table
from jarvis.trace_health import Fact, Severity

_ICON = ":material/health_metrics:"
_STRIP = (5, 1)
"""Relative widths of a warning and its link."""

_LINE_BREAK = "  \n"
_MAX_CACHED_GAPS = 64


def warning_strip(now: Opened, tier: Tier | None) -> None:
    """Draw the warnings that affect a page, with a link to the overview.

    ``tier`` is the tier of the page's analysis; system pages leave out warnings about operations.
    """
    grave = _grave_gaps(now)
    if tier == "system":
        grave = [gap for gap in grave if not gap.is_of_operations]
    platform = now.stored.manifest.platform_warning
    lines = [*([platform] if platform else []), *(gap.summary or gap.text for gap in grave)]
    if not lines:
        return
    box, link = st.columns(_STRIP, vertical_alignment="center", gap="small")
    with box:
        _warn(lines)
    with link:
        navigation.link(navigation.OVERVIEW, "What this affects", icon=_ICON)


@cached(_MAX_CACHED_GAPS, of_stored)
def _grave_gaps(now: Opened) -> list[Gap]:
    """Return the serious gaps; cached, as every page needs them and they depend on all rows."""
    return [gap for gap in gaps_of(now.stored) if gap.is_grave]


def health_warnings(now: Opened) -> None:
    """Draw every warning."""
    if warnings := warnings_with(now.run, _grave_gaps(now)):
        _warn(warnings)


def health_facts(now: Opened) -> None:
    """Draw an expander with all facts about the trace's health, their effects and remedies."""
    facts = _facts(now)
    with st.expander(f"Trace health: {health_line(facts)}", icon=_ICON):
        open_facts = [fact for fact in facts if fact.severity is not Severity.OK]
        if open_facts:
            heads = ("", "Fact", "Finding", "What it affects", "How to capture better")
            st.markdown(
                table(
                    heads,
                    (
                        (
                            MARKS[fact.severity],
                            fact.title,
                            *map(prose, (fact.summary, fact.affects, fact.remedy)),
                        )
                        for fact in open_facts
                    ),
                )
            )
        st.caption("No problem found")
        lines = [
            f"{MARKS[fact.severity]} {prose(fact.title)}: {prose(fact.summary)}"
            for fact in facts
            if fact.severity is Severity.OK
        ]
        st.markdown(_LINE_BREAK.join(lines))


@cached(_MAX_CACHED_GAPS, of_stored)
def _facts(now: Opened) -> list[Fact]:
    return health_of(now.stored)


def _warn(lines: list[str]) -> None:
    """Draw one box with a line for each warning."""
    st.warning(_LINE_BREAK.join(map(prose, lines)), icon=":material/warning:", width="stretch")


def page_header(
    title: str, icon: str, shown: Analysis | None = None, *, has_health: bool = False
) -> Opened:
    """Draw the title; model name, GPU, trace and id of the analysis; its targets; and warnings.
    Return the open analysis at these targets.

    Args:
        title: Title of the page.
        icon: Streamlit icon of the page.
        shown: The analysis of the page, if it has one; its tier selects the warnings.
        has_health: The page draws the warnings itself.

    Raises:
        NoAnalysisError, UnknownAnalysisError, RunError: As ``opened``.
    """
    analysis = opened()
    manifest = analysis.stored.manifest
    hardware = manifest.hardware
    about = [
        *([manifest.model_name] if manifest.model_name else []),
        hardware.title if hardware else "GPU unknown",
        manifest.trace.file_name,
        analysis.id,
    ]
    head, sliders = st.columns([2, 3], vertical_alignment="bottom")
    with head:
        st.title(f"{icon} {title}")
        st.caption(" · ".join(map(escape, about)))
    with sliders:
        now, notes = with_targets(analysis, shown)
    if notes:
        st.caption(notes)
    if not has_health:
        warning_strip(now, shown.tier if shown else None)
    return now
