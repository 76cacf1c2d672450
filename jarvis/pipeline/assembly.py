"""From a report to a run directory: analyses, comparison, reports, files."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from jarvis.analyses.runner import AnalysisOutcome, SplitOperations, run_analyses, split_operations
from jarvis.comparison import TOLERANCE, Comparison
from jarvis.comparison import compare as compare_sides
from jarvis.core.errors import NotSimulatedError
from jarvis.core.output import limited_output
from jarvis.core.product import product_version
from jarvis.core.request import Targets
from jarvis.findings import AnalysisResult
from jarvis.perf_report import Totals
from jarvis.pipeline.inputs import AnalysisInput, compute_units
from jarvis.pipeline.steps import Progress, step
from jarvis.replay import write_packages
from jarvis.reports import write_reports
from jarvis.reports.comparative import write_comparison
from jarvis.run import (
    CategorySummary,
    Manifest,
    Options,
    PerfModelFailure,
    Run,
    TopFinding,
    TopOperation,
    analysis_id,
    category_table,
    staged,
    write_run,
)
from jarvis.run.agent_layout.model_info import main_module
from jarvis.run.agent_layout.preparation import Preparation
from jarvis.run.run import sides
from jarvis.savings import ranked
from jarvis.simulation.of_rows import with_step_times
from jarvis.simulation.simulation import NEEDED, Simulation
from jarvis.trace_health import TABLE as HEALTH
from jarvis.tracelens.report import TABLES


def write_analysis(
    source: AnalysisInput,
    options: Options,
    warning: str | None,
    compared_with: Run | None,
    root: Path,
    progress: Progress | None,
    identifier: str | None = None,
) -> Run:
    """Run the analyses and write the run: the last four steps of the input.

    Args:
        warning: About the hardware.
        identifier: Id of the analysis, by default ``analysis_id`` of the trace and the options.
    """
    report, analyses, steps = source.report, source.extensions.analyses.analyses, source.steps
    first, targets = len(steps) - 4, Targets.parse(options.target_pct, options.category_targets)
    with step(first, progress, steps):
        split = split_operations(report, analyses)
        simulation = _simulation(source, split)
        timed = with_step_times(split.operations, simulation, targets)
        split = replace(split, operations=timed)
    with step(first + 1, progress, steps):
        units, inference = compute_units(source.info, report.hardware), source.inference
        outcomes = run_analyses(
            report,
            analyses,
            split,
            compute_units=units,
            targets=targets,
            simulation=simulation,
            inference=inference,
        )
    read_bytes = source.info.json_bytes or source.info.size_bytes
    with limited_output(read_bytes), staged(root, source.info.sha256) as folder:
        with step(first + 2, progress, steps):
            named = identifier or analysis_id(source.info.sha256, options)
            run = _run(source, split, outcomes, inference, options, warning, named)
            run = replace(run, made_simulation=simulation)
            if compared_with is not None:
                comparison = compare(run, compared_with)
                run = run.with_tables(comparison.tables())
                write_comparison(comparison, run, compared_with, folder)
            prepared = {key: o.prepared for key, o in outcomes.items() if o.prepared is not None}
            Preparation(run, folder).write(prepared)
            write_packages(run, folder)
            write_reports(run, folder)
        with step(first + 3, progress, steps):
            write_run(run, folder)
    return Run.load(root)


def _simulation(source: AnalysisInput, split: SplitOperations) -> Simulation | None:
    """Return the simulation of the input's steps, or None if they cannot be simulated."""
    stored = {*NEEDED} & {*source.report.table_names()}
    found = {name: source.report.table(name) for name in sorted(stored)}
    tables = {**source.simulated, **found, "operations": split.operations}
    try:
        return Simulation.of(tables, source.simulation)
    except NotSimulatedError:
        return None


def compare(target: Run, reference: Run, *, tolerance: float = TOLERANCE) -> Comparison:
    """Compare two runs: the differences, and which of them the peaks of their GPUs explain.

    ``tolerance`` is the factor by which a call may differ from the expected ratio; ValueError below
    1.
    """
    return compare_sides(*sides(target, reference), tolerance)


def _run(
    source: AnalysisInput,
    split: SplitOperations,
    outcomes: dict[str, AnalysisOutcome],
    inference: Mapping[str, pl.DataFrame],
    options: Options,
    warning: str | None,
    identifier: str,
) -> Run:
    report, info = source.report, source.info
    results = {key: outcome.result for key, outcome in outcomes.items()}
    classified = {key: o.operations for key, o in outcomes.items() if o.operations is not None}
    # A run of an earlier release has not every table.
    present = frozenset(report.table_names())
    tables = {name: report.table(name) for name in TABLES if name in present}
    tables |= {name: report.table(name) for name in source.sheets if name not in tables}
    tables |= {"operations": split.operations, "top_operations": split.top_operations}
    tables[HEALTH] = source.health
    tables |= {**inference, **source.simulated}
    tables |= {category_table(key): rows for key, rows in classified.items()}
    manifest = Manifest(
        jarvis_version=product_version(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        analysis_id=identifier,
        model_name=options.model_name,
        trace=info,
        hardware=report.hardware,
        platform_warning=warning,
        options=options,
        reference=options.reference,
        totals=report.totals,
        top_operations=tuple(
            TopOperation(**row) for row in split.top_operations.iter_rows(named=True)
        ),
        categories=tuple(_summary(outcome.result) for outcome in outcomes.values()),
        perf_model_failures=tuple(
            PerfModelFailure(**row) for row in tables["perf_model_failures"].iter_rows(named=True)
        ),
        load_failures=dict(source.extensions.analyses.failures),
        added_analyses=tuple(source.extensions.analyses.manifests.values()),
        extension_notes=source.extensions.notes,
        extension_failures=source.extensions.failures,
        sheets=source.sheets,
        tables=tuple(tables),
        absent_tables=dict(report.absent_tables),
        simulation=source.simulation,
        top_finding=_top_finding(results, report.totals),
        main_module=main_module(split.operations),
    )
    return Run(
        manifest=manifest,
        results=results,
        tables=tables,
        paths_by_category=source.call_paths(classified),
    )


def with_results(run: Run, results: Mapping[str, AnalysisResult], options: Options) -> Run:
    """Return a stored run with other results, of other targets in its options."""
    changed = {
        "options": options,
        "categories": tuple(map(_summary, results.values())),
        "top_finding": _top_finding(results, run.manifest.totals),
    }
    manifest = run.manifest.model_copy(update=changed)
    return replace(run, manifest=manifest, results=results, stored=run)


def _top_finding(results: Mapping[str, AnalysisResult], totals: Totals) -> TopFinding | None:
    found = (finding for result in results.values() for finding in result.findings)
    first = next(iter(ranked(found, totals)), None)
    return None if first is None else TopFinding.of(first)


def _summary(result: AnalysisResult) -> CategorySummary:
    return CategorySummary(
        key=result.key,
        title=result.title,
        tier=result.tier,
        status=result.status,
        row_count=result.row_count,
        gpu_time_ms=result.gpu_time_ms,
        percent_of_compute=result.percent_of_compute,
        efficiency_pct=result.efficiency_pct,
        finding_count=len(result.findings),
    )
