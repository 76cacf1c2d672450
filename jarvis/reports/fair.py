"""``standalone_analysis_fair.md``: the clean report for stakeholders."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from jarvis import impact
from jarvis.findings import AnalysisResult, Priority, Status
from jarvis.hardware import HardwareSpec
from jarvis.perf_report import Totals
from jarvis.reports import sections
from jarvis.reports.details import Details, details_of
from jarvis.reports.findings import measures_table, overview
from jarvis.reports.gaps import warnings_of
from jarvis.reports.health import health_of, health_table
from jarvis.reports.markup import Markdown, cell, table
from jarvis.reports.quantities import (
    MISSING,
    NOT_AVAILABLE,
    count,
    decimal,
    microseconds,
    milliseconds,
    percent,
    tb_per_s,
    tflops_per_s,
)
from jarvis.reports.rendering import has_template, render
from jarvis.reports.replays import replay_sentence, replay_table
from jarvis.reports.reporter import Reporter
from jarvis.run import Run
from jarvis.run.manifest import TopOperation
from jarvis.workspace import RunPaths

KERNELS_SHOWN = 4
"""Kernels of each operation in the kernel breakdown."""

FELT_PCT = 1.0
"""A smaller share of wall time beside compute is not worth a word in the summary."""

INSIDE = RunPaths(Path())
"""The run directory's layout, for paths relative to the report."""

BASIS = (
    "Ranked by presence in the top operations, by the efficiency gap and by the share of compute; "
    "within a priority by what they would save. Each gives two paths: A may change the model, "
    "B leaves its code alone. Savings of different recommendations may concern the same time and "
    "do not simply add up."
)


class FairReporter(Reporter):
    """The report for stakeholders."""

    name = "fair"
    suffix = ".md"

    def place(self, paths: RunPaths) -> Path:
        return paths.standalone_report(self.name)

    def render(self, run: Run, out: Path) -> None:
        out.write_text(fair_markdown(run, out.parent), encoding="utf-8")


@dataclass(frozen=True)
class Section:
    """One analysis in the detailed part."""

    title: str
    overview: str
    table: Markdown
    left_out: str | None
    rows_file: str
    kernels: Markdown | None
    notes: tuple[str, ...]
    details: list[Details]


def fair_markdown(run: Run, root: Path) -> str:
    """The report of a run whose directory is ``root``."""
    details = details_of(run)
    hardware = run.manifest.hardware
    cards = [d for d in details if d.finding.priority is not Priority.LOW]
    low = [d for d in details if d.finding.priority is Priority.LOW]
    return render(
        "fair",
        model=sections.model_name(run),
        platform=sections.platform_name(run),
        summary=_summary(run, details),
        metrics=list(_metrics(run)),
        top_operations=_top_operations(run),
        warnings=warnings_of(run),
        failures=[r for r in run.results.values() if r.status is Status.ERROR],
        basis=BASIS,
        cards=cards,
        low_icon=Priority.LOW.icon,
        low_priority=_low_priority(low) if low else None,
        sections=[
            *(_category(run, result, cards) for result in sections.compute_results(run)),
            *(_system(result, cards) for result in sections.system_results(run)),
        ],
        hardware=sections.hardware_line(hardware),
        peaks=_peaks(hardware) if hardware else None,
        health=health_table(health_of(run)),
        replay=replay_sentence(root),
        replay_table=replay_table(root),
        methodology=_methodology(hardware),
    )


def _summary(run: Run, details: list[Details]) -> str:
    totals, findings = run.manifest.totals, [d.finding for d in details]
    critical = sum(finding.priority is Priority.CRITICAL for finding in findings)
    saving = milliseconds(impact.disjoint_saving_ms(findings))
    noun = "finding" if len(findings) == 1 else "findings"
    parts = [
        f"The GPU computes for {milliseconds(totals.compute_time_ms)} of "
        f"{milliseconds(totals.total_time_ms)} wall time.",
        f"{count(len(findings))} {noun}, {count(critical) if critical else 'none'} of them "
        f"critical; their estimates, no time counted twice, add up to {saving}."
        if findings
        else "There is no finding.",
    ]
    if totals.compute_pct is not None and totals.compute_pct < impact.GOOD_COMPUTE_PCT:
        parts.append(f"Before single kernels, look at {_beside_compute(totals)}.")
    hardware, trace = run.manifest.hardware, sections.trace_line(run)
    parts.append(
        f"Judged against {sections.hardware_line(hardware)}, from the {trace}."
        if hardware
        else f"From the {trace}. {sections.hardware_line(None)}"
    )
    return " ".join(parts)


def _beside_compute(totals: Totals) -> str:
    """What else takes wall time, most first."""
    shares = {
        "exposed communication": totals.exposed_comm_pct or 0.0,
        "exposed copies": totals.exposed_memcpy_pct or 0.0,
        "idle time": totals.idle_pct or 0.0,
    }
    most = sorted(shares.items(), key=lambda share: -share[1])
    return ", ".join(f"{name} ({percent(pct)})" for name, pct in most if pct >= FELT_PCT)


def _metrics(run: Run) -> Iterator[tuple[str, str]]:
    totals = run.manifest.totals
    yield "Total Compute Time", milliseconds(totals.compute_time_ms)
    yield (
        "GPU Utilization",
        f"{percent(totals.compute_pct)} computing, {percent(totals.busy_pct)} busy, "
        f"{percent(totals.idle_pct)} idle, "
        f"{percent(totals.exposed_comm_pct)} exposed communication",
    )
    heaviest = next(iter(sections.compute_results(run)), None)
    yield (
        "Top Bottleneck Category",
        f"{heaviest.title} ({percent(heaviest.percent_of_compute)})" if heaviest else NOT_AVAILABLE,
    )
    yield "Flash Attention Usage", _flash_attention(run)


def _flash_attention(run: Run) -> str:
    result = run.results.get("sdpa_fwd")
    if result is None or result.status is not Status.OK:
        return "No (no attention operator in the trace)"
    is_used = result.metrics.get("flash_attention_detected")
    if is_used is None:
        return NOT_AVAILABLE
    if is_used:
        return "Yes"
    return "No (paged attention)" if result.metrics.get("paged_attention_detected") else "No"


def _top_operations(run: Run) -> Markdown:
    return table(
        ("Rank", "Operation", "Category", "Time (ms)", "% of Total Compute"),
        (
            (
                str(top.rank),
                cell(top.name),
                _categories_of(run, top),
                decimal(top.time_ms),
                percent(top.percent_of_compute),
            )
            for top in run.manifest.top_operations
        ),
    )


def _categories_of(run: Run, top: TopOperation) -> str:
    """Where the time of a launcher went, most first: a graph launch runs kernels of many kinds."""
    rows = run.table("operations").filter(pl.col("uid").is_in(top.operation_uids))
    times = rows.group_by("category").agg(pl.col("kernel_time_us").sum())
    most = times.sort("kernel_time_us", "category", descending=[True, False])["category"].to_list()
    keys = most or ([top.category] if top.category else [])
    if not keys:
        return MISSING
    more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
    return f"{run.results[keys[0]].title if keys[0] in run.results else keys[0]}{more}"


def _low_priority(details: list[Details]) -> Markdown:
    return table(
        ("", "Finding", "Saving", "Details"),
        (
            (
                d.recommendation.label,
                d.recommendation.title,
                d.saving,
                f"{INSIDE.findings(d.recommendation.result.key, d.recommendation.result.tier)}",
            )
            for d in details
        ),
    )


def _category(run: Run, result: AnalysisResult, cards: list[Details]) -> Section:
    rows = run.category_operations(result.key)
    shown = sections.shown_rows(rows)
    return Section(
        title=f"{result.title} ({percent(result.percent_of_compute)} of compute)",
        overview=overview(result),
        table=sections.operations_table(shown),
        left_out=sections.left_out(rows, shown.height),
        rows_file=str(INSIDE.operations_csv(result.key)),
        kernels=_kernels(shown),
        notes=result.notes,
        details=[d for d in cards if d.finding.category == result.key],
    )


def _system(result: AnalysisResult, cards: list[Details]) -> Section:
    template = f"_{result.key}_table"
    findings_file = INSIDE.findings(result.key, result.tier)
    return Section(
        title=f"{result.title} (system level)",
        overview=f"How the parts of the GPU's work fit together; more in `{findings_file}`.",
        table=Markdown(render(template, result=result))
        if has_template(template)
        else measures_table(result.metrics),
        left_out=None,
        rows_file="",
        kernels=None,
        notes=result.notes,
        details=[d for d in cards if d.finding.category == result.key],
    )


def _kernels(rows: pl.DataFrame) -> Markdown | None:
    """What each operation runs on the GPU, longest first; its name stands at its first kernel."""
    lines = [
        (
            "" if position else sections.operation_cell(row),
            cell(kernel["name"]),
            count(kernel["count"]),
            milliseconds(kernel["total_us"] / 1000),
            microseconds(kernel["mean_us"]),
        )
        for row in rows.head(sections.RELEVANT_ROWS).iter_rows(named=True)
        for position, kernel in enumerate((row["kernels"] or [])[:KERNELS_SHOWN])
    ]
    return table(("Operation", "Kernel", "Launches", "Total", "Mean"), lines) if lines else None


def _peaks(hardware: HardwareSpec) -> Markdown:
    memory_type = f" {hardware.memory_type}" if hardware.memory_type else ""
    figures = {
        "mem_bw_gbps": ("Peak HBM BW", tb_per_s(hardware.tb_per_s)),
        "memory_gb": ("Memory", f"{hardware.memory_gb:g} GB{memory_type}"),
        **{
            key: (f"Peak MAF {key}", tflops_per_s(peak))
            for key, peak in hardware.max_achievable_tflops.items()
        },
    }
    return table(
        ("Figure", "Value", "Source"),
        (
            (label, value, hardware.source_of(figure) or MISSING)
            for figure, (label, value) in figures.items()
        ),
    )


def _methodology(hardware: HardwareSpec | None) -> list[str]:
    lines = [
        "Efficiency is roofline time / GPU busy time; roofline time is the longer of FLOPs / "
        "compute peak of the operation's precision and bytes / bandwidth peak.",
        f"Scale: {_scale()}. Above {impact.ANOMALY_PCT:g}% a row takes no part in projections.",
        f"Bottleneck: more than {impact.BOTTLENECK_TIME_MS:g} ms or "
        f"{impact.BOTTLENECK_CATEGORY_PCT:g}% of its category, and below "
        f"{impact.BOTTLENECK_EFFICIENCY_PCT:g}% efficiency.",
        f"Critical: a top operation below {impact.CRITICAL_EFFICIENCY_PCT:g}% with more than "
        f"{impact.CRITICAL_COMPUTE_PCT:g}% of compute. High: another top operation, or below "
        f"{impact.BOTTLENECK_EFFICIENCY_PCT:g}% with more than {impact.HIGH_COMPUTE_PCT:g}% of "
        f"compute or category. Medium: more than {impact.MEDIUM_COMPUTE_PCT:g}% of compute, or a "
        "notable pattern. Low: the rest, and whatever takes at most "
        f"{impact.RELEVANT_COMPUTE_PCT:g}% of compute or would save less than "
        f"{impact.MIN_SAVED_COMPUTE_PCT:g}% of it. System-level findings have the priority of "
        "their grade.",
        "Projected time at a target efficiency is time x efficiency / target; compute improvement "
        "is the saving / compute time, E2E improvement the saving / GPU wall time.",
        "A trace shows what is slow, not why: likely causes are hypotheses, to be tested with the "
        "platform's hardware-counter profiler on a replay package.",
    ]
    if hardware is None:
        lines.insert(0, "No peaks are known for the hardware, so no efficiency is given.")
    return lines


def _scale() -> str:
    return "; ".join(
        f"over {above:g}% {word.replace(':', ',')}" for above, word in impact.EFFICIENCY_SCALE
    )


REPORTER = FairReporter()
