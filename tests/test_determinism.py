"""The same trace, options and versions give the same files, byte for byte, time stamps apart.

Two processes with other numbers of threads and other hash seeds write into other folders, each
from a copy of the trace of its own.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import optional
from tests.builders import TraceBuilder, trace
from tests.good_runs import eventful_trace

REAL_TRACE = "mi300-qwen1.5-0.5b.json.gz"
CREATED = re.compile(rb'"created": *"[^"]*"')
ANALYSE = """
import sys
from pathlib import Path
from jarvis.pipeline import analyze
folder = Path(sys.argv[1])
for trace in sorted(folder.glob("*.json*")):
    analyze(trace, model_name="Same", output_dir=folder / "runs" / trace.name.partition(".")[0])
"""
SURROUNDINGS = (
    {"POLARS_MAX_THREADS": "1", "PYTHONHASHSEED": "1"},
    {"POLARS_MAX_THREADS": "2", "PYTHONHASHSEED": "2"},
)


def slow_product() -> TraceBuilder:
    """Return a trace with a bottleneck, for which a run has a replay package."""
    return (
        trace(device="AMD Instinct MI300X")
        .op("aten::mm", [[4096, 4096]] * 2)
        .launches("slow", us=2000)
    )


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of the runs in ``folder`` without the time and the folder of the trace."""

    def stable(content: bytes) -> bytes:
        return CREATED.sub(b'"created":"..."', content.replace(bytes(folder), b"..."))

    runs = folder / "runs"
    return {
        path.relative_to(runs).as_posix(): stable(path.read_bytes())
        for path in sorted(runs.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, bytes]]:
    """The files of the same traces, analyzed in two processes at once."""
    reference = optional.reference_root()
    processes, folders = [], []
    for number, surroundings in enumerate(SURROUNDINGS):
        folder = tmp_path_factory.mktemp(f"run{number * 'n'}")
        eventful_trace().write(folder / "built.json")
        slow_product().write(folder / "slow.json")
        if reference is not None:
            shutil.copyfile(reference / "traces" / REAL_TRACE, folder / REAL_TRACE)
        command = [sys.executable, "-c", ANALYSE, str(folder)]
        environment = os.environ | surroundings | {"JARVIS_HOME": str(folder / "home")}
        processes.append(subprocess.Popen(command, env=environment))
        folders.append(folder)
    assert [process.wait() for process in processes] == [0, 0]
    return [contents(folder) for folder in folders]


def test_the_same_files_are_written(twice: list[dict[str, bytes]]) -> None:
    first, second = twice
    assert list(first) == list(second)
    assert {Path(name).suffix for name in first} >= {
        ".csv",
        ".json",
        ".md",
        ".parquet",
        ".xlsx",
        ".zip",
    }


def test_every_byte_is_the_same(twice: list[dict[str, bytes]]) -> None:
    first, second = twice
    assert [name for name in first if first[name] != second[name]] == []


def test_a_real_trace_is_among_them(twice: list[dict[str, bytes]], reference_root: Path) -> None:
    assert (reference_root / "traces" / REAL_TRACE).is_file()
    runs = {name.partition("/")[0] for name in twice[0]}
    assert runs == {"built", "slow", REAL_TRACE.partition(".")[0]}
