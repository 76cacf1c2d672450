"""Metrics and summary at the top of the Compare page."""

import polars as pl
import streamlit as st

from jarvis.comparison import SLOWER, Comparison, MatchedBy, Role
from jarvis.dashboard.pages.compare.sides import Sides
from jarvis.dashboard.widgets.elements import metric_card
from jarvis.impact import share_pct
from jarvis.schemas.names import C
from jarvis.text.format import MIN_MS, MISSING, count, counted, decimal, milliseconds, percent
from jarvis.text.markdown import escape, prose

MIN_SAME_PCT = 50.0
"""Below this share of the target's time in identical calls, the page warns of different work."""

_PARTS = {
    "total_time": ("GPU window", "From the first GPU start to the last GPU end."),
    "computation_time": ("Compute", "Time in which compute runs."),
    "exposed_comm_time": ("Exposed comm.", "Communication time without concurrent compute."),
    "exposed_memcpy_time": ("Exposed copies", "Copy time without concurrent compute."),
    "idle_time": ("Idle", "Time in which no GPU event runs."),
}
_RATIO_MEANS = "Value: target time / reference time; above 1 the target takes longer."


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
    """Draw warnings about comparing these two analyses, and what cannot be compared."""
    if sides.are_one:
        st.info(
            "Both sides are the same analysis, so there are no differences. Choose another "
            "reference above.",
            icon=":material/info:",
        )
        return
    target, reference = (o.run.manifest.model_name for o in (sides.target, sides.reference))
    if target and reference and target != reference:
        st.warning(
            f"The model names differ: target {escape(target)}, reference {escape(reference)}.",
            icon=":material/warning:",
        )
    share = same_calls_pct(comparison)
    if _operations_ms(comparison) and share < MIN_SAME_PCT:
        st.warning(
            f"Only {percent(share)} of the target's operation time is in calls that the reference "
            "also makes with the same arguments: the traces may differ in model, shapes, settings "
            "or operator fusion.",
            icon=":material/warning:",
        )
    for text in comparison.unknown:
        st.info(prose(text), icon=":material/help:")


def key_metrics(comparison: Comparison) -> None:
    """Draw time ratios of the parts of the GPU timeline, unexplained time and matched share."""
    times = {row[C.type]: row for row in comparison.totals.iter_rows(named=True)}
    communicates = any(times.get("exposed_comm_time", {}).get(f"{role.value}_ms") for role in Role)
    outside = "exposed_comm_time" if communicates else "exposed_memcpy_time"
    parts = ("total_time", "computation_time", outside, "idle_time")
    places = st.columns(len(parts) + 2)
    for place, part in zip(places, parts, strict=False):
        with place:
            _ratio_card(times.get(part), *_PARTS[part])
    with places[-2]:
        _unexplained(comparison)
    with places[-1]:
        _matched(comparison)


def _ratio_card(row: dict[str, float] | None, label: str, meaning: str) -> None:
    if row is None:
        metric_card(label, MISSING, "unknown", help_text=f"{meaning} Not available on both sides.")
        return
    target, reference = row[C.target_ms], row[C.reference_ms]
    metric_card(
        label,
        f"{decimal(target / reference)}x" if reference else MISSING,
        _both(target, reference),
        help_text=f"{meaning} {_RATIO_MEANS} Below: target time vs reference time.",
    )


def _both(target_ms: float, reference_ms: float) -> str:
    """Return both times in the unit of the longer one: ``33.1 vs 34.9 ms``."""
    unit, scale = ("ms", 1) if max(target_ms, reference_ms) >= MIN_MS else ("µs", 1000)
    return f"{decimal(target_ms * scale)} vs {decimal(reference_ms * scale)} {unit}"


def _unexplained(comparison: Comparison) -> None:
    rows = comparison.operations
    judged = int(rows[C.is_unexpected].count())
    slower = rows.filter(pl.col(C.outcome).is_in(SLOWER)).height
    unexplained = float(rows[C.unexplained_ms].sum())
    metric_card(
        "Not explained",
        milliseconds(unexplained) if judged else MISSING,
        f"{count(slower)} of {count(judged)} compared" if judged else "nothing expected",
        help_text="Time beyond the attainable time of operations that are slower than the two "
        "GPUs' bandwidths or compute peaks explain. Below: their number; "
        f"{count(rows.height - judged)} more are too short or have no expected ratio.",
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


def what_dominates(comparison: Comparison) -> str:
    """Return which categories take more and less time on the target, as a sentence."""
    rows = comparison.categories
    more = rows.filter(pl.col(C.difference_ms) > 0).sort(C.difference_ms, descending=True)
    less = rows.filter(pl.col(C.difference_ms) < 0).sort(C.difference_ms)
    sums = [milliseconds(abs(float(part[C.difference_ms].sum()))) for part in (more, less)]
    if more.is_empty() and less.is_empty():
        return "Every category takes the same time on both sides."
    sentences = [
        f"{counted(part.height, 'category')} {'takes' if part.height == 1 else 'take'} {amount} "
        f"{word} on the target, most of it in {_first(part)}"
        for part, amount, word in ((more, sums[0], "more"), (less, sums[1], "less"))
        if not part.is_empty()
    ]
    return "; ".join(sentences) + "."


def _first(part: pl.DataFrame) -> str:
    title, difference = part.select(C.title, C.difference_ms).row(0)
    return f"{escape(title)} ({milliseconds(abs(difference))})"


def in_sentences(comparison: Comparison) -> None:
    """Draw the main differences, and an expander with the summary of the comparison."""
    times = " ".join(map(prose, comparison.step_times))
    st.markdown(f"**{times or what_dominates(comparison)}**")
    if times:
        st.markdown(what_dominates(comparison))
    with st.expander("Summary", icon=":material/notes:"):
        st.markdown("\n".join(f"- {prose(text)}" for text in comparison.summary))
