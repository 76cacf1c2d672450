"""No share is below 0 or above 100%: in the tables, results and reports of each real trace."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pytest

from jarvis.cli import main
from jarvis.ranks.run import DistributedRun
from jarvis.sample import Faults, Job, write_job
from jarvis.sample.faults import Slow
from tests.recorded_runs import RECORDED, RecordedRun

SHARE = re.compile("pct|percent|share(?!d)|%", re.IGNORECASE)
"""What names of shares contain."""

RATIOS = (
    *("pct_roofline", "efficiency", "% of roofline", "% of peak"),  # above 100% it is an anomaly
    *("baseline_pct", "best_pct", "best_row_pct", "reached_pct", "convolving_pct"),
    *("estimated_bandwidth_pct", "expected_pct", "slower_pct"),
    "impact/compute_pct",  # of idle time and communication, which are no part of compute
)
"""Percentages, and keys of ``results.json``, that are of something else than a whole."""

TOLERANCE = 1e-6

SAID = re.compile(r"(?<![\d.,])([\d,]+(?:\.\d+)?)%")
SCALE = "110%"
"""From where an efficiency is an anomaly."""

DISTRIBUTED = {"multirank-4": "traces/multirank-4", "dlrm-v100": "ranks/dlrm-v100", "sample": ""}


def numbers(value: Any, key: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers of a JSON document, each with its keys."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from numbers(each, f"{key}/{name}")
    elif isinstance(value, list):
        for each in value:
            yield from numbers(each, key)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield key, value


def shares_of_tables(root: Path) -> Iterator[tuple[str, float]]:
    """Yield the columns that are shares, each with its smallest and its largest value."""
    for path in root.rglob("*.parquet"):
        table = pl.read_parquet(path)
        for name, dtype in table.schema.items():
            if SHARE.search(name) and dtype.is_numeric() and table[name].count():
                whole = 100 if "pct" in name or "percent" in name else 1
                for value in (table[name].min(), table[name].max()):
                    yield f"{path.stem}/{name}", 100 * float(value) / whole


def shares(root: Path) -> Iterator[tuple[str, float]]:
    """Yield the names and values of the shares in all files of a run and of its ranks."""
    yield from shares_of_tables(root)
    for path in root.rglob("results.json"):
        for key, value in numbers(orjson.loads(path.read_bytes())):
            if SHARE.search(key):
                yield key, value
    for path in root.rglob("*.md"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if SCALE not in line:
                yield from ((line, float(said.replace(",", ""))) for said in SAID.findall(line))


def no_share_is_above_all(root: Path) -> None:
    found = list(shares(root))
    assert found
    wrong = {
        (name, value)
        for name, value in found
        if not -TOLERANCE <= value <= 100 + TOLERANCE and not any(ratio in name for ratio in RATIOS)
    }
    assert not wrong


@pytest.mark.parametrize("name", RECORDED)
def test_no_share_of_a_recorded_trace_is_above_all(recorded_run: RecordedRun, name: str) -> None:
    no_share_is_above_all(recorded_run(name))


@pytest.mark.parametrize("name", DISTRIBUTED)
def test_no_share_of_several_ranks_is_above_all(
    request: pytest.FixtureRequest, tmp_path: Path, name: str
) -> None:
    if name == "sample":
        folder = tmp_path / "sample"
        folder.mkdir()
        job = Job(3, 4, scale="tiny", faults=Faults(slow=(Slow(1, 1.3),)))
        write_job(job, {rank: folder / f"rank{rank}.json" for rank in range(4)})
    else:
        reference: Path = request.getfixturevalue("reference_root")
        folder = reference / DISTRIBUTED[name]
    arguments = ["analyze", str(folder), "--output-dir", str(tmp_path / "run"), "--jobs", "1"]
    assert main(arguments) == 0
    assert len(DistributedRun.load(tmp_path / "run").manifest.usable) == 4
    no_share_is_above_all(tmp_path / "run")
