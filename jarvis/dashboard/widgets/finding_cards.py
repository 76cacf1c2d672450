"""Cards of findings and of graded figures."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from math import isclose
from typing import Any

import polars as pl
import streamlit as st
from pydantic import JsonValue

from jarvis.analyses.inefficiency import MIN_TB_PER_S
from jarvis.analyses.runner import is_no_action
from jarvis.dashboard.session import navigation, selection
from jarvis.dashboard.session.links import check_parameter, note_control
from jarvis.dashboard.session.state import Opened, cached, of_opened
from jarvis.dashboard.widgets.elements import LOSS_WORDS, SEVERITY_COLORS, lazy_expander
from jarvis.dashboard.widgets.view import bring_into_view
from jarvis.findings import (
    COMMUNICATION_POOL,
    COPIES_POOL,
    IDLE_POOL,
    Finding,
    Impact,
    OpRef,
    Priority,
    Severity,
    shown_evidence,
)
from jarvis.impact import KERNEL_FLOOR_US
from jarvis.perf_report import Totals
from jarvis.reports.figures import target_words
from jarvis.reports.ranking import Recommendation
from jarvis.reports.sections import action_headings
from jarvis.run import Run
from jarvis.savings import CAPS, FLOORS, over_steps, per_step
from jarvis.schemas.names import C
from jarvis.text.format import (
    MIN_PCT,
    MINUS,
    arguments,
    count,
    counted,
    decimal,
    milliseconds,
    percent,
)
from jarvis.text.markdown import Markdown, code, escape, prose, shortened, table
from jarvis.text.quantities import title_of
from jarvis.text.shapes import compact_shapes
from jarvis.text.short_names import short_kernel_name


def grade_card(title: str, value: str, assessment: JsonValue, meaning: str) -> None:
    """Draw a metric with its grade and the description of the grade."""
    facts = facts_of(assessment)
    grade = Severity(str(facts.get("severity", Severity.NOT_AVAILABLE)))
    with st.container(border=True, height="stretch"):
        st.metric(title, value, help=meaning)
        st.badge(LOSS_WORDS[grade], color=SEVERITY_COLORS[grade])
        if description := facts.get("description"):
            st.caption(prose(str(description)))


def facts_of(metric: JsonValue) -> Mapping[str, Any]:
    """Return a metric's entries; empty if it is not a mapping."""
    return metric if isinstance(metric, dict) else {}


OPERATIONS_SHOWN = 8
_USUAL = "such calls usually reach no more"
_LIMITS = {"slow_kernel": "simple operators of this trace reach no more"}
"""Why a finding aims at less than the target of its page, by check."""

HIDDEN_PART = 0.01
"""A larger part of the kernel time saved than this that the step does not gain is shown."""

PRIORITY_COLORS = {
    Priority.CRITICAL: "red",
    Priority.HIGH: "orange",
    Priority.MEDIUM: "yellow",
    Priority.LOW: "gray",
}
"""Streamlit color names; the badge also has the priority as text."""

ORDER = (
    "P1 saves most step time. Priority by the share of the step saved: Low below "
    f"{CAPS[0][0]:g}%, Medium below {CAPS[1][0]:g}%, else High; Critical from {FLOORS[0][0]:g}%, "
    f"or from {CAPS[2][0]:g}% for a large share of compute at low efficiency. At most Medium if a "
    "trace of one rank does not show how much is saved."
)
"""The order of findings, and their priorities."""

_SHAPES_LENGTH = 44
_EVIDENCE_LENGTH, _EVIDENCE_NAME_LENGTH = 300, 100
"""Kernel names can have a thousand characters; a row's details have the full name."""

_SHORT_VALUE_LENGTH = 60
"""Maximum length of a value that shares a row with others."""

_NOTES = {
    "hypothesis": "Likely cause",
    "caveat": "Caveat",
    "verify": "How to verify",
    "capture": "What to record",
}

_KERNEL = "main_kernel"
_KERNEL_SPAN = re.compile(r"`((?:void |_Z)[^`]+)`")
"""Code span with the name of a compiled kernel."""

_CODE_SPAN = re.compile(r"`([^`]+)`")

_MAX_CACHED = 256

EVIDENCE = "evidence"
"""Prefix of the keys of containers with evidence, whose tables ``shell.py`` lays out in columns."""

FINDINGS = "findings"
"""Prefix of the keys of containers with cards, among which ``keyboard.js`` moves."""


Labels = Callable[[Collection[int]], Mapping[int, tuple[str | None, str]]]
"""Returns the shapes of the rows with these uids, and the number of each among rows that look the
same, as the page's table has them."""

Select = Callable[[Finding, OpRef], None]
"""Callback of the button of an operation of a finding."""


def _select_row(finding: Finding, reference: OpRef) -> None:
    """Select the operation in the table of its category's page."""
    selection.request(finding.category, reference.uid)


def finding_cards(
    findings: tuple[Finding, ...],
    run: Run,
    projected: Callable[[Finding], Impact | None] | None = None,
    *,
    page: str | None = None,
    select: Select = _select_row,
    badges: Mapping[int, str] | None = None,
    labels: Labels | None = None,
) -> None:
    """Draw an expander for each finding; a message if there are none.

    That which the URL names is open and in view, by default the first.

    Args:
        findings: The findings in order.
        run: Their run, whose steps and targets they are about.
        projected: Returns a finding's impact at a slider of the page; by default its own.
        page: Prefix of the expanders' URL parameters; by default the category of the finding.
        select: Callback of the operation buttons.
        badges: Markdown behind the heading, by the ``id`` of the finding.
        labels: Labels of the rows of operations; by default the shapes of the finding.
    """
    if not findings:
        st.info(
            "No findings on this page: none of its checks found a saving above its threshold. The "
            "overview lists the findings of all pages.",
            icon=":material/info:",
        )
        return
    prefix = page or findings[0].category
    with st.container(key=f"{FINDINGS}_{prefix}"):
        _cards(findings, run, projected, prefix, select, badges or {}, labels or _no_labels)


def _cards(
    findings: tuple[Finding, ...],
    run: Run,
    projected: Callable[[Finding], Impact | None] | None,
    prefix: str,
    select: Select,
    badges: Mapping[int, str],
    labels: Labels,
) -> None:
    wanted, is_new = _wanted(prefix, len(findings))
    for number, finding in enumerate(findings):
        gain = finding.impact if projected is None else projected(finding)
        label = f"{priority_badge(finding.priority)} {prose(finding.title)}"
        if gain is not None:
            label += f" · {saving_label(gain, run.manifest.totals)}"
        label += badges.get(id(finding), "")
        key = f"{prefix}_finding_{number}"
        if number == wanted:
            with st.container(key=f"{key}_card"), st.expander(label, expanded=True):
                _card(finding, gain, run, key, select, labels)
            if is_new:
                bring_into_view(f"{key}_card")
        elif (expander := lazy_expander(label, key)).open:
            with expander:
                _card(finding, gain, run, key, select, labels)


def finding_parameter(page: str) -> str:
    """Return the URL parameter that names the open finding of a page, from 1."""
    return f"{page}_finding"


def finding_address(now: Opened, item: Recommendation, shared: Mapping[str, str]) -> str:
    """Return the URL of the finding's page, on which its card is open.

    ``shared`` are parameters that all pages have, as ``carried`` returns them.
    """
    page, result = item.finding.category, item.result
    parameters = {finding_parameter(page): str(result.findings.index(item.finding) + 1)}
    if (target := now.run.analyses[page].target) is not None and result.tier != "compute":
        parameters[f"{page}_target"] = f"{target.default_pct:.0f}"
    return navigation.address(page, now.id, **shared, **parameters)


def _wanted(prefix: str, count: int) -> tuple[int, bool]:
    """Return the index of the finding that is open, and whether a link has just named it."""
    parameter, seen = finding_parameter(prefix), f"_{prefix}_finding_seen"

    def is_valid(text: str) -> bool:
        return text.isdecimal() and 1 <= int(text) <= count

    check_parameter(parameter, is_valid, "the first finding")
    given = st.query_params.get(parameter)
    is_new = given != st.session_state.get(seen)
    st.session_state[seen] = given
    if given is None or not is_valid(given):
        return 0, False
    note_control(parameter, given)
    return int(given) - 1, is_new


def no_longer_findings(now: Opened, key: str | None = None) -> None:
    """Draw which findings of the stored run, or of one analysis, are none at these targets."""
    if now.run.stored is not None and (text := _no_longer_findings(now, key)):
        st.caption(text)


@cached(_MAX_CACHED, of_opened)
def _no_longer_findings(now: Opened, key: str | None) -> str:
    run, target = now.run, target_words(now.run)
    reached: list[str] = []
    others: list[str] = []
    for own, result in (run.stored or run).results.items():
        pct, left = run.targets.of_category(own), run.results[own].findings
        if key not in (None, own):
            continue
        uids_left = frozenset().union(*(other.each_row_uid() for other in left))
        checks_left = {other.check for other in left}
        for finding in result.findings:
            has_rows = bool(finding.operations or finding.shared_uids)
            is_left = not has_rows and finding.check in checks_left
            if (
                finding.impact is None
                or is_left
                or not uids_left.isdisjoint(finding.each_row_uid())
            ):
                continue
            is_reached = (finding.impact.efficiency_pct or 0.0) >= pct
            (reached if is_reached else others).append(prose(finding.title))
    words = (
        (f"Findings with nothing left to gain at {target}", reached),
        (f"Not findings at {target}", others),
    )
    return "  \n".join(f"{head}: {'; '.join(titles)}." for head, titles in words if titles)


def _card(
    finding: Finding, gain: Impact | None, run: Run, key: str, select: Select, labels: Labels
) -> None:
    st.markdown(prose(finding.issue))
    if gain is not None:
        st.markdown(_impact_line(finding, gain, run))
    actions = zip(action_headings(finding), (finding.algorithmic, finding.kernel), strict=True)
    known = [(heading, text) for heading, text in actions if not is_no_action(text)]
    if known:
        for (heading, text), place in zip(known, st.columns(len(known), border=True), strict=True):
            place.markdown(f"**{heading}**  \n{_with_short_kernels(prose(text))}")
    if finding.priority_reason:
        st.markdown(f"**Priority** · {prose(finding.priority_reason)}")
    evidence_table(finding, key)
    with st.container(horizontal=True):
        _notes(finding)
    if finding.operations:
        _operation_buttons(finding, key, select, labels)


def _with_short_kernels(text: str) -> str:
    """Return Markdown with the distinguishing parts of the kernel names in its code spans."""
    return _KERNEL_SPAN.sub(lambda name: code(short_kernel_name(name[1])), text)


def _evidence_title(name: str, text: str) -> str:
    """Return the title of a quantity, without its unit if its value has one."""
    title = title_of(name)
    return title.partition(" (")[0] if text.endswith(("MB/s", "%")) else title


def evidence_table(finding: Finding, key: str) -> None:
    """Draw the evidence: short values in as many columns as the window has room for, long values
    in a table below. ``key`` is the prefix of the keys of the card."""
    short: list[tuple[str, str]] = []
    long: list[tuple[str, str]] = []
    for name, value in shown_evidence(finding).items():
        text = _value(name, value)
        of_length = short if len(text) <= _SHORT_VALUE_LENGTH else long
        of_length.append((Markdown(f"**{escape(_evidence_title(name, text))}**"), prose(text)))
    heads = ("Evidence", "Value")
    with st.container(key=f"{EVIDENCE}_{key}", gap="xsmall"):
        for pairs in filter(None, (short, long)):
            st.markdown(table(heads, pairs))


def _notes(finding: Finding) -> None:
    """Draw a button for each note that the finding has; it opens the note."""
    for name, label in _NOTES.items():
        if text := getattr(finding, name):
            with st.popover(label, type="tertiary", icon=":material/notes:"):
                st.markdown(prose(text))


def saving_label(gain: Impact, totals: Totals) -> str:
    """Return the saving of a finding for its heading: of the time of a step, if that is known."""
    gain = per_step(gain, totals)
    if gain.gain_ms <= 0 and gain.step_ms is not None and gain.step_ms.high > 0:
        return f"step time at most {_less(gain.step_ms.high)}"
    if gain.gain_ms <= 0:
        return "no saving at this target" if gain.saved_ms.mid <= 0 else "step unchanged"
    saved = f"{_less(gain.gain_ms)} ({MINUS}{percent(gain.gain_pct)})"
    if gain.step_ms is None:
        return f"kernel time {_less(gain.gain_ms)}"
    return f"step time {'up to ' if gain.is_interval else ''}{saved}"


def _less(saved_ms: float) -> str:
    return f"{MINUS}{milliseconds(saved_ms)}"


def _impact_line(finding: Finding, gain: Impact, run: Run) -> str:
    """Return the time of a step that a finding saves, and the kernel time of all steps, of which
    some is hidden."""
    hidden_ms = gain.saved_ms.mid - (gain.step_ms.mid if gain.step_ms else 0.0)
    totals = run.manifest.totals
    over = f" {over_steps(totals)}".rstrip()
    gain = per_step(gain, totals)
    saved, step = gain.saved_ms, gain.step_ms
    compute = f"{percent(gain.compute_pct.mid)} of compute, " if finding.operations else ""
    target = _target(finding, gain, run)
    pool = finding.time_pool or ""
    is_idle = pool.startswith(IDLE_POOL)
    is_exposed = pool.startswith((COMMUNICATION_POOL, COPIES_POOL))
    what = "Idle" if is_idle else "Exposed" if is_exposed else "Kernel"
    kernels = (
        f"**{what} time** · {_less(saved.mid)}{over}{target} "
        f"(low {milliseconds(saved.low)}, high {milliseconds(saved.high)}): "
        f"{compute}{percent(gain.e2e_pct.mid)} of the GPU window · {gain.method}"
    )
    if step is None:
        return f"{kernels} · step time not known"
    high = milliseconds(step.high)
    share = f"({MINUS}{percent(gain.gain_pct)})"
    if gain.is_interval:
        line = f"**Step time** · up to {_less(step.high)} {share}, depending on the other ranks"
    elif step.high <= 0:
        line = "**Step unchanged**: it does not wait for this work"
    elif milliseconds(step.mid) == milliseconds(0):
        line = f"**Step time** · at most {_less(step.high)}"
    elif high == milliseconds(gain.gain_ms):
        line = f"**Step time** · {_less(step.mid)} {share}"
    else:
        line = f"**Step time** · {_less(step.mid)} {share}, at most {_less(step.high)}"
    if not gain.is_interval and hidden_ms > HIDDEN_PART * saved.mid:
        kernels += f" · {milliseconds(hidden_ms)} of it is hidden by other work or the host"
    if not gain.is_replayed and not gain.is_interval:
        line += " · estimated from what bounds the step, not simulated"
    return line if is_idle else f"{line}\n\n{kernels}"


def _target(finding: Finding, gain: Impact, run: Run) -> str:
    """Return the efficiency that the saving assumes, and why it is not the target of the page."""
    if gain.target_pct is None:
        return ""
    text = f" at {percent(gain.target_pct)} of the roofline"
    of_page = run.targets.of_category(finding.category)
    if isclose(gain.target_pct, of_page):
        return text
    rows = run.table("operations").filter(pl.col(C.uid).is_in([*finding.row_uids]))
    of_rows = pl.max_horizontal(pl.col(C.kernel_count, C.operation_count).sum())
    kernels = int(rows.select(of_rows).item())
    shortest_ms = KERNEL_FLOOR_US / 1000 * kernels
    why = _LIMITS.get(finding.check, _USUAL)
    if isclose(gain.time_ms * (gain.efficiency_pct or 0.0) / gain.target_pct, shortest_ms):
        why = f"each of their {counted(kernels, 'kernel')} takes at least {KERNEL_FLOOR_US:g} µs"
    return f"{text} (not at the target of {of_page:g}%: {why})"


def priority_badge(priority: Priority) -> str:
    """Return the priority as a Markdown badge."""
    return f":{PRIORITY_COLORS[priority]}-badge[{priority}]"


def _value(name: str, value: float | int | str) -> str:
    if isinstance(value, str):
        text = f"`{short_kernel_name(value.strip('`'))}`" if name == _KERNEL else value
        if "`" not in text:
            return shortened(text, _EVIDENCE_LENGTH if " " in text else _EVIDENCE_NAME_LENGTH)
        return _CODE_SPAN.sub(lambda span: code(shortened(span[1], _EVIDENCE_NAME_LENGTH)), text)
    if isinstance(value, int):
        return count(value)
    title = title_of(name)
    if title.endswith("(TB/s)") and value < MIN_TB_PER_S:
        return f"{decimal(1e6 * value)} MB/s"
    return percent(value) if "(%" in title and value < MIN_PCT else decimal(value)


def _operation_buttons(finding: Finding, key: str, select: Select, labels: Labels) -> None:
    """Draw a button for each operation of the finding that selects its row."""
    shown = {reference.uid: reference for reference in finding.operations[:OPERATIONS_SHOWN]}
    total = len(finding.operations)
    which = counted(total, "row") if total == len(shown) else f"{len(shown)} of {count(total)} rows"
    key = f"{key}_operations"
    texts = _operation_labels(shown.values(), labels(shown))
    st.pills(
        f"{which} in the table below: click{' one' if total > 1 else ''} to select it",
        list(shown),
        format_func=texts.__getitem__,
        key=key,
        on_change=partial(_follow, key, finding, shown, select),
    )


def _follow(key: str, finding: Finding, shown: Mapping[int, OpRef], select: Select) -> None:
    """Call ``select`` for the clicked button and reset it, as other rows can be selected later."""
    uid = st.session_state[key]
    st.session_state[key] = None
    if uid is not None:
        select(finding, shown[uid])


def _no_labels(_: Collection[int]) -> Mapping[int, tuple[str | None, str]]:
    return {}


def _operation_labels(
    references: Iterable[OpRef], known: Mapping[int, tuple[str | None, str]]
) -> dict[int, str]:
    """Return each operation's shapes, what differs, and number of calls."""
    seen: Counter[str] = Counter()
    texts = {}
    for reference in references:
        recorded = compact_shapes(arguments(reference.input_dims, None))
        seen[recorded or ""] += 1
        number = f"#{seen[recorded or '']}" if seen[recorded or ""] > 1 else ""
        shapes, difference = known.get(reference.uid, (recorded, number))
        text = f"{code(shortened(shapes or reference.name, _SHAPES_LENGTH))} {escape(difference)}"
        texts[reference.uid] = f"{text.rstrip()} · {counted(reference.operation_count, 'call')}"
    return texts
