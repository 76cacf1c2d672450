"""Metrics and summary at the top of the Compare page."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import polars as pl
import streamlit as st

from jarvis.comparison import SLOWER, Comparison, MatchedBy, Role
from jarvis.comparison.aggregates import STEP_TIME
from jarvis.dashboard.pages.compare.sides import Sides
from jarvis.dashboard.widgets.elements import metric_card
from jarvis.impact import share_pct
from jarvis.perf_report.timeline.step_account import LABELS
from jarvis.schemas.names import C
from jarvis.text.format import MISSING, count, counted, milliseconds, percent
from jarvis.text.markdown import escape, prose

MIN_SAME_PCT = 50.0
"""Below this share of the target's time in identical calls, the page warns of different work."""

SAME_PCT = 1.0
"""A change of less than this share of the reference's step time is named about equal."""

_BETTER, _WORSE = "better", "worse"
_COLORS: Mapping[str, Literal["green", "red"]] = {_BETTER: "green", _WORSE: "red"}
_ICONS = {_BETTER: ":material/trending_down:", _WORSE: ":material/trending_up:"}
_PARTS = {
    "busy": ("GPU busy", "Time in which any kernel, copy or fill runs."),
    "comm": ("Exposed comm.", "Communication time without concurrent compute."),
    "idle": ("Idle", "Time in which no GPU event runs."),
}


def matched_pct(comparison: Comparison) -> float:
    """Return the share of the target's operation time that has a counterpart, in percent."""
    return _share_pct(comparison, comparison.operations)


def same_calls_pct(comparison: Comparison) -> float:
    """Return the share in calls of the same operators, shapes and dtypes, in percent."""
    same = pl.col(C.matched_by) == MatchedBy.ARGUMENTS.value
    return _share_pct(comparison, comparison.operations.filter(same))


def _share_pct(comparison: Comparison, part: pl.DataFrame) -> float:
    return share_pct(float(part[C.target_ms].sum()), _operations_ms(comparison))


def _operations_ms(comparison: Comparison) -> float:
    """Return the time of all operations of the target in ms."""
    return float(comparison.operations[C.target_ms].sum()) + float(
        comparison.only_in_target[C.time_ms].sum()
    )


def warnings(sides: Sides, comparison: Comparison) -> None:
    """Draw warnings about comparing these two analyses."""
    if sides.are_one:
        st.info(
            "Both sides are the same analysis, so there are no differences. Choose another "
            "reference above.",
            icon=":material/info:",
        )
        return
    if sides.target.run.manifest.trace.sha256 == sides.reference.run.manifest.trace.sha256:
        st.info(
            "Both sides are analyses of the same trace, so all measured times are equal. Only "
            "peaks, and what follows from them, can differ.",
            icon=":material/info:",
        )
    _workload(comparison)
    share = same_calls_pct(comparison)
    if comparison.is_like_for_like and _operations_ms(comparison) and share < MIN_SAME_PCT:
        st.warning(
            f"Only {percent(share)} of the target's operation time is in calls that the reference "
            "also makes with the same arguments: the traces may differ in model, shapes, settings "
            "or operator fusion.",
            icon=":material/warning:",
        )


def _workload(comparison: Comparison) -> None:
    """Draw what the sides do differently, before any change in percent."""
    if comparison.workload:
        first, *others = map(prose, comparison.workload)
        lines = "".join(f"\n- {text}" for text in others)
        st.warning(f"**{first}**\n{lines}", icon=":material/difference:")
    for text in (*comparison.base, *comparison.equal_load):
        st.info(prose(text), icon=":material/info:")


@dataclass(frozen=True, slots=True)
class Time:
    """A time on both sides in ms, and the reference's whole time of which it is a part."""

    target_ms: float
    reference_ms: float
    whole_ms: float

    @property
    def change_ms(self) -> float:
        return self.target_ms - self.reference_ms

    @property
    def is_about_equal(self) -> bool:
        return abs(share_pct(self.change_ms, self.whole_ms)) < SAME_PCT


def key_metrics(comparison: Comparison) -> None:
    """Draw step time, busy, exposed communication and idle time of both sides with the change;
    below, unexplained time, matched share and the categories with most change."""
    name, times = _times(comparison)
    step, *places = st.columns(len(_PARTS) + 1)
    with step:
        _time_card(
            name,
            times.get("step"),
            f"{name} of the target; below, its change against the reference.",
            has_efficiency=comparison.is_like_for_like,
        )
    for place, (part, (label, meaning)) in zip(places, _PARTS.items(), strict=True):
        with place:
            has_efficiency = part != "busy" and comparison.is_like_for_like
            _time_card(label, times.get(part), meaning, has_efficiency=has_efficiency)
    if comparison.operations.is_empty() and comparison.unmatched.is_empty():
        return
    unexplained, matched, categories = st.columns([1, 1, 2])
    with unexplained:
        _unexplained(comparison)
    with matched:
        _matched(comparison)
    with categories:
        _most_changed(comparison)


def _times(comparison: Comparison) -> tuple[str, dict[str, Time]]:
    """Return the name of the whole time, and the times of its parts on both sides.

    Without steps of both sides, those of the GPU window; none if that is not known either.
    """
    if comparison.steps.is_empty():
        rows = {row[C.type]: row for row in comparison.totals.iter_rows(named=True)}
        parts = {
            "step": ["total_time"],
            "busy": ["busy_time"],
            "comm": ["exposed_comm_time"],
            "idle": ["idle_time"],
        }
        name = "GPU window"
    else:
        rows = {row[C.type]: row for row in comparison.steps.iter_rows(named=True)}
        idle = [part for part in rows if part.startswith("idle")]
        busy = [part for part in rows if part not in (*idle, STEP_TIME)]
        parts = {"step": [STEP_TIME], "busy": busy, "comm": [LABELS[C.exposed_comm_ns]]}
        parts |= {"idle": idle}
        name = "Step time" if comparison.has_steps else "Recording"
    if any(part not in rows for named in parts.values() for part in named):
        return name, {}
    whole_ms = rows[parts["step"][0]][C.reference_ms]
    sums = {
        key: {role: sum(rows[part][f"{role.value}_ms"] for part in named) for role in Role}
        for key, named in parts.items()
    }
    return name, {
        key: Time(both[Role.TARGET], both[Role.REFERENCE], whole_ms) for key, both in sums.items()
    }


def _time_card(label: str, time: Time | None, meaning: str, *, has_efficiency: bool) -> None:
    """Draw a card with the time of the target, that of the reference, and the change in words."""
    if time is None:
        metric_card(label, MISSING, "unknown", help_text=f"{meaning} Not available on both sides.")
        return
    word = _word(time) if has_efficiency else None
    with st.container(border=True, height="stretch", gap="small"):
        st.metric(
            label,
            milliseconds(time.target_ms),
            change(time),
            delta_color=_COLORS.get(word or "", "off"),
            delta_arrow="off",
            help=meaning + _RULE,
        )
        badge = "" if word is None else f" {_badge(word)}"
        st.markdown(f"reference {milliseconds(time.reference_ms)}{badge}")


_RULE = (
    f" Better and worse: the change is at least {SAME_PCT:g}% of the reference's whole time, and "
    "no difference of the workload is recorded."
)


_MIN_RATIO = 10
"""A larger increase is a ratio, as thousands of percent are hard to read."""


def change(time: Time) -> str:
    """Return the change in ms and percent with its direction."""
    if time.change_ms == 0:
        return "no difference"
    direction = "more" if time.change_ms > 0 else "less"
    if not time.reference_ms:
        return f"{milliseconds(time.change_ms)} {direction}"
    ratio = time.target_ms / time.reference_ms
    if ratio >= _MIN_RATIO:
        return f"{milliseconds(time.change_ms)} more ({ratio:,.3g} times)"
    changed_pct = abs(100 * time.change_ms / time.reference_ms)
    return f"{milliseconds(abs(time.change_ms))} ({percent(changed_pct)}) {direction}"


def _word(time: Time) -> str | None:
    if time.change_ms == 0:
        return None
    if time.is_about_equal:
        return "about equal"
    return _WORSE if time.change_ms > 0 else _BETTER


def _unexplained(comparison: Comparison) -> None:
    rows = comparison.operations
    known = int(rows[C.is_unexpected].count())
    slower = rows.filter(pl.col(C.outcome).is_in(SLOWER)).height
    unexplained = float(rows[C.unexplained_ms].sum())
    metric_card(
        "Not explained",
        milliseconds(unexplained) if known else MISSING,
        f"{count(slower)} of {counted(known, 'comparable operation')}"
        if known
        else "nothing expected",
        help_text="Time beyond the attainable time of operations that are slower than the two "
        "GPUs' bandwidths or compute peaks explain. Below: their number; "
        f"{count(rows.height - known)} more are too short or have no expected ratio.",
    )


def _matched(comparison: Comparison) -> None:
    alone = float(comparison.only_in_target[C.time_ms].sum())
    metric_card(
        "Matched",
        percent(matched_pct(comparison)),
        f"{milliseconds(alone)} unmatched" if alone else "all matched",
        help_text="Share of the target's operation time that has a counterpart on the reference. "
        "Below: the time without one.",
    )


def _most_changed(comparison: Comparison) -> None:
    """Draw the categories with most change."""
    if (sentence := what_dominates(comparison)) is not None:
        with st.container(border=True, height="stretch"):
            st.markdown(f"**Categories{of_steps(comparison)}**\n\n{sentence}")


def of_steps(comparison: Comparison) -> str:
    """Return how many steps the times of categories and operations are of, for a title; "" if they
    are of one step, or the steps are not marked."""
    steps = None if comparison.is_per_step else comparison.target.steps
    return f", sum of {steps} steps" if steps is not None and steps > 1 else ""


def what_dominates(comparison: Comparison) -> str | None:
    """Return which categories take more and less time on the target, as a sentence; None without
    categories."""
    rows = comparison.categories
    if rows.is_empty():
        return None
    more = rows.filter(pl.col(C.difference_ms) > 0).sort(C.difference_ms, descending=True)
    less = rows.filter(pl.col(C.difference_ms) < 0).sort(C.difference_ms)
    if more.is_empty() and less.is_empty():
        return "Every category takes the same time on both sides."
    sentences = [
        f"{counted(part.height, 'category')} {'takes' if part.height == 1 else 'take'} "
        f"{milliseconds(abs(float(part[C.difference_ms].sum())))} {word} on the target"
        f"{', most of it in ' if part.height > 1 else ': '}{_first(part)}"
        for part, word in ((more, "more"), (less, "less"))
        if not part.is_empty()
    ]
    return "; ".join(sentences) + "."


def _first(part: pl.DataFrame) -> str:
    title, difference = part.select(C.title, C.difference_ms).row(0)
    return escape(title) + (f" ({milliseconds(abs(difference))})" if part.height > 1 else "")


def limits(comparison: Comparison) -> None:
    """Draw what cannot be compared, and why."""
    if comparison.unknown:
        lines = "".join(f"\n- {prose(text)}" for text in comparison.unknown)
        st.info(f"**Not compared, or only in part**\n{lines}", icon=":material/help:")


def verdict(comparison: Comparison) -> None:
    """Draw the step times of both sides with the change, as the first sentence of the page."""
    _, times = _times(comparison)
    word = _word(times["step"]) if times and comparison.is_like_for_like else None
    sentence = " ".join(map(prose, comparison.step_times or comparison.window))
    if not sentence:
        return
    badge = "" if word is None else f" {_badge(word)}"
    st.markdown(f"**{sentence}**{badge}")


def _badge(word: str) -> str:
    """Return the word as a badge with icon and color."""
    icon = _ICONS.get(word, ":material/trending_flat:")
    return f":{_COLORS.get(word, 'gray')}-badge[{icon} {word}]"


def in_sentences(comparison: Comparison) -> None:
    """Draw an expander with the summary."""
    if comparison.summary:
        with st.expander("Summary", icon=":material/notes:"):
            st.markdown("\n".join(f"- {prose(text)}" for text in comparison.summary))
