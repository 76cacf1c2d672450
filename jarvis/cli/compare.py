"""``jarvis compare``: compare a target with a reference, as files, text or a CI gate."""

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jarvis.cli.atomic_output import atomic_output
from jarvis.cli.baseline import (
    RULE,
    add_baseline,
    check_against_baseline,
    check_options,
)
from jarvis.cli.options import (
    Commands,
    add_flag,
    at_least,
    complete_gpu,
    complete_run,
    completed_by,
    explained,
    run_directory,
    stored_folder,
)
from jarvis.cli.output import ExitCode, add_json, note, print_result, print_step, table_lines, warn
from jarvis.core.errors import OutputFolderError
from jarvis.core.request import AnalysisRequest
from jarvis.core.staging import staged_folder
from jarvis.core.workspace import ComparisonPaths, RunPaths
from jarvis.tracelens.options import ALL, GROUPS

if TYPE_CHECKING:
    from jarvis.comparison import Comparison
    from jarvis.comparison.rules import RuleResult
    from jarvis.run import Run
    from jarvis.tracelens.compare_report import NamedReport

SIDE_HELP = (
    "a trace, a performance report (workbook, or folder or zip of CSV files), a run directory, or "
    "the id of a stored analysis"
)
DESCRIPTION = """\
Compare a target with a reference. By default, write comparison.xlsx with the sheets of both reports
side by side, with TraceLens's names. Further reports are compared with the reference only in the
workbook. Two distributed runs are compared rank by rank and by the medians of their ranks, without
files. With --baseline, check one run against the last runs of a project instead.
"""
RULES = """\
rules for --fail-if: METRIC COMPARISON THRESHOLD, such as "gpu_time > +5%" or "op:aten::mm > 1 ms"
  metric      gpu_time (from the first GPU start to the last GPU end), a part of the GPU timeline
              (busy_time, idle_time, computation_time, ...), the key of a category (gemm,
              elementwise, ...), or op:NAME for an operator
  comparison  >, >=, < or <=
  threshold   a change from the reference to the target, in % of the reference or in ms; times
              are per step if steps are marked on both sides
"""
ROLES = ("reference", "target")


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of the comparison: its argument, its name in the workbook, and its run."""

    given: str
    name: str
    run: "Run"


def add_compare(commands: Commands) -> None:
    command = commands.add_parser(
        "compare",
        help="compare a target with a reference: workbook, summary, CI gate",
        description=DESCRIPTION,
        epilog=f"{RULES}\n{RULE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name, number in (("reference", None), ("target", "?"), ("others", "*")):
        action = command.add_argument(name, metavar=name.upper(), help=SIDE_HELP, nargs=number)
        completed_by(action, complete_run)
    for name, of in (("platform", "target"), ("reference_platform", "reference")):
        action = add_flag(
            command, name, metavar="GPU", help=f"of the {of}: {explained('platform')}"
        )
        completed_by(action, complete_gpu)
    add_flag(
        command,
        "output_xlsx_path",
        "output",
        metavar="FILE",
        type=Path,
        help="workbook to write (default: comparison.xlsx)",
    )
    command.add_argument(
        "-o", dest="output_xlsx_path", metavar="FILE", type=Path, help="same as --output"
    )
    add_flag(command, "output_csvs_dir", metavar="DIR", type=Path, help="folder for its sheets")
    add_flag(
        command,
        "output_dir",
        metavar="DIR",
        type=Path,
        help="new folder for the workbook, the performance reports of both sides, and the reports "
        "of the comparison",
    )
    command.add_argument("--names", nargs="+", metavar="NAME", help="names in the workbook")
    command.add_argument(
        "--sheets",
        nargs="+",
        choices=(*GROUPS, ALL),
        default=[ALL],
        help="sheets of the workbook (default: all that both reports have)",
    )
    command.add_argument(
        "--tolerance",
        type=at_least(1),
        help="factor by which a call may deviate from the expected ratio (default: 1.2)",
    )
    add_flag(
        command,
        "fail_if",
        metavar="RULE",
        action="append",
        default=[],
        help=f"exit with code {ExitCode.CHECK_FAILED:d} if the rule applies; repeatable",
    )
    add_baseline(command)
    add_json(command)
    command.set_defaults(run=_compare, usage_error=command.error)


def _compare(arguments: argparse.Namespace) -> int:
    check_options(arguments)
    if arguments.baseline is not None:
        return check_against_baseline(arguments, _opened)
    if any(map(_is_ranks, (arguments.reference, arguments.target))):
        return _compare_ranks(arguments)
    from jarvis.comparison import TOLERANCE
    from jarvis.comparison.rules import Rule, metrics
    from jarvis.pipeline import compare

    rules = [Rule.parse(text) for text in arguments.fail_if]
    sources = [arguments.reference, arguments.target, *arguments.others]
    if arguments.names is not None and len(arguments.names) != len(sources):
        arguments.usage_error(f"--names needs {len(sources)} names, one for each report")
    with _sides(sources, arguments) as sides:
        reference, target = sides[0].run, sides[1].run
        comparison = compare(target, reference, tolerance=arguments.tolerance or TOLERANCE)
        times = metrics(comparison) if rules else {}
        verdicts = [rule.applied(times, is_per_step=comparison.has_steps) for rule in rules]
        files = list(_write_files(sides, comparison, arguments))
        note(comparison.unknown)
        print_result(
            arguments,
            _as_json(sides, comparison, verdicts, files),
            [*comparison.summary, *verdicts, *files],
        )
    return ExitCode.CHECK_FAILED if any(v.is_met for v in verdicts) else ExitCode.OK


def _is_ranks(source: str) -> bool:
    from jarvis.ranks.run import is_distributed

    manifest = RunPaths(stored_folder(source) or Path(source)).manifest
    return manifest.is_file() and is_distributed(manifest.read_bytes())


def _compare_ranks(arguments: argparse.Namespace) -> int:
    """Print how two distributed runs differ."""
    from jarvis.ranks.compared import COLUMNS, MEASURE, compare_ranks, labels
    from jarvis.ranks.run import DistributedRun
    from jarvis.schemas.names import C

    given = ("fail_if", "output_xlsx_path", "output_csvs_dir", "output_dir", "others", "names")
    if any(getattr(arguments, name) for name in given):
        arguments.usage_error(
            "distributed runs are compared with each other, two at a time and without files or "
            "rules"
        )
    reference, target = (
        DistributedRun.load(run_directory(source))
        for source in (arguments.reference, arguments.target)
    )
    found = compare_ranks(target, reference)
    names = found.medians[MEASURE].replace_strict(labels())
    lines = [*found.notes, *table_lines(found.medians.with_columns(names), COLUMNS)]
    label = labels()[C.duration_ms]
    parts = ((f"{label}, median by role:", found.places), (f"{label} of each rank:", found.ranks))
    for title, rows in parts:
        if rows.height:
            steps = rows.filter(rows[MEASURE] == C.duration_ms).drop(MEASURE)
            lines += ["", title, *table_lines(steps, COLUMNS)]
    result = {
        "notes": found.notes,
        "medians": found.medians.to_dicts(),
        "places": found.places.to_dicts(),
        "ranks": found.ranks.to_dicts(),
    }
    print_result(arguments, result, lines)
    return ExitCode.OK


@contextmanager
def _sides(sources: Sequence[str], arguments: argparse.Namespace) -> Iterator[list[_Side]]:
    """Yield the sides; traces and reports are analyzed in a temporary folder."""
    platforms = [arguments.reference_platform, *[arguments.platform] * (len(sources) - 1)]
    names = arguments.names or _names(sources)
    with tempfile.TemporaryDirectory(prefix="jarvis-compare-") as folder:
        yield [
            _Side(text, name, _opened(text, platform, Path(folder) / str(number)))
            for number, (text, name, platform) in enumerate(
                zip(sources, names, platforms, strict=True)
            )
        ]


def _opened(source: str, platform: str | None, folder: Path) -> "Run":
    """Load or analyze the run of an argument, re-projected onto ``platform`` if it is set."""
    from jarvis.pipeline import analyze, reproject
    from jarvis.run import Run
    from jarvis.tracelens.options import ReportOptions

    path = stored_folder(source) or Path(source)
    if RunPaths(path).manifest.is_file():
        if platform is None:
            return Run.load(path)
        return reproject(path, platform=platform, output_dir=folder)
    note([f"reading {source}"])
    run = analyze(
        path,
        AnalysisRequest(platform=platform),
        output_dir=folder,
        report_options=ReportOptions(enable_kernel_summary=True),
        progress=print_step,
    )
    warn([run.manifest.platform_warning] if run.manifest.platform_warning else [])
    return run


def _names(sources: Sequence[str]) -> list[str]:
    """Return TraceLens's report names: file names without suffix, or roles if not unique."""
    stems = [
        Path(text).name.removesuffix(".gz").rpartition(".")[0] or Path(text).name
        for text in sources
    ]
    if len(set(stems)) == len(stems):
        return stems
    return [*ROLES, *(f"report_{number}" for number in range(3, len(sources) + 1))]


def _write_files(
    sides: Sequence[_Side], comparison: "Comparison", arguments: argparse.Namespace
) -> Iterator[Path]:
    """Write the requested files and yield their paths."""
    from jarvis.reports.comparative import write_folder, write_sheets
    from jarvis.reports.csv import write_csvs
    from jarvis.tracelens.compare_report import NamedReport, compare_reports

    reports = [NamedReport(side.name, side.run.sheets()) for side in sides]
    sheets = compare_reports(reports, arguments.sheets)
    if ALL in arguments.sheets:
        note(_left_out(reports))
    folder, workbook = arguments.output_dir, arguments.output_xlsx_path
    if folder is None or workbook is not None:
        workbook = workbook or ComparisonPaths(Path()).workbook
        with atomic_output(workbook) as place:
            write_sheets(sheets, place)
        yield workbook
    if (tables := arguments.output_csvs_dir) is not None:
        with atomic_output(tables) as place:
            written = write_csvs(sheets, place)
        yield from (tables / path.name for path in written)
    if folder is None:
        return
    with staged_folder(folder, lambda: _check_folder(folder)) as staged:
        write_folder(comparison, sides[1].run, sides[0].run, sheets, staged)
    yield from sorted(folder.iterdir())


def _left_out(reports: Sequence["NamedReport"]) -> Iterator[str]:
    """Yield a note for each sheet that is left out because a report lacks it."""
    from jarvis.tracelens.compare_report import reports_without

    for group in GROUPS:
        if labels := reports_without(reports, group):
            yield f"{group} is left out: {' and '.join(labels)} lacks it"


def _check_folder(folder: Path) -> None:
    """Raise OutputFolderError if a folder contains anything but an earlier comparison."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise OutputFolderError(folder, "a file")
    paths = ComparisonPaths(folder)
    reports = map(paths.report, ("fair", "rough"))
    own = {paths.workbook, paths.data, *map(paths.perf_report, ROLES), *reports}
    if foreign := sorted(entry.name for entry in folder.iterdir() if entry not in own):
        raise OutputFolderError(folder, f"other files ({', '.join(foreign[:3])})")


def _as_json(
    sides: Sequence[_Side],
    comparison: "Comparison",
    verdicts: Sequence["RuleResult"],
    files: Sequence[Path],
) -> dict[str, object]:
    """Return the comparison for ``--json``, with only the unexpected operations."""
    operations = comparison.operations
    return {
        "sides": {
            role: {"given": side.given, "name": side.name, "label": of.label}
            for role, side, of in zip(
                ROLES, sides, (comparison.reference, comparison.target), strict=False
            )
        },
        "tolerance": comparison.tolerance,
        "summary": comparison.summary,
        "steps": comparison.steps.to_dicts(),
        "totals": comparison.totals.to_dicts(),
        "categories": comparison.categories.to_dicts(),
        "unexpected_operations": operations.filter("is_unexpected").to_dicts(),
        "findings": [finding.model_dump(mode="json") for finding in comparison.findings],
        "unknown": comparison.unknown,
        "rules": [
            {
                "rule": verdict.rule.text,
                "reference_ms": verdict.reference_ms,
                "target_ms": verdict.target_ms,
                "change": verdict.change if abs(verdict.change) != float("inf") else None,
                "unit": verdict.rule.unit,
                "applies": verdict.is_met,
            }
            for verdict in verdicts
        ],
        "files": files,
    }
