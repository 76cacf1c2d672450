"""Metrics and tables of the kernel fusion page: chains and their operators."""

from collections.abc import Mapping
from typing import Any

import polars as pl
import streamlit as st

from jarvis import charts
from jarvis.analyses.base import Analysis
from jarvis.analyses.chains import MIN_SHARE_PCT, MIN_TIME_MS
from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.state import Opened
from jarvis.dashboard.widgets.elements import metric_card
from jarvis.dashboard.widgets.table import small_table, with_short_texts
from jarvis.findings import AnalysisResult
from jarvis.impact import MOSTLY_PCT, share_pct
from jarvis.run import Run
from jarvis.savings import over_steps, step_count, together_ms, whole_ms, whole_name
from jarvis.schemas import NUMBER, TABLES, TEXT, Column
from jarvis.schemas.names import C
from jarvis.text.format import count, counted, milliseconds, percent
from jarvis.text.short_names import LAUNCHED, short_kernel_name, short_operation_name

_MAX_STEP_TABLES = 5
"""Maximum number of chains whose operations are listed."""

_ENDS_SHOWN = 2
"""Operators named at each end of a long chain."""

_THRESHOLD = (
    f"its maximum saving is at least {MIN_SHARE_PCT:g}% of compute and {MIN_TIME_MS:g} ms, or its "
    "time where no saving is known"
)
_ESTIMATE = (
    Column(C.time_ms, "GPU time (ms)", NUMBER, "ms", meaning="kernel time of a step"),
    Column(
        "left_ms",
        "Fused (ms)",
        NUMBER,
        "ms",
        meaning="shortest time of the fused kernels of a step; empty if a matrix product does the "
        "work of the chain: how much longer the product then takes is not known",
    ),
    Column(
        "saved_ms",
        "Saves up to (ms)",
        NUMBER,
        "ms",
        meaning="upper bound of a step: GPU time less fused time",
    ),
    Column("confidence", "Confidence", TEXT, meaning="confidence that one kernel can do it all"),
    Column("verdict", "Finding", TEXT, meaning=f"whether it has a finding: {_THRESHOLD}"),
)
_STEP_COLUMNS = (C.position, C.name, C.kernel_time_us, C.calls, C.input_dims, C.bytes, C.kernel)
_STEPS = Column(
    "steps",
    "Operators",
    TEXT,
    meaning="operators of one instance, in order; a matrix product in front could include the "
    "others, and its time is not counted",
)
_SHOWN = (
    *("steps", C.scope_name, C.instance_count),
    *(C.time_ms, "left_ms", "saved_ms", "verdict", "confidence"),
)
_WIDTHS = {
    "steps": 204,
    C.instance_count: 68,
    C.time_ms: 88,
    "left_ms": 72,
    "saved_ms": 98,
    "verdict": 64,
    "confidence": 72,
}
"""Widths in pixels; the frame has the room that they leave."""

_STEP_WIDTHS = {C.position: 48, C.kernel_time_us: 100, C.calls: 52, C.bytes: 80}


def fusion_section(analysis: Analysis, now: Opened, result: AnalysisResult) -> None:
    """Draw metrics, the table of chains, and the operators of the longest ones."""
    found = now.run.table("fusion_chains")
    _without_operators(now.run)
    if found.is_empty():
        st.info("No chain of operators that one kernel could replace was found.")
        return
    candidates: list[Mapping[str, Any]] = result.metrics["candidates"]  # type: ignore[assignment]
    _metric_cards(now, result, candidates)
    totals = now.run.manifest.totals
    steps = step_count(totals)
    names = found.select(C.product_name, C.step_names).iter_rows()
    chains = found.with_columns(
        steps=pl.Series([_listed([product] * bool(product) + own) for product, own in names]),
        **{C.time_ms: pl.Series([c["time_ms"] for c in candidates], dtype=pl.Float64) / steps},
        saved_ms=pl.Series([c["saved_ms_high"] for c in candidates], dtype=pl.Float64) / steps,
        confidence=pl.Series([c["confidence"] for c in candidates]),
        verdict=pl.Series(["yes" if c["is_worth_fusing"] else "too small" for c in candidates]),
    )
    left_ms = pl.when(pl.col(C.product_name).is_null()).then(pl.col(C.time_ms) - pl.col("saved_ms"))
    chains = chains.with_columns(left_ms=left_ms)
    with st.container(border=True):
        first = candidates[0]
        st.markdown(
            f"**{first['phrase']} is the longest chain**: "
            f"{milliseconds(first['time_ms'] / steps)} of {whole_name(totals)}, "
            f"{counted(first['instance_count'], 'instance')} {over_steps(totals)}",
            help="A chain is a sequence of operators that one kernel could replace.",
        )
        columns = charts.columns_of(TABLES["fusion_chains"], (_STEPS, *_ESTIMATE))
        times = (C.time_ms, "left_ms", "saved_ms")
        small_table(
            chains,
            columns,
            "Chains of operators",
            _SHOWN,
            _WIDTHS,
            alike=times,
            fits_texts=True,
        )
    _steps(now, candidates)


def _listed(operators: list[str]) -> str:
    """Return the operators of a chain, with how many are left out in the middle of a long one."""
    names = [short_operation_name(name) for name in operators]
    left_out = len(names) - 2 * _ENDS_SHOWN
    if left_out > 1:
        names[_ENDS_SHOWN:-_ENDS_SHOWN] = [f"{left_out} more"]
    return " → ".join(names)


def _without_operators(run: Run) -> None:
    """Say that chains of kernels without an operator are not found, if these take most time."""
    rows = run.table("operations")
    times = rows.select(
        pl.col(C.kernel_time_us).filter(pl.col(C.name).str.contains(LAUNCHED, literal=True)).sum(),
        every=pl.col(C.kernel_time_us).sum(),
    )
    share = share_pct(*map(float, times.row(0)))
    if share >= MOSTLY_PCT:
        st.info(
            f"{percent(share)} of kernel time is in kernels whose operator is not recorded, such "
            "as those that GPU graphs replay: chains of these are not found here.",
            icon=":material/visibility_off:",
        )
        inference = run.results.get("inference")
        if inference and any(f.evidence.get("fused_pairs") for f in inference.findings):
            label = "Neighboring kernels that some libraries fuse: Inference"
            navigation.link("inference", label, icon=":material/token:")


def _metric_cards(now: Opened, result: AnalysisResult, candidates: list[Mapping[str, Any]]) -> None:
    totals = now.run.manifest.totals
    worth = [c for c in candidates if c["is_worth_fusing"]]
    time_ms = sum(c["time_ms"] for c in worth) / step_count(totals)
    saved_ms = together_ms(result.findings, totals, now.run.simulation_if_any)
    share = percent(share_pct(time_ms * step_count(totals), totals.compute_time_ms))
    cards = st.columns(3)
    with cards[0]:
        metric_card(
            "Chains worth fusing",
            count(len(worth)),
            f"of {count(len(candidates))} found",
            help_text=f"A chain is worth fusing if {_THRESHOLD}.",
        )
    with cards[1]:
        metric_card(
            "GPU time in them",
            milliseconds(time_ms),
            f"{share} of compute",
            help_text=f"GPU time of all instances of these chains in {whole_name(totals)}.",
        )
    with cards[2]:
        if is_estimated := any(finding.impact for finding in result.findings):
            about = f"{percent(share_pct(saved_ms, whole_ms(totals)))} of {whole_name(totals)}"
        else:
            about = (
                "of the chains worth fusing"
                if worth
                else f"no chain can save {MIN_SHARE_PCT:g}% of compute"
            )
        metric_card(
            "Saving by fusion",
            milliseconds(saved_ms) if is_estimated else "not estimated" if worth else "none",
            about,
            help_text="Saving of all findings of this page together. The table has the upper bound "
            "of each chain, too small ones included.",
        )


def _steps(now: Opened, candidates: list[Mapping[str, Any]]) -> None:
    steps = now.run.table("fusion_steps")
    columns = charts.columns_of(TABLES["fusion_steps"])
    worth = [(i, c) for i, c in enumerate(candidates, start=1) if c["is_worth_fusing"]]
    for chain, candidate in worth[:_MAX_STEP_TABLES]:
        phrase = candidate["phrase"]
        with st.expander(f"Operators of {phrase}"):
            rows = with_short_texts(
                steps.filter(pl.col(C.chain) == chain),
                {C.name: short_operation_name, C.kernel: short_kernel_name},
            )
            small_table(
                rows,
                columns,
                f"Operators of {phrase}",
                _STEP_COLUMNS,
                _STEP_WIDTHS,
                fits_texts=True,
            )
