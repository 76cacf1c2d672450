"""What the findings of a report save together, as text."""

from jarvis.impact import share_pct
from jarvis.perf_report import Totals
from jarvis.reports.details import Details, joined_labels
from jarvis.run import Run
from jarvis.savings import (
    Added,
    added_savings,
    disjoint_findings,
    per_step,
    step_count,
    together_ms,
    whole_ms,
    whole_name,
)
from jarvis.text.format import MISSING, milliseconds, percent

MORE_TOGETHER_PCT = 5.0
"""Minimum difference, in percent of the steps, between what a finding adds to those before it and
what it saves alone, to be stated."""


def floor_line(run: Run) -> str | None:
    """Return what a step gains if no compute kernel takes time; None if that is not known."""
    totals, simulation = run.manifest.totals, run.simulation_if_any
    if simulation is None:
        return None
    saved_ms, whole = simulation.compute_saved_ms / step_count(totals), whole_name(totals)
    if milliseconds(saved_ms) == milliseconds(0):
        return f"Shorter kernels alone save nothing of {whole}: the host sets its pace."
    share = percent(share_pct(saved_ms, whole_ms(totals)))
    return (
        f"Shorter kernels alone can save at most {milliseconds(saved_ms)} ({share}) of {whole}, "
        "even if they took no time; fewer launches can save more."
    )


def together(details: list[Details], run: Run) -> str | None:
    """Return what the findings save together, and how it is calculated."""
    totals, simulation = run.manifest.totals, run.simulation_if_any
    findings = [detail.finding for detail in details]
    if simulation is not None:
        added = added_savings(findings, totals, simulation)
        lines = _replayed_saving(details, added, totals), floor_line(run)
        return " ".join(filter(None, lines)) or None
    chosen = disjoint_findings(findings)
    if not chosen:
        return None
    labels = [d.recommendation.label for d in details if d.finding in chosen]
    total = milliseconds(together_ms(findings, totals))
    return (
        f"Sum, {total} of {whole_name(totals)}: {', '.join(labels)}. The others would save "
        "time that one of these already saves, or an unknown time."
    )


def _replayed_saving(details: list[Details], added: list[Added], totals: Totals) -> str | None:
    if not added:
        return None
    labels = {id(detail.finding): detail.recommendation.label for detail in details}
    parts, more = [], []
    for each in added:
        names = joined_labels([labels[id(finding)] for finding in each.findings])
        parts.append(f"{names} {milliseconds(each.saved_ms)}")
        gain = each.findings[0].impact
        alone_ms = per_step(gain, totals).gain_ms if gain else 0.0
        room_ms = each.saved_ms - alone_ms
        if len(each.findings) == 1 and room_ms >= MORE_TOGETHER_PCT / 100 * whole_ms(totals):
            alone = milliseconds(alone_ms) if gain else MISSING
            more.append(f" {names} alone saves {alone}; the changes before it enable the rest.")
    total = milliseconds(sum(each.saved_ms for each in added))
    return (
        f"Together, {total} of {whole_name(totals)}, each by a replay with its changes and those "
        f"before it: {', '.join(parts)}.{''.join(more)} The others add nothing to these, or an "
        f"unknown time.{_intervals(details)}"
    )


def _intervals(details: list[Details]) -> str:
    gains = ((each.recommendation.label, each.finding.impact) for each in details)
    labels = [label for label, gain in gains if gain is not None and gain.is_interval]
    if not labels:
        return ""
    verbs = ("depends", "is") if len(labels) == 1 else ("depend", "are")
    return f" {joined_labels(labels)} {verbs[0]} on the other ranks and {verbs[1]} not included."
