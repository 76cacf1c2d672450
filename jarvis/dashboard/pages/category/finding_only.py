"""The page of a category without operations of its own whose findings concern others."""

from collections.abc import Mapping

import polars as pl
import streamlit as st

from jarvis.analyses.base import Analysis
from jarvis.analyses.operations import arguments
from jarvis.charts import bars, columns_of
from jarvis.dashboard.pages.call_tree.choice import places_link
from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.state import Opened, palette
from jarvis.dashboard.widgets.elements import metric_card, render_chart
from jarvis.dashboard.widgets.finding_cards import finding_parameter
from jarvis.findings import Finding, Impact
from jarvis.impact import share_pct
from jarvis.perf_report import Totals
from jarvis.run import Run
from jarvis.savings import per_step
from jarvis.schemas import TABLES
from jarvis.schemas.names import C
from jarvis.text.format import count, milliseconds, percent
from jarvis.text.markdown import prose
from jarvis.text.shapes import compact_shapes
from jarvis.text.short_names import short_operation_name

STEPS = "attention_steps"
"""The table with the members of groups that a fused operator can replace."""

CHAIN_STEPS = "fusion_steps"
"""The table with the operators of chains that one kernel can replace."""

UNFUSED = "unfused_attention"
"""The check whose findings propose a fused operator."""

FUSION = "kernel_fusion"
"""The analysis of chains, and its page."""


def findings_without_rows(
    analysis: Analysis, now: Opened, findings: tuple[Finding, ...], target_pct: float
) -> None:
    """Draw figures and members of each finding that concerns operations of other categories."""
    are = "finding is" if len(findings) == 1 else "findings are"
    st.markdown(
        "The work of this category runs as operators of other categories. "
        f"{count(len(findings))} {are} about it."
    )
    for number, finding in enumerate(findings):
        members = members_of(now.run, finding)
        if finding.impact is None or members.is_empty():
            continue
        with st.container(border=True):
            st.markdown(f"**{prose(finding.title)}**")
            after = "Fused," if finding.check == UNFUSED else "Projected"
            _figures(after, finding.impact, now.run.manifest.totals, target_pct)
            _bars(members, f"{analysis.key}_members_{number}")
            heaviest = members.sort(C.kernel_time_us, descending=True, maintain_order=True)
            places_link(now.run, heaviest[C.operation_uid][0])


def fusion_findings(analysis: Analysis, now: Opened, found: Mapping[int, Finding]) -> None:
    """Draw the findings on kernel fusion, by position, that concern a category without operations,
    each with a link to its card."""
    target_pct = now.run.targets.of_category(FUSION)
    findings_without_rows(analysis, now, tuple(found.values()), target_pct)
    fusion_links(now, found)


def fusion_links(now: Opened, found: Mapping[int, Finding]) -> None:
    """Draw a link to the card of each finding on kernel fusion, by position."""
    for place, finding in found.items():
        label = f"{now.run.results[FUSION].title}: {prose(finding.title)}"
        parameters = {finding_parameter(FUSION): str(place + 1)}
        navigation.link(FUSION, label, icon=":material/arrow_forward:", **parameters)


def members_of(run: Run, finding: Finding) -> pl.DataFrame:
    """Return operation, name, arguments and kernel time of the operations of a finding.

    Those of a group have only the time of its calls. Those of a chain are in its order.
    """
    names = (C.operation_uid, C.name, C.input_dims, C.input_types, C.kernel_time_us)
    groups = []
    if STEPS in run.tables:
        steps = run.table(STEPS).partition_by(C.group, maintain_order=True)
        groups = [own for own in steps if set(own[C.operation_uid]) == finding.row_uids]
    if groups and finding.impact is not None:
        time_us = finding.impact.time_ms * 1000
        return min(groups, key=lambda own: abs(float(own[C.kernel_time_us].sum()) - time_us))[names]
    rows = run.table("operations").filter(pl.col(C.uid).is_in(sorted(finding.row_uids)))
    rows = rows.rename({C.uid: C.operation_uid})
    if CHAIN_STEPS in run.tables:
        places = run.table(CHAIN_STEPS).group_by(C.chain, C.operation_uid).agg(pl.min(C.position))
        chains = places.partition_by(C.chain, maintain_order=True)
        own = next(
            (each for each in chains if set(each[C.operation_uid]) == finding.row_uids), None
        )
        if own is not None:
            rows = rows.join(own, on=C.operation_uid).sort(C.position, C.operation_uid)
    return rows[names]


def _figures(after: str, gain: Impact, totals: Totals, target_pct: float) -> None:
    saved = gain.saved_ms
    least, most = (milliseconds(gain.time_ms - end) for end in (saved.high, saved.low))
    with st.container(horizontal=True):
        metric_card(
            "Kernel time",
            milliseconds(gain.time_ms),
            f"{percent(share_pct(gain.time_ms, totals.compute_time_ms))} of compute",
            help_text="GPU busy time of these operations, and its share of compute time.",
        )
        metric_card(
            f"{after} at {target_pct:g}%",
            milliseconds(gain.time_ms - saved.mid),
            f"{least} to {most}",
            help_text="Kernel time after the change that the finding proposes, at the target.",
        )
        metric_card(
            "Kernel time saved",
            milliseconds(saved.mid),
            f"{percent(gain.e2e_pct.mid)} of the GPU window",
            help_text=f"Kernel time minus the projected time ({gain.method}).",
        )
        metric_card(
            "Step time saved",
            milliseconds(per_step(gain, totals).gain_ms) if gain.step_ms else "not known",
            f"{percent(gain.gain_pct)} of the step" if gain.step_ms else None,
            help_text="Time by which the step gets shorter.",
        )


def _bars(members: pl.DataFrame, key: str) -> None:
    texts = [
        _label(place, *row)
        for place, row in enumerate(
            members.select(C.name, C.input_dims, C.input_types).iter_rows(), start=1
        )
    ]
    named = members.with_columns(pl.Series(C.name, texts, pl.String))
    columns = columns_of(TABLES["operations"])
    drawing = bars(named, columns, palette(), x=C.kernel_time_us, y=C.name)
    render_chart(drawing, "Kernel time of the member operations", key=key)


def _label(place: int, name: str, dims: str | None, types: str | None) -> str:
    shapes = compact_shapes(arguments(dims, types)) or ""
    return f"{place}. {short_operation_name(name)} {shapes}".strip()
