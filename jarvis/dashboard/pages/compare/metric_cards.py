"""The head of the Compare page: key figures of both sides, and the comparison in sentences."""

import polars as pl
import streamlit as st

from jarvis.comparison import SLOWER, Comparison, MatchedBy, Role
from jarvis.dashboard.pages.compare.sides import Sides
from jarvis.dashboard.widgets.elements import figure
from jarvis.impact import share_pct
from jarvis.text.format import MIN_MS, MISSING, count, counted, decimal, milliseconds, percent
from jarvis.text.markdown import escape, prose

MIN_SAME_PCT = 50.0
"""Where less of the target's time is in the same calls, the traces may not record the same work."""

_PARTS = {
    "total_time": ("GPU time", "From the first GPU start to the last GPU end."),
    "computation_time": ("Compute", "Time in which compute runs."),
    "exposed_comm_time": ("Exposed comm.", "Communication during which no compute runs."),
    "exposed_memcpy_time": ("Exposed copies", "Copies during which no compute runs."),
    "idle_time": ("Idle", "Time in which the GPU does nothing."),
}
_RATIO_MEANS = "The figure is the target's time / the reference's; above 1 the target takes longer."


def matched_pct(found: Comparison) -> float:
    """The share of the time of the target's operations that has a counterpart."""
    return _share_pct(found, found.operations)


def same_calls_pct(found: Comparison) -> float:
    """The share in calls of the same operators with the same shapes and dtypes."""
    same = pl.col("matched_by") == MatchedBy.ARGUMENTS.value
    return _share_pct(found, found.operations.filter(same))


def _share_pct(found: Comparison, part: pl.DataFrame) -> float:
    return share_pct(float(part["target_ms"].sum()), _operations_ms(found))


def _operations_ms(found: Comparison) -> float:
    """The time of all operations of the target."""
    return float(found.operations["target_ms"].sum()) + float(found.only_in_target["time_ms"].sum())


def warnings(sides: Sides, found: Comparison) -> None:
    """What speaks against comparing these two, and what cannot be compared."""
    if sides.are_one:
        st.info(
            "The same analysis stands on both sides, so there are no differences. Choose another "
            "reference above.",
            icon=":material/info:",
        )
        return
    target, reference = (o.run.manifest.model_name for o in (sides.target, sides.reference))
    if target and reference and target != reference:
        st.warning(
            f"The two sides name different models: {escape(target)} is the target, "
            f"{escape(reference)} the reference.",
            icon=":material/warning:",
        )
    share = same_calls_pct(found)
    if _operations_ms(found) and share < MIN_SAME_PCT:
        st.warning(
            f"Only {percent(share)} of the time of the target's operations is in calls that the "
            "reference makes with the same arguments: the traces may record different models, "
            "shapes or settings, or fuse their operators in another way.",
            icon=":material/warning:",
        )
    for text in found.unknown:
        st.info(prose(text), icon=":material/help:")


def key_figures(found: Comparison) -> None:
    """Ratios of the parts of the GPU timeline, what is not explained, and what is matched."""
    times = {row["type"]: row for row in found.totals.iter_rows(named=True)}
    communicates = any(times.get("exposed_comm_time", {}).get(f"{role.value}_ms") for role in Role)
    outside = "exposed_comm_time" if communicates else "exposed_memcpy_time"
    parts = ("total_time", "computation_time", outside, "idle_time")
    places = st.columns(len(parts) + 2)
    for place, part in zip(places, parts, strict=False):
        with place:
            _ratio_card(times.get(part), *_PARTS[part])
    with places[-2]:
        _unexplained(found)
    with places[-1]:
        _matched(found)


def _ratio_card(row: dict[str, float] | None, label: str, meaning: str) -> None:
    if row is None:
        figure(label, MISSING, "not known", help_text=f"{meaning} A side does not tell it.")
        return
    target, reference = row["target_ms"], row["reference_ms"]
    figure(
        label,
        f"{decimal(target / reference)}x" if reference else MISSING,
        _both(target, reference),
        help_text=f"{meaning} {_RATIO_MEANS} Below, the times: the target's, then the reference's.",
    )


def _both(target_ms: float, reference_ms: float) -> str:
    """Both times in the unit of the longer one: ``33.1 vs 34.9 ms``."""
    unit, scale = ("ms", 1) if max(target_ms, reference_ms) >= MIN_MS else ("µs", 1000)
    return f"{decimal(target_ms * scale)} vs {decimal(reference_ms * scale)} {unit}"


def _unexplained(found: Comparison) -> None:
    rows = found.operations
    judged = int(rows["is_unexpected"].count())
    slower = rows.filter(pl.col("outcome").is_in(SLOWER)).height
    unexplained = float(rows["unexplained_ms"].sum())
    figure(
        "Not explained",
        milliseconds(unexplained) if judged else MISSING,
        f"{count(slower)} of {count(judged)} judged" if judged else "nothing expected",
        help_text="Time of operations that are slower than bandwidths or compute peaks of the two "
        "GPUs explain, beyond the attainable time. Below, how many of the judged operations these "
        f"are; {count(rows.height - judged)} more are too short to judge, or nothing is expected.",
    )


def _matched(found: Comparison) -> None:
    alone = float(found.only_in_target["time_ms"].sum())
    figure(
        "Matched",
        percent(matched_pct(found)),
        f"{milliseconds(alone)} without" if alone else "nothing without",
        help_text="Share of the time of the target's operations that has a counterpart on the "
        "reference. Below, the time of those that have none.",
    )


def what_dominates(found: Comparison) -> str:
    """Which categories make the difference, and what of it the hardware does not explain."""
    rows = found.categories
    more = rows.filter(pl.col("difference_ms") > 0).sort("difference_ms", descending=True)
    less = rows.filter(pl.col("difference_ms") < 0).sort("difference_ms")
    sums = [milliseconds(abs(float(part["difference_ms"].sum()))) for part in (more, less)]
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
    title, difference = part.select("title", "difference_ms").row(0)
    return f"{escape(title)} ({milliseconds(abs(difference))})"


def in_sentences(found: Comparison) -> None:
    """What dominates, and the whole comparison in words."""
    st.markdown(f"**{what_dominates(found)}**")
    with st.expander("Summary in sentences", icon=":material/notes:"):
        st.markdown("\n".join(f"- {prose(text)}" for text in found.summary))
