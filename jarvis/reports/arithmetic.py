"""The calculation of each saving and priority, for audits."""

from jarvis import impact
from jarvis.findings import Impact
from jarvis.perf_report import Totals
from jarvis.reports.details import Details
from jarvis.reports.messages import time_range
from jarvis.text.format import milliseconds, percent
from jarvis.text.messages import to_text


def calculation_text(details: Details) -> str:
    """Return the calculation of one finding: the terms of its saving, its shares, and its priority
    rule."""
    finding = details.finding
    gain = finding.impact
    is_system = details.recommendation.result.tier == "system"
    saving = _saving(gain, details.totals, is_system) if gain else to_text(details.saving)
    local = finding.priority_local
    before = "" if finding.priority is local else f" ({local.value} within the analysis)"
    return (
        f"{details.recommendation.label}, {to_text(finding.title)}: {saving} "
        f"{_standing(details)} → {finding.priority.value}{before}."
    )


def _saving(gain: Impact, totals: Totals, is_system: bool) -> str:
    """Return terms and shares of a saving; system-level waits are not part of compute."""
    saved = gain.saved_ms
    parts = [f"saving {_terms(gain)}"]
    wholes = [("GPU wall time", totals.total_time_ms, gain.e2e_pct.mid)]
    if not is_system:
        wholes.insert(0, ("compute", totals.compute_time_ms, gain.compute_pct.mid))
    parts += [
        f"{milliseconds(saved.mid)} / {milliseconds(whole_ms)} {name} = {percent(share)}"
        for name, whole_ms, share in wholes
    ]
    return f"{'; '.join(parts)}; range {to_text(time_range(saved.low, saved.high))}."


def _terms(gain: Impact) -> str:
    mid = milliseconds(gain.saved_ms.mid)
    if gain.method != "perf model" or gain.efficiency_pct is None or gain.target_pct is None:
        return f"{mid} of {milliseconds(gain.time_ms)} ({gain.method})"
    return (
        f"{milliseconds(gain.time_ms)} x (1 - {percent(gain.efficiency_pct)} / "
        f"{percent(gain.target_pct)}) = {mid}"
    )


def _standing(details: Details) -> str:
    """Return the terms of the rule that determined the priority."""
    finding, rows = details.finding, details.rows
    if rows is None:
        grade = finding.severity.value if finding.severity else "none"
        return f"Grade {grade}"
    time_ms = float(rows["kernel_time_us"].sum()) / 1000
    of_compute = percent(impact.share_pct(time_ms, details.totals.compute_time_ms))
    of_category = percent(impact.share_pct(time_ms, details.recommendation.result.gpu_time_ms))
    place = "in" if rows["is_top_operation"].any() else "not in"
    gain = finding.impact
    efficiency = gain.efficiency_pct if gain else None
    judged = "" if efficiency is None else f", efficiency {percent(efficiency)}"
    return (
        f"Its rows are {place} the top operations, take {of_compute} of compute and {of_category} "
        f"of the category{judged}"
    )
