"""Packages replayed by the real framework on the CPU, and our table against its registry.

torch is in an environment of its own, so that nothing else of the suite can come to need it.
"""

import importlib
import io
import json
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from jarvis.perf_report import PerfReport
from jarvis.pipeline import generate_report
from jarvis.recorded_calls.calls import replay_ir
from jarvis.recorded_calls.schema import UNKNOWN, signatures
from jarvis.replay import package
from tests import optional
from tests.conftest import skip_or_fail
from tests.replay.test_replay_calls import NOTHING, bf16, numbers, row, scalar

HERE = Path(__file__).parent
TRACES = ("h100-bert-small", "mi300-resnet-ddp-checkpoint", "normalization-layers")
"""Traces whose calls are replayed here; ``make replays`` replays those of all."""

COVERED_PCT = 95.0
QUICK = ("--device", "cpu", "--warmup", "0", "--iterations", "1")
SMALL = ("--memory-limit", "0.1", "--work-limit", "2")


@pytest.fixture(scope="session")
def torch_python() -> str:
    """The Python that has torch; ``make setup-replay`` makes it."""
    python = optional.torch_python()
    if python is None:
        skip_or_fail("no Python with torch: run `make setup-replay` or set JARVIS_REPLAY_PYTHON")
    return python


def run(python: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [python, "-W", "ignore", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def replayed(python: str, entries: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """Package the entries, unpack the package, and replay them."""
    packed = io.BytesIO(package.package_bytes("a test", entries))
    zipfile.ZipFile(packed).extractall(folder)
    done = run(python, package.RUNNER_NAME, *QUICK, *SMALL, "--json", cwd=folder)
    assert done.stdout, done.stderr
    calls: list[dict[str, Any]] = json.loads(done.stdout)["calls"]
    failed = [call for call in calls if call["status"] == "failed"]
    assert not failed
    assert done.returncode == 0
    return calls


def test_signatures_are_those_of_the_registry(
    torch_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = {
        name: [
            {"overload": one.overload, "arguments": [astuple(a) for a in one.arguments]}
            for one in found
        ]
        for name, found in signatures().items()
    }
    given = json.dumps({"signatures": table, "equivalents": equivalents(monkeypatch)})
    done = run(torch_python, str(HERE / "check_registry.py"), input=given)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def equivalents(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    from tests.replay import fake_torch

    monkeypatch.setitem(sys.modules, "torch", fake_torch)
    monkeypatch.syspath_prepend(package.RUNNER_FOLDER)
    for name in ("replay_arguments", "replay_equivalents"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    names = list(importlib.import_module("replay_equivalents").EQUIVALENTS)
    for name in ("replay_arguments", "replay_equivalents"):
        monkeypatch.delitem(sys.modules, name)
    return names


def test_what_a_profiler_records_can_be_replayed(torch_python: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    done = run(torch_python, str(HERE / "recorded_program.py"), str(trace))
    assert done.returncode == 0, done.stderr
    rows = list(recorded_rows(json.loads(trace.read_text())))
    entries, refusals = package.replay_entries(rows)
    calls = replayed(torch_python, entries, tmp_path / "package")
    assert len(calls) > 300
    assert {call["status"] for call in calls} == {"replayed"}
    # Views launch nothing and are not in the table; the rest is what no profiler records.
    assert {refusal.reason for refusal in refusals} - {UNKNOWN} == {
        "the trace does not record its argument indices",
        "neither the trace nor its kernels show the dtype of its tensors",
    }


def recorded_rows(trace: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The operator calls of a trace as rows of the operations table, without any times."""
    figures = (
        "kernel_time_us",
        "kernel_time_us_mean",
        "flops",
        "bytes",
        "compute",
        "peak_tflops",
        "peak_tb_per_s",
    )
    for event in trace["traceEvents"]:
        if event.get("cat") == "cpu_op" and event["name"].startswith("aten::"):
            given = event["args"]
            yield {
                "uid": given["External id"],
                "name": event["name"],
                "input_dims": repr(_tuples(given.get("Input Dims", []))),
                "input_types": repr(_tuples(given.get("Input type", []))),
                "input_strides": repr(_tuples(given.get("Input Strides", []))),
                "concrete_inputs": repr(_tuples(given.get("Concrete Inputs", []))),
                "kernels": [],
                "operation_count": 1,
                **dict.fromkeys(figures),
            }


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


@pytest.fixture(scope="session")
def reports(reference_root: Path) -> dict[str, PerfReport]:
    """The performance reports of a few real traces."""
    return {name: generate_report(reference_root / "traces" / f"{name}.json.gz") for name in TRACES}


def test_most_of_real_traces_is_packaged(reports: dict[str, PerfReport]) -> None:
    for name, report in reports.items():
        rows = [row for row in report.operations.to_dicts() if row["name"].startswith("aten::")]
        packaged = [row for row in rows if package.replay_entries([row])[0]]
        share = 100 * _time_us(packaged) / _time_us(rows)
        assert share >= COVERED_PCT, name


def _time_us(rows: list[dict[str, Any]]) -> float:
    return sum(float(row["kernel_time_us"]) for row in rows)


def test_calls_of_real_traces_run_on_the_cpu(
    torch_python: str, reports: dict[str, PerfReport], tmp_path: Path
) -> None:
    rows = [row for report in reports.values() for row in report.operations.to_dicts()]
    entries, _ = package.replay_entries(rows)
    statuses = Counter(call["status"] for call in replayed(torch_python, entries, tmp_path))
    assert set(statuses) <= {"replayed", "replayed by an equivalent", "skipped"}
    assert statuses["replayed"] > 0.8 * len(entries)
    assert statuses["replayed by an equivalent"] >= 5


QUERY, KEY = bf16(2, 4, 32, 16), bf16(2, 2, 32, 16)
LONG, SEQUENCES = ((2,), "long int", (1,), ""), ((3,), "int", (1,), "")
PACKED = bf16(64, 4, 16)
IMAGE, FLOATS = bf16(2, 8, 6, 6), ((8,), "float", (1,), "")
TWOS, ONES, NONE = numbers("[2, 2]"), numbers("[1, 1]"), numbers("[0, 0]")
YES, NO, RATE = scalar("True"), scalar("False"), scalar("0.5")
FLASH_BACKWARD = (bf16(2, 4, 32, 16), QUERY, KEY, KEY, QUERY, ((2, 4, 32), "float", (), ""))
BATCH_NORM = (FLOATS, FLOATS, FLOATS, FLOATS)
ONLY_ON_GPUS = (
    row("aten::_scaled_dot_product_flash_attention", QUERY, KEY, KEY, RATE, YES, NO, NOTHING),
    row(
        "aten::_scaled_dot_product_flash_attention_backward",
        *(*FLASH_BACKWARD, NOTHING, NOTHING, scalar("32"), scalar("32")),
        *(scalar("0."), YES, LONG, LONG, NOTHING),
    ),
    row(
        "aten::_scaled_dot_product_efficient_attention",
        *(QUERY, QUERY, QUERY, bf16(2, 4, 32, 32), YES, scalar("0."), NO, scalar("0.25")),
    ),
    row(
        "aten::_flash_attention_forward",
        *(PACKED, PACKED, PACKED, SEQUENCES, SEQUENCES, scalar("32"), scalar("32")),
        *(scalar("0."), YES, NO, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING),
    ),
    row("aten::miopen_batch_norm", IMAGE, *BATCH_NORM, YES, scalar("0.1"), scalar("1e-05")),
    row("aten::cudnn_batch_norm", IMAGE, *BATCH_NORM, YES, scalar("0.1"), scalar("1e-05")),
    row("aten::miopen_batch_norm_backward", IMAGE, IMAGE, *BATCH_NORM, FLOATS, scalar("1e-05")),
    row(
        "aten::native_batch_norm_backward",
        *(IMAGE, IMAGE, bf16(8), bf16(8), bf16(8), FLOATS, FLOATS, YES, scalar("1e-05")),
        numbers("[True, True, True]"),
    ),
    row(
        "aten::miopen_convolution",
        *(IMAGE, bf16(4, 8, 3, 3), bf16(4), ONES, TWOS, ONES, scalar("1"), NO, NO),
    ),
    row(
        "aten::cudnn_convolution_transpose",
        *(IMAGE, bf16(8, 4, 3, 3), ONES, ONES, TWOS, ONES, scalar("1"), NO, NO, YES),
    ),
    row(
        "aten::_conv_depthwise2d",
        IMAGE,
        bf16(8, 1, 3, 3),
        numbers("[3, 3]"),
        NOTHING,
        ONES,
        NONE,
        ONES,
    ),
    row(
        "aten::_fused_rms_norm_backward",
        *(bf16(4, 8), bf16(4, 8), numbers("[8]"), ((4, 1), "float", (), ""), bf16(8)),
        numbers("[True, True]"),
    ),
    row("aten::_fused_dropout", bf16(4, 8), RATE, NOTHING),
)
"""Calls for which a CPU has no kernel."""


def test_an_equivalent_replaces_what_only_gpus_have(torch_python: str, tmp_path: Path) -> None:
    entries = [
        {
            "op_name": one["name"],
            "count": 1,
            "gpu": None,
            "peaks_of": None,
            "replay_ir": replay_ir(one),
        }
        for one in ONLY_ON_GPUS
    ]
    for call in replayed(torch_python, entries, tmp_path):
        assert call["status"] == "replayed by an equivalent", call
        assert "times do not compare" in call["reason"]
        assert "mean_us" not in call
