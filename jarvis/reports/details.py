"""One recommendation as text, numbers and tables, shared by all Markdown reports."""

from dataclasses import dataclass
from functools import cached_property
from math import isclose

import polars as pl
import polars.selectors as cs

from jarvis.findings import Finding, Impact, shown_evidence
from jarvis.impact import (
    FULL_PCT,
    Projection,
    efficiency_word,
    projection_table,
    share_pct,
    time_at_target,
)
from jarvis.perf_report import Totals
from jarvis.reports import sections
from jarvis.reports.messages import MESSAGES, time_range
from jarvis.reports.ranking import Recommendation, recommendations
from jarvis.run import Run
from jarvis.savings import per_step, step_count, time_sources, whole_name
from jarvis.schemas.names import C
from jarvis.schemas.rows import RowsByUid
from jarvis.text.format import (
    MISSING,
    NOT_AVAILABLE,
    milliseconds,
    percent,
)
from jarvis.text.markdown import Markdown, cell, prose, table
from jarvis.text.messages import Message, literal
from jarvis.text.quantities import title_of

LITTLE_GAINED = 0.25
"""Part of the GPU time saved that the step gains, below which a saving needs a reason."""

ROW = (
    C.uid,
    C.name,
    C.kernel_time_us,
    C.main_kernel,
    C.is_top_operation,
    C.module_path,
    C.entry_point,
)
"""The columns of a recommendation's rows."""

PROJECTION_COLUMNS = (
    "Target Efficiency",
    "Op Time",
    "Op Improvement",
    "Compute Improvement",
    "GPU Window Improvement",
)


@dataclass(frozen=True)
class Details:
    """A recommendation with the columns ROW of its rows (none outside the compute tier).

    ``target_pct`` is the target of its category. ``operators`` are those of the rows that it shares
    with categories, most time first; ``overlapping`` the other recommendations that would save the
    same time.
    """

    recommendation: Recommendation
    rows: pl.DataFrame | None
    totals: Totals
    target_pct: float
    operators: tuple[str, ...] = ()
    overlapping: tuple[Recommendation, ...] = ()

    @property
    def finding(self) -> Finding:
        """Return the finding."""
        return self.recommendation.finding

    @property
    def operation(self) -> Markdown:
        """Return its subject: operators and calls, or the analysis and its operators."""
        if self.finding.operations:
            return sections.operation_line(self.finding.operations)
        result = self.recommendation.result
        names = sections.listed_operators(cell(name) for name in self.operators)
        analysis = f"{sections.SCOPES[result.tier]} ({prose(result.title)})"
        return Markdown(f"{analysis}: {names}" if names else analysis)

    @property
    def time(self) -> Message:
        """Return the GPU time that it concerns and its share."""
        if self.finding.impact is not None:
            time_ms = self.finding.impact.time_ms
        elif self.rows is not None:
            time_ms = float(self.rows[C.kernel_time_us].sum()) / 1000
        else:
            return literal(NOT_AVAILABLE)
        if self._is_system:
            share, whole = share_pct(time_ms, self.totals.total_time_ms), "GPU window"
        else:
            share, whole = share_pct(time_ms, self.totals.compute_time_ms), "compute"
        return MESSAGES("time", time_ms=time_ms, share_pct=share, whole=whole)

    @property
    def efficiency(self) -> Message:
        """Return the efficiency against the roofline, with its rating."""
        impact = self.finding.impact
        if impact is None or impact.efficiency_pct is None:
            return MESSAGES("efficiency.none")
        value, word = impact.efficiency_pct, efficiency_word(impact.efficiency_pct)
        mark = f" ⚠ {word.partition(':')[0]}" if value > FULL_PCT else None
        return MESSAGES("efficiency", efficiency_pct=value, mark=mark, word=word)

    @property
    def saving(self) -> Message:
        """Return the saving, its basis, and the source of the estimate."""
        impact = self.finding.impact
        if impact is None:
            return MESSAGES("saving.none")
        target_pct, compute_pct = impact.target_pct, impact.compute_pct.mid
        values = {
            "saved_ms": impact.saved_ms.mid,
            "target": MESSAGES("saving.target", target_pct=target_pct) if target_pct else None,
            "range": time_range(impact.saved_ms.low, impact.saved_ms.high),
            "basis": MESSAGES(f"basis.{impact.method}"),
        }
        if impact.step_ms is not None:
            if self.finding.time_pool is not None:
                return _of_steps("saving.step.pool", impact, self.totals)
            gpu_time = MESSAGES.pick("saving.gpu_time", {**values, "over": _over(self.totals)})
            return _of_steps("saving.step", impact, self.totals, gpu_time=gpu_time)
        return MESSAGES(
            "saving",
            **values,
            # System-level waits are not part of compute.
            compute=None
            if self._is_system
            else MESSAGES("saving.compute", compute_pct=compute_pct),
            e2e_pct=impact.e2e_pct.mid,
            unknown=None if self.totals.step is None else MESSAGES("saving.unknown"),
        )

    @cached_property
    def short_saving(self) -> Message:
        """The saving and its share of the steps or of the GPU window."""
        impact = self.finding.impact
        if impact is None:
            return literal(MISSING)
        if impact.step_ms is not None:
            return _of_steps(
                "saving.short.step", impact, self.totals, hidden=_hidden(self.finding, self.totals)
            )
        saved_ms, share = impact.saved_ms.mid, impact.e2e_pct.mid
        return MESSAGES("saving.short", saved_ms=saved_ms, e2e_pct=share)

    @property
    def _is_system(self) -> bool:
        return self.recommendation.result.tier == "system"

    @cached_property
    def evidence(self) -> Markdown:
        """The numbers behind it, without the call site."""
        facts = shown_evidence(self.finding)
        if self.called_from is not None:
            facts.pop("called_from", None)
        return table(
            ("Evidence", "Value"),
            (
                (title_of(name), sections.measured(title_of(name), value))
                for name, value in facts.items()
            ),
        )

    @property
    def called_from(self) -> Markdown | None:
        """Return modules and entry point around the heaviest row's example call."""
        if self.rows is None or self.rows.is_empty():
            return None
        return sections.called_from(self.rows.row(0, named=True))

    @property
    def projection(self) -> Markdown | None:
        """Return the gain at each target.

        None if the saving does not follow from the efficiency alone: without a perf model, or with
        its own limit.
        """
        impact = self.finding.impact
        if impact is None or impact.method != "perf model" or impact.efficiency_pct is None:
            return None
        target = self.target_pct if impact.target_pct is None else impact.target_pct
        at_target_ms = time_at_target(impact.time_ms, impact.efficiency_pct, target)
        if not isclose(impact.time_ms - at_target_ms, impact.saved_ms.mid, rel_tol=1e-6):
            return None
        rows = projection_table(
            impact.time_ms,
            impact.efficiency_pct,
            target,
            compute_ms=self.totals.compute_time_ms,
            total_ms=self.totals.total_time_ms,
        )
        return table(
            PROJECTION_COLUMNS,
            map(_projected, rows),
        )

    @property
    def overlap(self) -> str | None:
        """Return which recommendations concern the same time, so that the savings do not add up."""
        own_sources = time_sources(self.finding)
        by_kind: dict[str, list[str]] = {}
        for other in self.overlapping:
            is_fusion = (
                other.result.tier == "fusion" and self.recommendation.result.tier != "fusion"
            )
            if not is_fusion:
                kind = "shares time with"
            else:
                is_whole = own_sources <= time_sources(other.finding)
                kind = "covered by fusion card" if is_whole else "partly covered by fusion card"
            by_kind.setdefault(kind, []).append(other.label)
        parts = [
            f"{kind}{'s' if kind.endswith('card') and len(labels) > 1 else ''} "
            f"{joined_labels(labels)}"
            for kind, labels in by_kind.items()
        ]
        return f"{'; '.join(parts)}: the savings do not add up." if parts else None


def details_of(run: Run) -> list[Details]:
    """Return every recommendation of a run with its rows, most urgent first."""
    return run.once(_details_of)


def _details_of(run: Run) -> list[Details]:
    numbered = recommendations(run)
    rows = {
        key: RowsByUid(run.category_operations(key).select(cs.by_name(*ROW, require_all=False)))
        for key, result in run.results.items()
        if result.tier == "compute" and result.findings
    }
    sources = [time_sources(recommendation.finding) for recommendation in numbered]
    return [
        Details(
            recommendation,
            rows[recommendation.result.key].of(
                reference.uid for reference in recommendation.finding.operations
            )
            if recommendation.result.tier == "compute"
            else None,
            run.manifest.totals,
            run.targets.of_category(recommendation.result.key),
            sections.operator_names(run, recommendation.finding.shared_uids),
            tuple(
                other
                for other, theirs in zip(numbered, sources, strict=True)
                if other is not recommendation
                and _both_save(recommendation, other)
                and own_sources & theirs
            ),
        )
        for recommendation, own_sources in zip(numbered, sources, strict=True)
    ]


def _over(totals: Totals) -> Message | None:
    """Return the number of steps that GPU time is summed over, if there are several."""
    steps = step_count(totals)
    return MESSAGES("saving.over", steps=steps) if steps > 1 else None


def _hidden(finding: Finding, totals: Totals) -> Message | None:
    """Return that the step gains little of the GPU time saved; None if it gains more."""
    gain = finding.impact
    if gain is None or gain.step_ms is None or finding.time_pool is not None:
        return None
    saved_ms = gain.saved_ms.mid
    if gain.step_ms.mid >= LITTLE_GAINED * saved_ms:
        return None
    return MESSAGES("saving.hidden", saved_ms=saved_ms, over=_over(totals))


def _of_steps(
    key: str,
    impact: Impact,
    totals: Totals,
    *,
    gpu_time: Message | None = None,
    hidden: Message | None = None,
) -> Message:
    """Return the step time that a finding saves, as the message ``key`` or one of its variants."""
    host, impact = host_limit(impact), per_step(impact, totals)
    high_ms = impact.step_ms.high if impact.step_ms else 0.0
    high_pct = impact.step_pct.high if impact.step_pct else 0.0
    values = {
        "whole": whole_name(totals),
        "gain_ms": impact.gain_ms,
        "gain_pct": impact.gain_pct,
        "high_ms": high_ms,
        "high_pct": high_pct,
        "gpu_time": gpu_time,
        "hidden": hidden,
        "basis": MESSAGES("basis.replay" if impact.is_replayed else f"basis.{impact.method}"),
        "host": host,
    }
    if impact.is_interval:
        return MESSAGES.pick(f"{key}.interval", values)
    if high_ms <= 0:
        return MESSAGES.pick(f"{key}.nothing", values)
    if milliseconds(impact.gain_ms) == milliseconds(0):
        return MESSAGES.pick(f"{key}.most", values)
    is_exact = milliseconds(high_ms) == milliseconds(impact.gain_ms)
    return MESSAGES.pick(f"{key}.exact" if is_exact else key, values)


def host_limit(impact: Impact) -> Message | None:
    """Return that the host limits an interval, whose high end is less than the GPU time saved."""
    is_limited = impact.step_ms is not None and impact.step_ms.high < impact.saved_ms.high
    return MESSAGES("saving.host") if impact.is_interval and is_limited else None


def _both_save(*both: Recommendation) -> bool:
    return all(recommendation.finding.impact is not None for recommendation in both)


def joined_labels(labels: list[str]) -> str:
    """Return ``P1``, ``P1 and P2``, ``P1, P2 and P3``."""
    *first, last = labels
    return f"{', '.join(first)} and {last}" if first else last


def _projected(row: Projection) -> tuple[str, ...]:
    target = f"{round(row.target_pct, 1):g}% of peak"
    if row.saved_ms == 0:
        return (target, "reached already", MISSING, MISSING, MISSING)
    shares = (row.op_improvement_pct, row.compute_pct, row.e2e_pct)
    return (target, milliseconds(row.time_ms), *map(percent, shares))
