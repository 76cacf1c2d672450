"""``standalone_analysis_rough.md``: the derivation of each conclusion, for audits."""

import shlex
from itertools import islice
from operator import attrgetter
from pathlib import Path

import polars as pl

from jarvis import impact
from jarvis.core.notes import FindingNotes
from jarvis.core.output import write_output
from jarvis.core.workspace import RunPaths
from jarvis.findings import IDLE_POOL, AnalysisResult, Impact, Status
from jarvis.impact import TARGET_PCT, marked_efficiency
from jarvis.perf_report import CallPath, Totals
from jarvis.reports import appendix, sections
from jarvis.reports.account import account_parts
from jarvis.reports.details import Details, details_of
from jarvis.reports.edits import UNEDITED, Edits
from jarvis.reports.gaps import gaps_of
from jarvis.reports.health import health_line, health_of, health_table, health_values
from jarvis.reports.messages import time_range
from jarvis.reports.rendering import render
from jarvis.reports.reporter import Reporter
from jarvis.reports.summary import top_names
from jarvis.reports.together import together
from jarvis.run import Run
from jarvis.run.manifest import Options
from jarvis.savings import per_step, whole_ms, whole_name
from jarvis.schemas import label
from jarvis.schemas.names import C
from jarvis.text.format import (
    MISSING,
    count,
    decimal,
    listed,
    microseconds,
    milliseconds,
    percent,
)
from jarvis.text.markdown import Markdown, block, cell, one_line, shortened, table
from jarvis.text.messages import to_text


def calculation_text(details: Details) -> str:
    """Return the calculation of one finding: the terms of its saving, its shares, and its priority
    rule."""
    finding = details.finding
    gain = finding.impact
    is_system = details.recommendation.result.tier == "system"
    is_idle = (finding.time_pool or "").startswith(IDLE_POOL)
    saving = to_text(details.saving)
    if gain:
        saving = _saving_terms(gain, details.totals, is_system=is_system, is_idle=is_idle)
    local = finding.priority_local
    before = "" if finding.priority is local else f" ({local.value} within the analysis)"
    return (
        f"{details.recommendation.label}, {to_text(finding.title)}: {saving} "
        f"{_standing(details)} → {finding.priority.value}{before}."
        f"{f' {to_text(finding.priority_reason)}' if finding.priority_reason else ''}"
    )


def _saving_terms(gain: Impact, totals: Totals, *, is_system: bool, is_idle: bool) -> str:
    """Return terms and shares of a saving, of its upper end if only that is known; system-level
    waits are not part of compute."""
    saved = gain.saved_ms
    range_ms = to_text(time_range(saved.low, saved.high))
    parts = [f"saving {_terms(gain)}"]
    if gain.is_interval:
        parts = [f"saving {range_ms}, depending on the other ranks"]
    end = attrgetter("high" if gain.is_interval else "mid")
    wholes = [("GPU window", totals.total_time_ms, gain.e2e_pct)]
    if not is_system:
        wholes.insert(0, ("compute", totals.compute_time_ms, gain.compute_pct))
    parts += [
        f"{milliseconds(end(saved))} / {milliseconds(whole_ms)} {name} = {percent(end(share))}"
        for name, whole_ms, share in wholes
    ]
    if not gain.is_interval:
        parts.append(f"range {range_ms}")
    text = "; ".join(parts)
    of_step = per_step(gain, totals)
    if of_step.step_ms is None:
        return f"{text}."
    mid = "" if gain.is_interval else f"{milliseconds(of_step.gain_ms)}, "
    of_steps = (
        f"of {whole_name(totals)} {mid}at most "
        f"{milliseconds(of_step.step_ms.high)} / {milliseconds(whole_ms(totals))} = "
        f"{percent(impact.share_pct(of_step.step_ms.high, whole_ms(totals)))}."
    )
    # Idle time of the steps can lie outside the GPU window.
    return f"saving {of_steps}" if is_idle else f"{text}; {of_steps}"


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
    time_ms = float(rows[C.kernel_time_us].sum()) / 1000
    of_compute = percent(impact.share_pct(time_ms, details.totals.compute_time_ms))
    of_category = percent(impact.share_pct(time_ms, details.recommendation.result.gpu_time_ms))
    place = "in" if rows[C.is_top_operation].any() else "not in"
    gain = finding.impact
    efficiency = gain.efficiency_pct if gain else None
    reached = "" if efficiency is None else f", efficiency {percent(efficiency)}"
    return (
        f"Its rows are {place} the top operations, take {of_compute} of compute and {of_category} "
        f"of the category{reached}"
    )


SHEET_ROWS = 30
"""Rows of a raw sheet; the CSV has all."""

PATHS_SHOWN = 3
"""Call paths of each category."""

SUBTREE_ENTRIES = 40
"""Printed calls below an operation."""

PARENTS_SHOWN = 60
"""Printed calls above an operation, the innermost ones."""

UIDS_SHOWN = 6
"""Listed row uids of a top operation."""

LINE_LENGTH = 160
RAW_SHEETS = ("gpu_timeline", "ops_summary_by_category", "ops_summary")
RAW_COLUMNS = (
    C.uid,
    C.name,
    C.input_dims,
    C.operation_count,
    C.kernel_time_us,
    C.flops,
    C.bytes,
    C.tflops_per_s,
    C.tb_per_s,
    C.roofline_time_us,
    C.pct_roofline,
    C.bound,
)


class RoughReporter(Reporter):
    """The calculations behind the report for stakeholders."""

    name = "rough"
    suffix = ".md"
    has_notes = True

    def place(self, paths: RunPaths) -> Path:
        return paths.standalone_report(self.name)

    def render(self, run: Run, out: Path) -> None:
        write_output(out, rough_markdown(run, self.edits))


def rough_markdown(run: Run, edits: Edits = UNEDITED) -> str:
    """Return the process, the raw tables, the call paths, the gaps and the questions of a run.

    With notes of a team, also their decisions and comments on findings.
    """
    manifest = run.manifest
    sheets = run.sheets()
    gaps = gaps_of(run)
    health = health_of(run)
    details = details_of(run)
    return render(
        "rough",
        model=sections.model_name(run),
        platform=sections.platform_name(run),
        trace=manifest.trace,
        trace_line=sections.trace_line(run),
        hardware_line=sections.hardware_line(manifest.hardware),
        peaks=appendix.peaks(manifest.hardware) if manifest.hardware else None,
        methodology=appendix.methodology(run),
        platform_warning=manifest.platform_warning,
        health_line=health_line(health),
        health=health_table(health),
        health_values=health_values(health),
        report_command=_report_command(run),
        analyze_command=_analyze_command(run),
        sheets=[(name, frame.height, frame.width) for name, frame in sheets.items()],
        totals=_totals(run),
        **account_parts(run),
        top_operations=_top_operations(run),
        categories=_categories(run),
        analyses=_analyses(run),
        paths=_paths(details),
        arithmetic=[calculation_text(detail) for detail in details],
        saving=together(details, run),
        raw_sheets=[(name, _raw(sheets[name])) for name in RAW_SHEETS if name in sheets],
        raw_operations=[
            (result, _operations(run.category_operations(result.key)))
            for result in sections.compute_results(run)
        ],
        trees=[(result, _call_paths(run, result)) for result in sections.compute_results(run)],
        failures=[r for r in run.results.values() if r.status is Status.ERROR],
        unavailable_reason=[
            r for r in run.results.values() if r.status is Status.NO_DATA and r.error
        ],
        team_notes=_team_notes(details, edits),
        gaps=[gap.text for gap in gaps],
        questions=[gap.question for gap in gaps],
    )


def _team_notes(details: list[Details], edits: Edits) -> list[tuple[str, FindingNotes]]:
    """Return the notes on findings with their headings; those of findings not reported are last."""
    reported = [
        (f"{d.recommendation.label}, {to_text(d.finding.title)}", notes)
        for d in edits.ordered(details)
        if not (notes := edits.of_finding(d.recommendation.key)).is_empty
    ]
    others = [(f"Not reported: {each.title}", each) for each in edits.unreported(details)]
    return [*reported, *others]


def _report_command(run: Run) -> Markdown:
    if run.manifest.trace.form == "report":
        return Markdown("The sheets are those of the report that was read.")
    paths = RunPaths(Path())
    words = ["jarvis", "report", run.manifest.trace.file_name]
    words += ["--output_xlsx_path", str(paths.perf_report_xlsx)]
    words += ["--output_csvs_dir", str(paths.perf_report_csvs)]
    if described := run.manifest.options.gpu_arch_file:
        words += ["--gpu_arch_json_path", described]
    elif run.manifest.hardware:
        words += ["--gpu_arch_platform", run.manifest.hardware.name]
    if extension := run.manifest.options.extension_file:
        words += ["--extension_file", extension]
    if captures := run.manifest.options.captures_name:
        words += ["--capture_folder", captures]
    return block(one_line(shlex.join(words)), "sh")


def _analyze_command(run: Run) -> Markdown:
    words = ["jarvis", "analyze", run.manifest.trace.file_name]
    if described := run.manifest.options.gpu_arch_file:
        words += ["--gpu_arch_json_path", described]
    elif hardware := run.manifest.hardware:
        words += ["--platform", hardware.name, "--preset", hardware.preset]
    if run.manifest.model_name:
        words += ["--model", run.manifest.model_name]
    if extension := run.manifest.options.extension_file:
        words += ["--extension-file", extension]
    if captures := run.manifest.options.captures_name:
        words += ["--capture-folder", captures]
    words += _model_words(run.manifest.options)
    if run.target_pct != TARGET_PCT:
        words += ["--target-pct", f"{run.target_pct:g}"]
    if own := run.targets.own_text:
        words += ["--category-targets", own]
    return block(one_line(shlex.join([*words, "--output-dir", "."])), "sh")


def _model_words(options: Options) -> list[str]:
    """Return the options of the model's configuration."""
    if not options.served_model_name:
        return []
    words = ["--model-config", options.served_model_name]
    for name in ("tensor_parallel", "expert_parallel"):
        if (ranks := getattr(options, name)) != 1:
            words += [f"--{name.replace('_', '-')}", str(ranks)]
    return words


def _totals(run: Run) -> Markdown:
    totals = run.manifest.totals
    lines = (
        ("Computation", totals.compute_time_ms, totals.compute_pct),
        ("Exposed communication", totals.exposed_comm_time_ms, totals.exposed_comm_pct),
        ("Exposed copies", totals.exposed_memcpy_time_ms, totals.exposed_memcpy_pct),
        ("Busy", totals.busy_time_ms, totals.busy_pct),
        ("Idle", totals.idle_time_ms, totals.idle_pct),
        ("Total communication", totals.total_comm_time_ms, None),
        ("Total copies", totals.total_memcpy_time_ms, None),
        ("Total", totals.total_time_ms, None),
    )
    return table(
        ("GPU time", "Time (ms)", "% of Total"),
        ((name, decimal(time_ms), percent(share)) for name, time_ms, share in lines),
    )


def _top_operations(run: Run) -> Markdown:
    """Return the launchers of the trace with most time, and their rows of operations."""
    names = top_names(run)
    return table(
        (
            "Rank",
            "Operation",
            "Time (ms)",
            "Calls",
            "% of Compute",
            "% of Total",
            "Efficiency",
            "Bound",
            "Rows (uid)",
        ),
        (
            (
                count(top.rank),
                cell(names[top.rank]),
                decimal(top.time_ms),
                count(top.count),
                percent(top.percent_of_compute),
                percent(top.percent_of_total),
                marked_efficiency(top.efficiency_pct),
                top.bound or MISSING,
                _uids(top.operation_uids),
            )
            for top in run.manifest.top_operations
        ),
    )


def _uids(uids: tuple[int, ...]) -> str:
    return listed([str(uid) for uid in uids], UIDS_SHOWN) or MISSING


def _categories(run: Run) -> Markdown:
    paths = RunPaths(Path())
    return table(
        ("Category", "Rows", "Calls", "Time (ms)", "% of Compute", "Rows in", "Call paths in"),
        (
            (
                result.title,
                count(result.row_count),
                count(result.invocation_count),
                decimal(result.gpu_time_ms),
                percent(result.percent_of_compute),
                cell(str(paths.operations_csv(result.key))),
                cell(str(paths.tree_data(result.key))),
            )
            for result in sections.compute_results(run)
        ),
    )


def _analyses(run: Run) -> Markdown:
    paths = RunPaths(Path())
    return table(
        ("Analysis", "Tier", "Status", "Efficiency", "Covered", "Findings", "Written to"),
        (
            (
                result.title,
                result.tier,
                result.status.value,
                marked_efficiency(result.efficiency_pct),
                percent(result.efficiency_coverage_pct),
                count(len(result.findings)),
                cell(str(paths.findings(result.key, result.tier))),
            )
            for result in run.results.values()
        ),
    )


def _paths(details: list[Details]) -> Markdown | None:
    """Return how each priority was determined."""
    if not details:
        return None
    return table(
        ("", "Finding", "Check", "Concerns", "Efficiency", "In the category", "Final", "Saving"),
        (
            (
                d.recommendation.label,
                d.recommendation.title,
                cell(d.finding.check),
                to_text(d.time),
                marked_efficiency(d.finding.impact.efficiency_pct) if d.finding.impact else MISSING,
                d.finding.priority_local.value,
                d.finding.priority.value,
                to_text(d.short_saving),
            )
            for d in details
        ),
    )


def _raw(sheet: pl.DataFrame) -> Markdown:
    shown = sheet.head(SHEET_ROWS)
    return table(shown.columns, (tuple(map(_value, row)) for row in shown.iter_rows()))


def _operations(rows: pl.DataFrame) -> Markdown:
    shown = rows.head(SHEET_ROWS).select(RAW_COLUMNS)
    labels = [label("operations", name) for name in RAW_COLUMNS]
    return table(labels, (tuple(map(_value, row)) for row in shown.iter_rows()))


def _value(value: object) -> str:
    if value is None:
        return MISSING
    if isinstance(value, float):
        return decimal(value)
    return cell(value) if isinstance(value, str) and value else str(value)


def _call_paths(run: Run, result: AnalysisResult) -> list[Markdown]:
    rows = run.category_operations(result.key)
    found = run.call_paths(result.key)
    uids = [uid for uid in rows[C.uid] if uid in found][:PATHS_SHOWN]
    return [block(_tree(found[uid])) for uid in uids]


def _tree(path: CallPath) -> str:
    """Return the parent chain of a call and its subtree, indented by depth."""
    chain = list(islice(path.above(), PARENTS_SHOWN + 1))[::-1]
    lines = [
        f"{'  ' * depth}{frame.name} ({frame.kind})"
        for depth, frame in enumerate(chain[-PARENTS_SHOWN:])
    ]
    if len(chain) > PARENTS_SHOWN:
        lines.insert(0, "... more above")
    base = len(lines)
    lines.append(f"{'  ' * base}=> {path.op_name} {path.input_dims or ''}")
    entries = list(path.subtree)
    for entry in entries[:SUBTREE_ENTRIES]:
        took = microseconds(entry.dur_us)
        lines.append(f"{'  ' * (base + entry.depth)}{entry.name} ({entry.kind} {took})")
    if len(entries) > SUBTREE_ENTRIES:
        lines.append(f"{'  ' * (base + 1)}... {len(entries) - SUBTREE_ENTRIES} more")
    shown = {entry.name for entry in entries if entry.kind == "kernel"}
    lines += [
        f"  kernel: {kernel.name} ({microseconds(kernel.dur_us)}, stream {kernel.stream})"
        for kernel in path.kernels
        if kernel.name not in shown
    ]
    return "\n".join(shortened(_one_line_indented(line), LINE_LENGTH) for line in lines)


def _one_line_indented(line: str) -> str:
    """Apply ``one_line`` but preserve the indentation."""
    return line[: len(line) - len(line.lstrip())] + one_line(line)


REPORTER = RoughReporter()
