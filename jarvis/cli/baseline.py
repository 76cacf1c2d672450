"""``jarvis compare RUN --baseline PROJECT``: a CI gate against the last runs of a project."""

import argparse
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis.cli.options import percentage
from jarvis.cli.output import ExitCode, note, print_result

if TYPE_CHECKING:
    from jarvis.run import Manifest, Run
    from jarvis.run.baseline import BaselineCheck, TimeCheck
    from jarvis.server.storage.baselines import Baseline

DEFAULT_LAST, DEFAULT_THRESHOLD_PCT = 5, 5.0
"""As in ``jarvis.run.baseline``, which is slow to import."""

MAX_LAST = 100
RULE = """\
check of a run with --baseline PROJECT:
  jarvis compare TRACE_OR_RUN --baseline PROJECT [--branch NAME]
  The step time and the time of each category of the run are compared with the median of the last
  runs of the project before it, of the same GPU, and of the same model and number of ranks if both
  are known. Slower means longer than the median plus the larger one of the threshold and the noise:
  3 robust standard deviations (1.4826 times the median absolute deviation) of the baseline runs.
  Fewer than 3 baseline runs do not show their noise, so only the threshold counts. The exit code is
  3 if the step time is slower.
"""
_CHECKING = ("branch", "last", "threshold")
_WRITING = ("output_xlsx_path", "output_csvs_dir", "output_dir", "names", "tolerance", "fail_if")

Open = Callable[[str, str | None, Path], "Run"]


def add_baseline(command: argparse.ArgumentParser) -> None:
    """Add the options of the check to ``jarvis compare``."""
    group = command.add_argument_group("check against the last runs of a project")
    group.add_argument(
        "--baseline",
        metavar="PROJECT",
        help="check one run, the first argument, against the last stored runs of this project",
    )
    group.add_argument("--branch", metavar="NAME", help="only baseline runs of this branch")
    group.add_argument(
        "--last",
        metavar="N",
        type=_count,
        help=f"number of baseline runs (default: {DEFAULT_LAST})",
    )
    group.add_argument(
        "--threshold",
        metavar="PERCENT",
        type=percentage,
        help="increase over the median that is tolerated (default: "
        f"{DEFAULT_THRESHOLD_PCT:g}); exit with code {ExitCode.CHECK_FAILED:d} above it",
    )


def check_options(arguments: argparse.Namespace) -> None:
    """Exit with a usage error if options of the check and of a comparison are mixed."""
    if arguments.baseline is None:
        if given := [name for name in _CHECKING if getattr(arguments, name) is not None]:
            arguments.usage_error(f"--{given[0]} needs --baseline")
        if arguments.target is None:
            arguments.usage_error("the following arguments are required: TARGET")
        return
    if arguments.target is not None:
        arguments.usage_error("--baseline checks one run: give no TARGET")
    if given := [name for name in _WRITING if getattr(arguments, name)]:
        arguments.usage_error(f"--{given[0].replace('_', '-')} does not apply to --baseline")


def check_against_baseline(arguments: argparse.Namespace, open_run: Open) -> int:
    """Check the run and print the result; the exit code says whether it is slower."""
    from jarvis.server.storage.baselines import baseline_of
    from jarvis.server.storage.catalog import read_catalog

    run = _manifest(arguments, open_run)
    baseline = baseline_of(
        read_catalog().entries,
        run,
        arguments.baseline,
        arguments.branch,
        arguments.last or DEFAULT_LAST,
    )
    check = baseline.check(run, arguments.threshold or DEFAULT_THRESHOLD_PCT)
    note(_notes(baseline, check))
    print_result(arguments, _as_json(arguments, baseline, check), _lines(baseline, check))
    return ExitCode.CHECK_FAILED if check.is_slower else ExitCode.OK


def _count(text: str) -> int:
    """Parse a number of runs."""
    number = int(text)
    if not 1 <= number <= MAX_LAST:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 to {MAX_LAST}")
    return number


def _manifest(arguments: argparse.Namespace, open_run: Open) -> "Manifest":
    """Return the manifest of the run; a trace is analyzed in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="jarvis-compare-") as folder:
        platform = arguments.platform
        return open_run(arguments.reference, platform, Path(folder) / "run").manifest


def _notes(baseline: "Baseline", check: "BaselineCheck") -> Iterator[str]:
    from jarvis.run.baseline import MIN_RUNS
    from jarvis.text.format import counted

    for reason, number in sorted(baseline.left_out.items()):
        yield f"left out: {counted(number, 'run')} {reason}"
    if not check.has_noise:
        yield (
            f"the project has {counted(len(baseline.runs), 'run')} to compare with; fewer than "
            f"{MIN_RUNS} do not show their noise, so only the threshold of "
            f"{check.threshold_pct:g}% counts"
        )


_WIDTHS = (26, 12, 12, 12, 12, 10)


def _lines(baseline: "Baseline", check: "BaselineCheck") -> Iterator[str]:
    from jarvis.text.format import counted
    from jarvis.text.markdown import one_line

    days = sorted(entry.manifest.created[:10] for entry in baseline.runs)
    branch = f", branch {baseline.branch}" if baseline.branch else ""
    yield one_line(
        f"Baseline: project {baseline.project}{branch}, {counted(len(days), 'run')} from "
        f"{days[0]} to {days[-1]}"
    )
    yield _line(("Time per step", "run", "median", "noise", "limit", "change"))
    for each in (check.step, *check.parts):
        if each.time_ms or each.median_ms:
            yield _line(_cells(each)) + ("  slower" if each.is_slower else "")
    yield _verdict(check)


def _cells(each: "TimeCheck") -> tuple[str, ...]:
    from jarvis.text.format import milliseconds

    noise = "unknown" if each.noise_ms is None else milliseconds(each.noise_ms)
    change = "new" if each.change_pct is None else f"{each.change_pct:+.1f}%"
    times = milliseconds(each.time_ms), milliseconds(each.median_ms)
    return each.title, *times, noise, milliseconds(each.limit_ms), change


def _line(cells: tuple[str, ...]) -> str:
    first, *others = cells
    padded = (f"{cell:>{width}}" for cell, width in zip(others, _WIDTHS[1:], strict=True))
    return f"{first:<{_WIDTHS[0]}}{''.join(padded)}"


def _verdict(check: "BaselineCheck") -> str:
    from jarvis.text.format import milliseconds

    step, slower = check.step, [part.title for part in check.parts if part.is_slower]
    parts = f" Slower parts: {', '.join(slower)}." if slower else ""
    verdict = "Slower" if check.is_slower else "Not slower"
    return (
        f"{verdict}: the step time is {milliseconds(step.time_ms)}, and the limit "
        f"{milliseconds(step.limit_ms)}.{parts}"
    )


def _as_json(
    arguments: argparse.Namespace, baseline: "Baseline", check: "BaselineCheck"
) -> dict[str, Any]:
    from jarvis.run import RunFigures

    return {
        "given": arguments.reference,
        "is_slower": check.is_slower,
        "threshold_pct": check.threshold_pct,
        "has_noise": check.has_noise,
        "baseline": {
            "project": baseline.project,
            "branch": baseline.branch,
            "runs": [
                {
                    "id": entry.id,
                    "created": entry.manifest.created,
                    "commit": entry.labels.commit,
                    "time_ms": RunFigures.of(entry.manifest).time_ms,
                }
                for entry in baseline.runs
            ],
            "left_out": dict(baseline.left_out),
        },
        "step": _row(check.step),
        "parts": [_row(part) for part in check.parts],
    }


def _row(each: "TimeCheck") -> dict[str, Any]:
    return {**asdict(each), "change_pct": each.change_pct}
