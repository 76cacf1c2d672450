"""Measure how time, memory and output of `jarvis analyze` grow with each kind of input.

python -m benchmarks.growth [--page FILE] [--kinds arguments,depth]

Each trace is analyzed in a separate process. Ratios compare CPU seconds, memory and bytes after
subtracting those of a trace with one operator.
"""

import argparse
import cProfile
import gzip
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from types import CodeType

from benchmarks.page import table, write_part
from benchmarks.pipeline import machine
from jarvis.cli import main as run_command
from tests import growing
from tests.builders import TraceBuilder

SIZES: dict[str, int] = {
    "arguments": 2_000,
    "tensor_list": 8_000,
    "fused_names": 2_000,
    "kernel_names": 20_000,
    "operator_names": 4_000,
    "long_names": 2_000,
    "depth": 2_000,
    "nested_operations": 400,
    "operations": 8_000,
    "shapes": 500,
    "names": 1_000,
    "kernels": 4_000,
    "streams": 1_000,
    "threads": 500,
    "processes": 500,
    "modules": 2_000,
    "collectives": 2_000,
    "annotations": 2_000,
    "overlapping_annotations": 1_000,
    "overlapping_calls": 1_000,
    "backward": 2_000,
    "chains": 2_000,
    "categories": 2_000,
}

ATTACKS: dict[str, tuple[Callable[[], TraceBuilder], str]] = {
    "one operator with 1,000 arguments": (lambda: growing.arguments(1_000), "6.3 s"),
    "one operator with 4,000 arguments": (lambda: growing.arguments(4_000), "105 s"),
    "3,000 operators in a fused name": (lambda: growing.fused_names(3_000), "92 s"),
    "a kernel name of 380,000 letters": (lambda: growing.kernel_names(20_000), "23 s"),
    "300 operations, depth 1,000, names of 1,900": (
        lambda: growing.nested(1_000, 300, 1_900),
        "39 s, 1.43 GB, 569 MB",
    ),
    "1,000 operations, depth 1,500, names of 1,900": (
        lambda: growing.nested(1_500, 1_000, 1_900),
        "stopped after 58 s at 5.6 GB",
    ),
}
"""Files that were designed to be expensive, and their costs before growth was bounded."""

ARGUMENT_LISTS = 12_000
ARGUMENT_READERS = (
    "core/literals.py",
    "perf_report/literals.py",
    "trace/arguments.py",
    "perf_models/arguments.py",
)
"""Modules that read recorded arguments."""


@dataclass(frozen=True)
class Cost:
    """Costs of one analysis."""

    cpu_s: float
    peak_mb: float
    written_mb: float


def measure(built: TraceBuilder) -> tuple[Cost, float]:
    """Analyze a trace; return its cost and the kB of the trace as gzip."""
    with tempfile.TemporaryDirectory() as name:
        path, out = built.write(Path(name) / "trace.json"), Path(name) / "run"
        packed_kb = len(gzip.compress(path.read_bytes())) / 1e3
        command = [sys.executable, "-m", "jarvis.cli", "analyze", str(path), "--output-dir"]
        environment = {**os.environ, "JARVIS_HOME": name, "JARVIS_TRACE_CACHE_MB": "0"}
        null = subprocess.DEVNULL
        process = subprocess.Popen([*command, str(out)], env=environment, stdout=null, stderr=null)
        _, process.returncode, used = os.wait4(process.pid, 0)
        if process.returncode:
            raise SystemExit(f"The analysis ended with {process.returncode}.")
        written = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
        cpu_s = used.ru_utime + used.ru_stime
        return Cost(cpu_s, used.ru_maxrss * 1024 / 1e6, written / 1e6), packed_kb


def grown(kind: str, size: int, empty: Cost) -> list[str]:
    """Return one row: costs at n, and how each grows from 2n to 4n."""
    costs = [measure(growing.GROWING[kind](times * size))[0] for times in (1, 2, 4)]
    cells = [f"{kind.replace('_', ' ')}", f"{size:,}"]
    for what, unit in (("cpu_s", 0.2), ("peak_mb", 10.0), ("written_mb", 0.05)):
        values = [getattr(cost, what) - getattr(empty, what) for cost in costs]
        ratio = f"{values[2] / values[1]:.1f}" if values[1] > unit else "–"  # noqa: RUF001
        cells += [f"{getattr(costs[2], what):.1f}", ratio]
    return [*cells, ""]


def attacked(title: str, build: Callable[[], TraceBuilder], before: str) -> list[str]:
    """Return one row: the costs of a file that was designed to be expensive."""
    cost, packed_kb = measure(build())
    now = [f"{packed_kb:.0f}", f"{cost.cpu_s:.1f}", f"{cost.peak_mb:.0f}", f"{cost.written_mb:.1f}"]
    return [title, *now, before]


def reading_share() -> str:
    """Return a sentence with the share of ``jarvis analyze`` that is spent in reading arguments."""
    profile = cProfile.Profile()
    with tempfile.TemporaryDirectory() as name:
        path = growing.shapes(ARGUMENT_LISTS // 4).write(Path(name) / "trace.json")
        command = ["analyze", str(path), "--output-dir", str(Path(name) / "run")]
        with redirect_stdout(StringIO()):
            profile.runcall(run_command, command)
    functions = profile.getstats()
    total_s = sum(function.inlinetime for function in functions)
    reading_s = sum(
        called.totaltime
        for caller in functions
        if not _reads_arguments(caller.code)
        for called in caller.calls or ()
        if _reads_arguments(called.code)
    )
    return (
        f"Of `jarvis analyze` of {ARGUMENT_LISTS:,} distinct argument lists, under a profiler, "
        f"{100 * reading_s / total_s:.1f} % is spent in reading arguments."
    )


def _reads_arguments(code: CodeType | str) -> bool:
    """Return whether a function is one that reads arguments; built-in ones are strings."""
    return isinstance(code, CodeType) and code.co_filename.endswith(ARGUMENT_READERS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the tables and write them to a page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--page", type=Path, help="also write the results into this page")
    parser.add_argument("--kinds", default=",".join(SIZES), help="some of the kinds, by name")
    options = parser.parse_args(arguments)
    empty, _ = measure(growing.operations(1))
    words = ("input", "n", "CPU s at 4n", "×", "MB at 4n", "×", "written MB at 4n", "×", "")  # noqa: RUF001
    growth = table(words, [grown(kind, SIZES[kind], empty) for kind in options.kinds.split(",")])
    heads = ("file", "kB gz", "CPU s", "peak MB", "written MB", "before")
    attacks = table(heads, [attacked(title, *attack) for title, attack in ATTACKS.items()])
    part = "\n\n".join((growth, attacks, reading_share(), machine()))
    print(part)
    if options.page:
        write_part(options.page, "growth", part)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
