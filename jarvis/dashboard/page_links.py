"""The links of the sidebar to all pages, with the time and the findings of each page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from jarvis.analyses.chain_context import fusion_findings_of
from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.state import Opened, cached, of_opened, of_stored
from jarvis.dashboard.widgets.finding_cards import PRIORITY_COLORS
from jarvis.findings import Finding, Priority, Status
from jarvis.reports.utilization import category_times_in_steps_ms
from jarvis.run.figures import COMMUNICATION, COPIES, IDLE, RunFigures
from jarvis.text.format import counted, percent
from jarvis.text.markdown import escape

_MAX_CACHED = 128
_SHAPES: Mapping[Priority, str] = {
    Priority.CRITICAL: "◆",
    Priority.HIGH: "▲",
    Priority.MEDIUM: "●",
    Priority.LOW: "○",
}
"""Shapes, so that priorities do not differ by color alone; the tooltip has the word."""

_PARTS: Mapping[str, tuple[str, ...]] = {
    "cpu_idle": (IDLE,),
    "multi_kernel": (COMMUNICATION, COPIES),
}
"""Parts of the step that pages of the system are about."""

_ONE_PCT = 1.0
_SHARES = (
    "Kernel time of a category in the steps, or exposed time, divided by the step time. Work "
    "without a recorded launch is in no category. Work that runs at the same time counts on each "
    "of its pages, and some work on none, so the shares need not add up to 100%."
)


@dataclass(frozen=True, slots=True)
class PageMark:
    """The share of the step that a page is about, and its most urgent finding.

    ``share_pct`` is None for pages without a time of their own, ``whole`` what it is a share of.
    """

    share_pct: float | None
    whole: str
    findings: int
    worst: Priority | None
    is_empty: bool

    @property
    def label(self) -> str:
        """Return the share and the shape of the worst priority as Markdown."""
        parts = []
        if self.share_pct:
            parts.append(f":gray[{_rounded(self.share_pct)}]")
        if self.worst is not None:
            parts.append(f":{PRIORITY_COLORS[self.worst]}[{_SHAPES[self.worst]}]")
        return " ".join(parts)

    @property
    def tooltip(self) -> str:
        """Return the share and the worst priority in words."""
        parts = []
        if self.share_pct:
            parts.append(f"{percent(self.share_pct)} of the {self.whole}")
        if self.worst is not None:
            parts.append(f"{counted(self.findings, 'finding')}, highest priority: {self.worst}")
        elif self.is_empty:
            parts.append("nothing of this in the trace")
        return " · ".join(parts)


def page_links(
    sections: Mapping[str, Sequence[StreamlitPage]], marks: Mapping[str, PageMark]
) -> None:
    """Draw the links to the pages of the menu, under the titles of their sections."""
    with st.container(gap="xxsmall", key="page_links"):
        for title, pages in sections.items():
            own = [marks[page.url_path] for page in pages if page.url_path in marks]
            wholes = [mark.whole for mark in own if mark.share_pct]
            if title and any(page.visibility == "visible" for page in pages):
                of_whole = f" · share of the {wholes[0]}" if wholes else ""
                st.caption(f"**{title}**{of_whole}", help=_SHARES if wholes else None)
            for page in pages:
                if page.visibility == "visible":
                    _link(page, marks.get(page.url_path))


def searched_pages(sections: Mapping[str, Sequence[StreamlitPage]]) -> list[StreamlitPage]:
    """Return the pages of the menu; the one at the root by its own URL path."""
    every = [page for pages in sections.values() for page in pages]
    at_root = {page.title for page in every if page.visibility == "visible" and not page.url_path}
    return [
        page
        for page in every
        if page.url_path and (page.visibility == "visible" or page.title in at_root)
    ]


def _link(page: StreamlitPage, mark: PageMark | None) -> None:
    title = escape(page.title)
    if mark is None:
        navigation.menu_link(page, title)
    elif mark.is_empty:
        navigation.menu_link(page, f":gray[{title}]", mark.tooltip)
    else:
        navigation.menu_link(page, f"{title} {mark.label}".rstrip(), mark.tooltip)


@cached(_MAX_CACHED, of_opened)
def page_marks(now: Opened) -> Mapping[str, PageMark]:
    """Return the marks of the pages of all analyses of a run, by URL path."""
    figures, marks = RunFigures.of(now.stored.manifest), {}
    by_part = {**figures.times_ms, **_times_in_steps_ms(now)}
    for key, result in now.run.results.items():
        times_ms = [by_part.get(part, 0.0) for part in _PARTS.get(key, (key,))]
        # a category without operations can be a chain of others
        findings = result.findings or tuple(fusion_findings_of(now.run.results, result).values())
        has_time = figures.time_ms > 0 and result.status is not Status.NO_DATA
        marks[key] = PageMark(
            share_pct=100 * sum(times_ms) / figures.time_ms if has_time else None,
            whole=str(figures.basis),
            findings=len(findings),
            worst=_worst(findings),
            is_empty=result.status is Status.NO_DATA and not findings,
        )
    return marks


@cached(_MAX_CACHED, of_stored)
def _times_in_steps_ms(now: Opened) -> Mapping[str, float]:
    return category_times_in_steps_ms(now.stored)


def _worst(findings: Sequence[Finding]) -> Priority | None:
    return min((finding.priority for finding in findings), key=lambda p: p.rank, default=None)


def _rounded(share_pct: float) -> str:
    return f"{share_pct:.0f}%" if share_pct >= _ONE_PCT else "<1%"
