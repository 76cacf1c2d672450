"""The cost of loading an archive grows with its rows: bytes read and written, and memory."""

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

import polars as pl
import pytest

from jarvis.core.workspace import RunPaths
from jarvis.server.jobs.kinds.analyses import Load
from jarvis.server.retention.removal import remove_analysis
from jarvis.server.storage.archive import save_archive
from jarvis.server.submission import Submission, submit
from tests.builders import trace

SIZES = (10, 3_000, 6_000, 12_000)
"""Numbers of rows; the cost of the first is subtracted as the fixed cost."""

MOST = 2.3
GROWING = ("gpu_work", "host_slices", "roofline_calls")
IO = Path("/proc/self/io")
"""Of this process and its waited-for children."""

pytestmark = pytest.mark.skipif(not IO.exists(), reason="this system counts no bytes of a process")


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Archives of one analysis with more and more rows in its tables."""
    folder = tmp_path_factory.mktemp("archives")
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12)
    saved = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(folder))
        root = submit(Submission(built.write(folder / "tiny.json"))).root
        first = {name: pl.read_parquet(RunPaths(root).table(name)).head(1) for name in GROWING}
        for rows in SIZES:
            for name, frame in first.items():
                pl.concat([frame] * rows).write_parquet(
                    RunPaths(root).table(name), compression="uncompressed"
                )
            saved.append(folder / f"{rows}.jarvis.zip")
            save_archive(root, saved[-1])
    return saved


@pytest.fixture(autouse=True)
def _empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """Bytes read and written, and the peak of Python's memory, while the block runs."""
    before, counts = io_bytes(), {}
    tracemalloc.start()
    try:
        yield counts
    finally:
        counts["memory"] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    counts |= {name: after - before[name] for name, after in io_bytes().items()}


def io_bytes() -> dict[str, int]:
    lines = (line.split(": ") for line in IO.read_text().splitlines())
    return {name: int(count) for name, count in lines if name in ("rchar", "wchar")}


def grows_as_its_input(counts: list[dict[str, int]]) -> None:
    """Whether twice the rows cost at most ``MOST`` times as much, of everything counted."""
    constant, *grown = counts
    for name in constant:
        costs = [max(1, cost[name] - constant[name]) for cost in grown]
        for before, after in pairwise(costs):
            assert after <= MOST * before, (name, costs)


def cost_of_loading(archive: Path) -> dict[str, int]:
    with counted() as cost:
        made = Load(archive).run(lambda _: None, "a1b2")
    remove_analysis(made.analysis_id or "")
    return cost


def test_the_cost_of_a_job_grows_with_its_rows(archives: list[Path]) -> None:
    # A process of its own: this one also counts what the children of earlier tests wrote.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        # The first imports what is imported late.
        _, *counts = process.map(cost_of_loading, (archives[0], *archives))
    grows_as_its_input(counts)


_COMMAND = """
import sys
from jarvis.cli import main
code = main(["archive", "load", sys.argv[1]])
print(open("/proc/self/io").read())
raise SystemExit(code)
"""


def test_the_cost_of_the_command_grows_with_its_rows(archives: list[Path], tmp_path: Path) -> None:
    counts = []
    for archive in archives:
        ended = subprocess.run(
            [sys.executable, "-c", _COMMAND, str(archive)],
            env=os.environ | {"JARVIS_HOME": str(tmp_path / archive.stem)},
            capture_output=True,
            text=True,
            check=True,
        )
        lines = (line.split(": ") for line in ended.stdout.splitlines() if ": " in line)
        counts.append({n: int(c) for n, c in lines if n in ("rchar", "wchar")})
    grows_as_its_input(counts)
