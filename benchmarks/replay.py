"""Package every operator of recorded traces, replay all on the CPU, and report the outcomes.

    python benchmarks/replay.py TRACES --python .venv-replay/bin/python [--page docs/replay.md]

TRACES is a folder; the Python needs torch. Exit code 1 if a packaged call fails.
"""

import argparse
import io
import json
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from jarvis.pipeline import generate_report
from jarvis.recorded_calls.schema import NAMESPACE, signatures
from jarvis.replay import Refusal
from jarvis.replay.package import RUNNER_NAME, package_bytes, replay_entries
from jarvis.text.markdown import Markdown, cell, prose, table

QUICK = ("--device", "cpu", "--warmup", "0", "--iterations", "1", "--json")
REPLAYED, EQUIVALENT, FAILED = "replayed", "replayed by an equivalent", "failed"

PAGE = """\
# Replay packages

<!-- Written by `make replays TRACES=folder`; do not edit. -->

A replay package contains the recorded calls of operators and a program that times them on another
machine; it needs only torch and the standard library. `jarvis replay RUN` lists what can be
packaged, `jarvis replay RUN --op NAME -o FILE` packages it; the page *Replay* does both. Building a
package needs no torch: the arguments of {operators} operators are in
`jarvis/recorded_calls/operators.txt`, which a test compares with torch's registry.

## Packaged calls

Every call of the recorded traces that can be packaged, replayed once on a CPU with torch {torch}.
A call is one operator with one set of arguments. Shares are of the kernel time of the framework's
own operators (`aten::`); other operators are listed under Rejected.

{traces}

## Replayed by an equivalent

The CPU has no kernel for these. The program calls an equivalent operator, reports it, and prints no
times.

{equivalents}

## Rejected

{refused}
"""

TRACE_HEAD = (
    "Trace",
    "Operators' kernel time",
    "In packages",
    "Calls packaged",
    "Run themselves",
    "By an equivalent",
    "Failed",
    "Rows refused",
)
REFUSED_HEAD = ("Trace", "Operators", "Rows", "Share of all kernel time", "Reason")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one trace: times in µs, ``calls`` as the replay program reported them."""

    trace: str
    total_us: float
    operators_us: float
    packaged_us: float
    refusals: list[Refusal]
    calls: list[dict[str, Any]]
    torch: str

    def count(self, status: str) -> int:
        """Return the calls with this status."""
        return sum(call["status"] == status for call in self.calls)


def main() -> int:
    """Replay all traces of a folder and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("traces", type=Path, help="folder with traces")
    parser.add_argument("--python", required=True, help="a Python with torch")
    parser.add_argument("--page", type=Path, help="page to write")
    options = parser.parse_args()
    outcomes = []
    for path in sorted([*options.traces.glob("*.json.gz"), *options.traces.glob("*/*.json")]):
        outcome = replayed(path, str(Path(options.python).absolute()))
        print(*trace_cells(outcome), sep=" | ", flush=True)
        for call in outcome.calls:
            if call["status"] == FAILED:
                print(f"    {call['op_name']} {call['shapes']}: {call['reason']}")
        outcomes.append(outcome)
    if options.page:
        options.page.write_text(page(outcomes), encoding="utf-8")
    return 1 if any(outcome.count(FAILED) for outcome in outcomes) else 0


def replayed(path: Path, python: str) -> Outcome:
    """Package all operators of a trace and run the package on the CPU."""
    rows = generate_report(path).operations.to_dicts()
    entries, refusals = replay_entries(rows)
    refused = {refusal.uid for refusal in refusals}
    own = [row for row in rows if row["name"].startswith(NAMESPACE)]
    result = run(entries, python) if entries else {"calls": [], "torch": ""}
    return Outcome(
        trace=path.name.partition(".json")[0],
        total_us=time_us(rows),
        operators_us=time_us(own),
        packaged_us=time_us(row for row in own if row["uid"] not in refused),
        refusals=refusals,
        calls=result["calls"],
        torch=result["torch"],
    )


def time_us(rows: Iterable[dict[str, Any]]) -> float:
    """Return the kernel time of operations in µs."""
    return sum(float(row["kernel_time_us"]) for row in rows)


def run(entries: list[dict[str, Any]], python: str) -> dict[str, Any]:
    """Run the program of a package and return its results for these calls."""
    with TemporaryDirectory() as folder:
        packed = io.BytesIO(package_bytes("a trace", entries))
        zipfile.ZipFile(packed).extractall(folder)
        command = [python, "-W", "ignore", RUNNER_NAME, *QUICK]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if not done.stdout:
        sys.exit(done.stderr)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def page(outcomes: list[Outcome]) -> str:
    """Return the page as Markdown."""
    named: Counter[tuple[str, str]] = Counter()
    for outcome in outcomes:
        for call in outcome.calls:
            if call["status"] == EQUIVALENT:
                named[call["op_name"], call["reason"].partition(" instead")[0]] += 1
    return PAGE.format(
        operators=len(signatures()),
        torch=next(outcome.torch for outcome in outcomes if outcome.torch),
        traces=table(TRACE_HEAD, (map(prose, trace_cells(one)) for one in outcomes)),
        equivalents=table(
            ("Operator", "Replayed as", "Calls"),
            ((cell(op), prose(name), prose(str(n))) for (op, name), n in named.items()),
        ),
        refused=table(REFUSED_HEAD, (cells for one in outcomes for cells in refused_cells(one))),
    )


def trace_cells(outcome: Outcome) -> tuple[str, ...]:
    """Return a row of the first table."""
    share = 100 * outcome.packaged_us / outcome.operators_us if outcome.operators_us else None
    return (
        outcome.trace,
        f"{outcome.operators_us / 1000:.3f} ms",
        "no such operators" if share is None else f"{share:.2f}%",
        str(len(outcome.calls)),
        str(outcome.count(REPLAYED)),
        str(outcome.count(EQUIVALENT)),
        str(outcome.count(FAILED)),
        str(len(outcome.refusals)),
    )


def refused_cells(outcome: Outcome) -> Iterator[tuple[Markdown, ...]]:
    """Return the rows of the last table: by reason, most time first."""
    by_reason: dict[str, list[Refusal]] = {}
    for refusal in outcome.refusals:
        by_reason.setdefault(refusal.reason, []).append(refusal)
    for reason, group in sorted(by_reason.items(), key=lambda pair: (-_time_us(pair[1]), pair[0])):
        names = dict.fromkeys(refusal.op_name.partition("->")[0] for refusal in group)
        share = 100 * _time_us(group) / outcome.total_us if outcome.total_us else 0.0
        yield (
            prose(outcome.trace),
            Markdown(", ".join(map(cell, names))),
            prose(str(len(group))),
            prose(f"{share:.2f}%"),
            prose(reason),
        )


def _time_us(refusals: list[Refusal]) -> float:
    return sum(refusal.kernel_time_us for refusal in refusals)


if __name__ == "__main__":
    sys.exit(main())
