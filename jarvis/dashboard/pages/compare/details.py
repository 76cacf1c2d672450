"""Details of the selected row of the Compare page: expected time and kernels."""

from typing import Any

import polars as pl
import streamlit as st

from jarvis.analyses import load_analyses
from jarvis.charts import columns_of
from jarvis.comparison import Comparison, Role
from jarvis.dashboard.pages.compare.sides import Sides
from jarvis.dashboard.session import links, navigation
from jarvis.dashboard.widgets.table import small_table
from jarvis.impact import marked_efficiency
from jarvis.schemas import TABLES, TEXT, Column
from jarvis.text.format import (
    MISSING,
    count,
    decimal,
    microseconds,
    milliseconds,
)
from jarvis.text.markdown import cell, code, prose, shortened

_NAME_LENGTH = 70
_SIDE_COLUMNS = columns_of(
    (
        Column("what", "Quantity", TEXT, meaning="property of the call"),
        Column("target", "Target", TEXT, meaning="the analysis to improve"),
        Column("reference", "Reference", TEXT, meaning="the analysis that shows what is possible"),
    )
)


def pair_details(sides: Sides, comparison: Comparison, row: dict[str, Any]) -> None:
    """Draw a matched operation: both sides, expected time, kernels, and links to its rows."""
    name = code(shortened(row["name"], _NAME_LENGTH))
    st.subheader(f"{name} is {row['outcome']}" if row["is_unexpected"] else name)
    if row["arguments"]:
        st.caption(f"Arguments: {cell(row['arguments'], 200)}")
    st.markdown(f"{prose(row['explanation'])} {_working(row, comparison.tolerance)}")
    left, right = st.columns([2, 3])
    with left.container(border=True, height="stretch"):
        st.markdown("**Both sides**")
        small_table(_sides(row), _SIDE_COLUMNS, "The call on the target and on the reference")
        _row_links(sides, row)
    with right.container(border=True, height="stretch"):
        st.markdown(_kernels_title(row))
        small_table(
            comparison.lowering.filter(pl.col("pair") == row["pair"]),
            columns_of(TABLES["comparison_lowering"]),
            "Kernels of the operation on either side",
            ("side", "kernel", "us_per_call", "launches_per_call", "percent"),
            {
                "side": 75,
                "kernel": 170,
                "us_per_call": 105,
                "launches_per_call": 105,
                "percent": 75,
            },
        )


def _working(row: dict[str, Any], tolerance: float) -> str:
    """Return the calculation of the outcome as text."""
    low, high = row["expected_ratio_least"], row["expected_ratio_most"]
    if high is None:
        return ""
    reference, target = row["reference_us_per_call"], row["target_us_per_call"]
    ratio = decimal(high) if row["expected_ratio"] else f"{decimal(low)} to {decimal(high)}"
    expected = f"expected {microseconds(reference)} x {ratio} = "
    expected += (
        microseconds(reference * high)
        if row["expected_ratio"]
        else f"{decimal(reference * low)} to {microseconds(reference * high)}"
    )
    text = (
        f"Per call: {expected}, measured {microseconds(target)}, which is "
        f"{decimal(target / (reference * high))} times the "
        f"{'expected time' if row['expected_ratio'] else 'upper limit'}; the tolerance is "
        f"{decimal(tolerance)} times."
    )
    if row["unexplained_ms"]:
        text += (
            f" Not explained: {milliseconds(row['target_ms'])} - "
            f"{milliseconds(row['attainable_ms'])} = {milliseconds(row['unexplained_ms'])}."
        )
    if row["is_roofline_capped"]:
        text += (
            " The target's roofline time is longer than the expected time, so it is the attainable "
            "time."
        )
    return text


def _sides(row: dict[str, Any]) -> pl.DataFrame:
    def of(what: str) -> tuple[Any, Any]:
        own = row.get(f"target_{what}", row.get(what))
        return own, row[f"reference_{what}"]

    lines = {
        "Operation": tuple(name or MISSING for name in of("name")),
        "Time per call": tuple(map(microseconds, of("us_per_call"))),
        "Calls": tuple(map(count, of("calls"))),
        "GPU time": tuple(map(milliseconds, of("ms"))),
        "Bound": tuple(bound or "unknown" for bound in of("bound")),
        "Efficiency": tuple(map(marked_efficiency, of("efficiency_pct"))),
    }
    if row["name"] == row["reference_name"]:
        del lines["Operation"]
    target, reference = zip(*lines.values(), strict=True)
    return pl.DataFrame({"what": list(lines), "target": target, "reference": reference})


def _kernels_title(row: dict[str, Any]) -> str:
    if row["same_kernels"] is None:
        return "**Kernels on either side**"
    if row["same_kernels"]:
        return "**Both sides launch kernels of the same names**"
    return "**The sides launch different kernels**"


def _row_links(sides: Sides, row: dict[str, Any]) -> None:
    """Draw links to the operation's rows on its category page in both analyses."""
    category = row["category"]
    if category not in load_analyses():
        return
    ids = {Role.TARGET: sides.target.id, Role.REFERENCE: sides.reference.id}
    uids = {Role.TARGET: row["uid"], Role.REFERENCE: row["reference_uid"]}
    with st.container(horizontal=True):
        for role, analysis_id in ids.items():
            navigation.link(
                category,
                f"{load_analyses()[category].title} of the {role.value}",
                icon=":material/table_rows:",
                **{links.ANALYSIS: analysis_id, f"{category}_op": str(uids[role])},
            )
