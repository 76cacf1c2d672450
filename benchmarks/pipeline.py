"""Time and memory of each stage, beside what merely loading the JSON costs.

python benchmarks/pipeline.py [--steps 8] [--repeats 3] [--trace PATH]

Every case runs in a process of its own; CPU seconds are the least of the repeats, peak memory the
most. The ratio is to the first case, measured in the same run: machines differ and are noisy,
ratios hold.
"""

import argparse
import gzip
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

IMPORTS = "import jarvis.pipeline, jarvis.trace, gzip, json, sys; from pathlib import Path; "
CASES = {
    "import Jarvis": IMPORTS,
    "json.load(gzip.open())": IMPORTS + "json.load(gzip.open(sys.argv[1]))",
    "tables": IMPORTS + "jarvis.trace.read_trace(sys.argv[1])",
    "tables, call tree, links": IMPORTS
    + "t = jarvis.trace.read_trace(sys.argv[1]); t.call_tree; t.launches; t.backwards",
    "report sheets": IMPORTS + "jarvis.pipeline.generate_report(Path(sys.argv[1])).sheets()",
    "whole analysis": IMPORTS
    + "jarvis.pipeline.analyze(Path(sys.argv[1]), output_dir=Path(sys.argv[2]) / 'run')",
}
START, BASELINE = "import Jarvis", "json.load(gzip.open())"


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds and peak memory of one case."""

    cpu_s: float
    peak_mb: float


def measure(code: str, trace: Path, repeats: int) -> Cost:
    """Run ``code`` in fresh processes; the least CPU time and the largest peak."""
    costs = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as out:
            process = subprocess.Popen([sys.executable, "-c", code, str(trace), out])
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                raise SystemExit(f"failed: {code}")
            costs.append(Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024))
    return Cost(min(c.cpu_s for c in costs), max(c.peak_mb for c in costs))


def json_megabytes(trace: Path) -> float:
    """Uncompressed size of a trace."""
    with gzip.open(trace) if trace.suffix == ".gz" else trace.open("rb") as stream:
        return sum(len(block) for block in iter(lambda: stream.read(1 << 20), b"")) / 1e6


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one line for each case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=8, help="steps of the simulated trace")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--trace", type=Path, help="a .json.gz trace to use instead")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        trace = options.trace
        if trace is None:
            from jarvis.sample import write_sample

            trace = Path(folder) / "sample.json.gz"
            write_sample(trace, steps=options.steps, world_size=1, scale="large")
        size_mb = json_megabytes(trace)
        print(f"{trace.name}: {size_mb:.0f} MB of JSON, {trace.stat().st_size / 1e6:.1f} MB stored")
        costs = {name: measure(code, trace, options.repeats) for name, code in CASES.items()}
    start, baseline = costs[START], costs[BASELINE]
    print(f"{'case':28s} {'CPU s':>8s} {'x JSON load':>12s} {'peak MB':>9s} {'MB/MB JSON':>11s}")
    for name, cost in costs.items():
        ratio = (cost.cpu_s - start.cpu_s) / (baseline.cpu_s - start.cpu_s)
        growth = (cost.peak_mb - start.peak_mb) / size_mb
        print(f"{name:28s} {cost.cpu_s:8.2f} {ratio:12.2f} {cost.peak_mb:9.0f} {growth:11.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
