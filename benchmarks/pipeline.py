"""Measure time and memory of each stage relative to loading the JSON.

python benchmarks/pipeline.py [--sizes 100,500,1500] [--repeats 3] [--trace PATH] [--page FILE]

Traces of about these sizes (MB of JSON) repeat the events of the simulated sample or of
``--trace``. Each case runs in a separate process, timed after imports and the loading of compiled
kernels. The minimum of CPU seconds and the maximum of peak memory are reported. Compare ratios of
one run: absolute times depend on the machine.
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson

BASELINE, JSON_LOAD = "igzip + orjson.loads", "json.load(gzip.open())"
TABLES, REPORT = "trace to tables", "trace to full report"
ANALYSIS, REOPENED = "whole analysis", "tables opened again"

PREPARE = {
    BASELINE: "import gc, orjson; from isal import igzip; gc.disable()",
    JSON_LOAD: "import gzip, json",
    TABLES: "from jarvis.trace import compiled, read_trace",
    REPORT: (
        "from jarvis.trace import compiled; from jarvis.pipeline import generate_report; "
        "from jarvis.reports.csv import write_csvs; "
        "from jarvis.run.store import write_parquet"
    ),
    REOPENED: (
        "import os, subprocess;"
        "os.environ.update(JARVIS_HOME=str(out), JARVIS_TRACE_CACHE_MB='9000');"
        "read = 'import sys; from jarvis.trace import read_trace; read_trace(sys.argv[1])';"
        "subprocess.run([sys.executable, '-c', read, str(trace)], check=True);"
        "from jarvis.trace import compiled, read_trace"
    ),
    ANALYSIS: (
        "import jarvis.simulation.replay; from jarvis.trace import compiled; "
        "from jarvis.pipeline import analyze"
    ),
}
RUN = {
    BASELINE: "orjson.loads(igzip.open(trace).read())",
    JSON_LOAD: "json.load(gzip.open(trace))",
    TABLES: "read_trace(trace)",
    REPORT: (
        "report = generate_report(trace); write_csvs(report.sheets(), out / 'csv'); "
        "(out / 'parquet').mkdir(parents=True, exist_ok=True); "
        "[write_parquet(table, out / f'{name}.parquet') "
        "for name, table in report.sheet_tables().items()]"
    ),
    REOPENED: "read_trace(trace)",
    ANALYSIS: "analyze(trace, output_dir=out / 'run')",
}
RARELY = "from jarvis.core.memory_tuning import raise_thresholds; raise_thresholds();"
"""The setting of the command line and jobs; the baseline disables garbage collection."""

MEASURED = """
import json, re, sys, time
from pathlib import Path
trace, out = Path(sys.argv[1]), Path(sys.argv[2])
{prepare}
def peak_mb():
    return int(re.search("VmHWM:[^0-9]+([0-9]+)", Path("/proc/self/status").read_text())[1]) / 1024
imports = time.process_time(), peak_mb()
begin, wall = time.process_time(), time.perf_counter()
{run}
print(json.dumps([*imports, time.process_time() - begin, time.perf_counter() - wall, peak_mb()]))
"""

UNKEPT = os.environ | {"JARVIS_TRACE_CACHE_MB": "0"}
"""Only the case "tables opened again" uses the cache."""

# Largest ratio to the baseline's CPU time, by size; memory as MB fixed and per MB of JSON.
ALLOWED_RATIO = {TABLES: {95: 0.6, 400: 0.5}, REPORT: {95: 1.0}}
ALLOWED_MEMORY = {TABLES: (250, 0.8), REPORT: (250, 1.0)}


@dataclass(frozen=True, slots=True)
class Cost:
    """Costs of one case: imports, then the work."""

    import_cpu_s: float
    import_mb: float
    cpu_s: float
    wall_s: float
    peak_mb: float


def measure(case: str, trace: Path, repeats: int) -> Cost:
    """Run a case in new processes; return minimum times and maximum memory."""
    rarely = "" if case in (BASELINE, JSON_LOAD) else RARELY
    code = MEASURED.format(prepare=rarely + PREPARE[case], run=RUN[case])
    costs = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as out:
            command = [sys.executable, "-c", code, str(trace), out]
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=UNKEPT)
        if done.returncode:
            raise SystemExit(f"{case} failed on {trace}:\n{done.stderr}")
        costs.append(Cost(*json.loads(done.stdout.splitlines()[-1])))
    return Cost(
        import_cpu_s=min(c.import_cpu_s for c in costs),
        import_mb=min(c.import_mb for c in costs),
        cpu_s=min(c.cpu_s for c in costs),
        wall_s=min(c.wall_s for c in costs),
        peak_mb=max(c.peak_mb for c in costs),
    )


def simulated(folder: Path, megabytes: int) -> Path:
    """Write a trace of about this size from the simulated sample."""
    from jarvis.sample import write_sample

    path = folder / f"simulated-{megabytes}.json.gz"
    steps = max(1, round(megabytes / MB_PER_STEP))
    return write_sample(path, steps=steps, world_size=1, scale="large")


MB_PER_STEP = 4.66
"""JSON of one step of the large sample."""


def repeated(folder: Path, original: Path, megabytes: int) -> Path:
    """Write a trace of about this size that repeats the events of a recorded one."""
    raw = original.read_bytes()
    document = orjson.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    events = document.pop("traceEvents")
    path = folder / f"repeated-{megabytes}.json.gz"
    with gzip.open(path, "wb", compresslevel=6) as out:
        out.write(orjson.dumps(document)[:-1] + b',"traceEvents":[\n')
        written = 0
        for copy in _copies(events):
            text = b",\n".join(map(orjson.dumps, copy))
            out.write((b",\n" if written else b"") + text)
            written += len(text)
            if written >= megabytes * 1e6:
                break
        out.write(b"\n]}")
    return path


def _copies(events: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield the events repeatedly, with shifted times and new ids."""
    timed = [e for e in events if isinstance(e.get("ts"), int | float)]
    starts = [e["ts"] for e in timed]
    span = max(e["ts"] + e.get("dur", 0) for e in timed) - min(starts)
    ids = ("correlation", "External id", "Sequence number")
    numbers = [n for e in events for n in (e.get("id"), *map((e.get("args") or {}).get, ids))]
    step = max((n for n in numbers if isinstance(n, int)), default=0) + 1
    copy = 0
    while True:
        later: list[dict[str, Any]] = []
        for event in events if copy == 0 else timed:
            moved = dict(event)
            if "ts" in moved:
                moved["ts"] = round(moved["ts"] + copy * span, 3)
            if isinstance(moved.get("id"), int):
                moved["id"] += copy * step
            if isinstance(moved.get("args"), dict):
                arguments = dict(moved["args"])
                for key in ids:
                    if isinstance(arguments.get(key), int):
                        arguments[key] += copy * step
                moved["args"] = arguments
            later.append(moved)
        yield later
        copy += 1


def json_megabytes(trace: Path) -> float:
    """Return the uncompressed size of a trace."""
    with gzip.open(trace) if trace.suffix == ".gz" else trace.open("rb") as stream:
        return sum(len(block) for block in iter(lambda: stream.read(1 << 20), b"")) / 1e6


def verdict(case: str, ratio: float, peak_mb: float, size_mb: float) -> str:
    """Return the limits of a case and whether it meets them."""
    limits = [limit for size, limit in ALLOWED_RATIO.get(case, {}).items() if size_mb >= size]
    if not limits:
        return ""
    most = limits[-1]
    fixed, per_mb = ALLOWED_MEMORY[case]
    memory = fixed + per_mb * size_mb
    marks = ("ok" if ratio <= most else "MISSED", "ok" if peak_mb <= memory else "MISSED")
    return f"CPU <= {most:.1f}x {marks[0]}, memory <= {memory:.0f} MB {marks[1]}"


def compare(trace: Path, cases: Sequence[str], repeats: int) -> Iterator[str]:
    """Yield one line for each case."""
    size_mb = json_megabytes(trace)
    stored_mb = trace.stat().st_size / 1e6
    yield f"\n{trace.name}: {size_mb:.0f} MB of JSON, {stored_mb:.1f} MB stored"
    yield (
        f"{'case':24s} {'import s':>8s} {'MB':>5s} {'CPU s':>8s} {'s/GB':>6s} {'wall s':>7s}"
        f" {'x orjson':>9s} {'peak MB':>8s}"
    )
    baseline: Cost | None = None
    for case in cases:
        cost = measure(case, trace, repeats)
        baseline = baseline or cost
        ratio = cost.cpu_s / baseline.cpu_s
        yield (
            f"{case:24s} {cost.import_cpu_s:8.2f} {cost.import_mb:5.0f} {cost.cpu_s:8.2f}"
            f" {1000 * cost.cpu_s / size_mb:6.2f} {cost.wall_s:7.2f} {ratio:9.2f}"
            f" {cost.peak_mb:8.0f}  {verdict(case, ratio, cost.peak_mb, size_mb)}"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Create the traces and measure the cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="100,500,1500", help="MB of JSON, separated by commas")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--trace", type=Path, help="a .json or .json.gz trace to repeat instead")
    parser.add_argument("--page", type=Path, help="also write the results as a page")
    parser.add_argument("--cases", default=",".join(RUN), help="some of the cases, by name")
    options = parser.parse_args(arguments)
    cases = [case for case in RUN if case in options.cases.split(",")]
    if BASELINE not in cases:
        parser.error(f"the case {BASELINE!r} is what the others are compared with")
    lines = []
    for size in map(int, options.sizes.split(",")):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            trace = (
                repeated(folder, options.trace, size) if options.trace else simulated(folder, size)
            )
            for line in compare(trace, cases, options.repeats):
                print(line, flush=True)
                lines.append(line.rstrip())
    if options.page:
        text = PAGE.format(table="\n".join(lines).strip(), machine=machine())
        options.page.write_text(text + other_parts(options.page))
    return 0


PAGE = """# Benchmarks

`make bench` wrote this page. It compares the costs of the reader and the report with those of
loading the JSON, measured in one run. Imports and the loading of compiled kernels are listed
separately; *peak MB* is the whole process. The last column has the limits of a case.

```
{table}
```

{machine}
"""


def other_parts(page: Path) -> str:
    """Return the sections of the page that other benchmarks wrote."""
    text = page.read_text() if page.is_file() else ""
    _, found, rest = text.partition("\n## ")
    return found + rest


def machine() -> str:
    """Return the cores and versions that the results were measured with."""
    packages = ", ".join(
        f"{name} {version(name)}" for name in ("polars", "numba", "orjson", "isal")
    )
    return f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, {packages}."


if __name__ == "__main__":
    raise SystemExit(main())
