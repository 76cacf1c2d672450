"""Fuzz every kind of input on all cores: no traceback, no hang, no wrong result.

python -m tests.fuzz [--kind K] [--count N] [--seed S]

A failure prints what failed, and the command that gives the same input again.
"""

import argparse
import os
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import redirect_stdout
from pathlib import Path
from typing import NamedTuple

from jarvis.core.workspace import HOME_VARIABLE
from tests.fuzz import KINDS


class Share(NamedTuple):
    """Inputs of one process."""

    kind: str
    count: int
    seed: int


class Result(NamedTuple):
    """Outcome of a share; ``failure`` is empty on success."""

    share: Share
    outcomes: Counter[str]
    failure: str
    took_s: float
    peak_mb: float


def _run(share: Share) -> Result:
    begin = time.monotonic()
    outcomes: Counter[str] = Counter()
    failure = ""
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(sys.stderr):
        os.environ[HOME_VARIABLE] = str(Path(folder) / "home")
        try:
            outcomes = KINDS[share.kind].fuzz(share.count, share.seed, Path(folder))
        except AssertionError as error:
            failure = str(error) or repr(error)
        except Exception:
            failure = traceback.format_exc()
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Result(share, outcomes, failure, time.monotonic() - begin, peak_mb)


def _shares(kind: str, count: int, seed: int) -> Iterator[Share]:
    size = KINDS[kind].at_once
    for begin in range(0, count, size):
        yield Share(kind, min(size, count - begin), seed + begin)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; return 1 if an input failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kind", choices=list(KINDS), action="append", help="default: all")
    parser.add_argument("--count", type=int, help="inputs of each kind (default: of a long run)")
    parser.add_argument("--seed", type=int, default=0, help="of the first input (default: 0)")
    options = parser.parse_args(arguments)
    kinds = options.kind or list(KINDS)
    shares = [
        share
        for kind in kinds
        for share in _shares(kind, options.count or KINDS[kind].count, options.seed)
    ]
    results = []
    with ProcessPoolExecutor() as pool:
        for done in as_completed([pool.submit(_run, share) for share in shares]):
            results.append(done.result())
            _print_failure(results[-1])
    for kind in kinds:
        _print_summary(kind, [result for result in results if result.share.kind == kind])
    return int(any(result.failure for result in results))


def _print_failure(result: Result) -> None:
    if result.failure:
        kind, count, seed = result.share
        print(
            f"{result.failure}\n^ python -m tests.fuzz --kind {kind} --count {count} --seed {seed}"
        )


def _print_summary(kind: str, results: list[Result]) -> None:
    outcomes = sum((result.outcomes for result in results), Counter[str]())
    failed = sum(1 for result in results if result.failure)
    took_s = sum(result.took_s for result in results)
    peak_mb = max(result.peak_mb for result in results)
    print(f"{kind}: {took_s:.0f} s of a core, at most {peak_mb:.0f} MB, {failed} shares failed")
    for outcome, number in outcomes.most_common():
        print(f"{number:8d} {outcome}")


if __name__ == "__main__":
    raise SystemExit(main())
