"""Packages: which are made, what is in them, and the program that runs them."""

import ast
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from jarvis.pipeline import analyze
from jarvis.replay import package
from jarvis.run import Run
from jarvis.workspace import RunPaths
from tests.builders import trace


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a slow product in two shapes, a fast one, and a slow list operator."""
    folder = tmp_path_factory.mktemp("replay")
    builder = trace(device="AMD Instinct MI300X")
    for _ in range(3):
        builder.op("aten::mm", [[4096, 4096], [4096, 4096]]).launches("slow", us=2000.0)
    builder.op("aten::mm", [[4096, 1024], [1024, 4096]]).launches("slow", us=900.0)
    builder.op("aten::bmm", [[64, 2048, 2048], [64, 2048, 2048]]).launches("fast", us=1900.0)
    builder.op("aten::add_", [[1024], [1024], []], types=["float", "float", "Scalar"])
    builder.launches("small", us=5.0)
    analyze(builder.write(folder / "t.json"), output_dir=folder / "run")
    return folder / "run"


@pytest.fixture
def unpacked(root: Path, tmp_path: Path) -> Path:
    """The package of the slow product, with a stand-in for torch beside it."""
    with zipfile.ZipFile(RunPaths(root).replay_package("aten::mm")) as archive:
        archive.extractall(tmp_path)
    shutil.copy(Path(__file__).with_name("fake_torch.py"), tmp_path / "torch.py")
    return tmp_path


def replay(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, package.RUNNER_NAME, package.IR_NAME, *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def index(root: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(RunPaths(root).replay_index.read_text())
    return content


def test_only_slow_operators_with_much_time_get_a_package(root: Path) -> None:
    (made,) = index(root)["operations"]
    assert made["op_name"] == "aten::mm"
    assert made["percent_of_compute"] > package.AUTOMATIC_COMPUTE_PCT
    assert made["efficiency_pct"] < package.AUTOMATIC_EFFICIENCY_PCT
    assert made["package"] == "aten_mm_replay_package.zip"
    assert {path.name for path in RunPaths(root).replay_packages.iterdir()} == {
        "packages.json",
        "aten_mm_replay_package.zip",
        "aten_mm_replay_ir.json",
    }


def test_a_package_holds_calls_program_and_readme(root: Path) -> None:
    with zipfile.ZipFile(RunPaths(root).replay_package("aten::mm")) as archive:
        assert set(archive.namelist()) == {"replay_ir.json", "batched_replay.py", "README.md"}
        entries = json.loads(archive.read("replay_ir.json"))
        readme = archive.read("README.md").decode()
    assert [(entry["op_name"], entry["count"]) for entry in entries] == [
        ("aten::mm", 3),
        ("aten::mm", 1),
    ]
    assert "replay_ir.json" in readme
    assert "2 distinct sets of arguments, 4 calls" in readme
    beside = json.loads(RunPaths(root).replay_ir("aten::mm").read_text())
    assert beside == entries


def test_the_fair_report_lists_them(root: Path) -> None:
    fair = RunPaths(root).standalone_report("fair").read_text()
    appendix = fair[fair.index("### Replay Artifacts") :]
    assert "recommended for the kernel team" in appendix
    assert "`replay_packages/aten_mm_replay_package.zip`" in appendix


def test_the_same_calls_give_the_same_bytes(root: Path, tmp_path: Path) -> None:
    package.write_packages(Run.load(root), tmp_path)
    for path in RunPaths(root).replay_packages.iterdir():
        again = RunPaths(tmp_path).replay_packages / path.name
        assert again.read_bytes() == path.read_bytes()


def test_any_operator_can_be_packaged_on_demand(root: Path, tmp_path: Path) -> None:
    operations = Run.load(root).table("operations")
    made = package.write_package(operations.filter(operations["name"] == "aten::bmm"), tmp_path)
    assert (made.entries, made.reason) == (1, None)
    assert RunPaths(tmp_path).replay_package("aten::bmm").is_file()


def test_an_operator_that_cannot_be_replayed_gets_a_reason(root: Path, tmp_path: Path) -> None:
    operations = Run.load(root).table("operations")
    rows = operations.filter(operations["name"] == "aten::bmm").with_columns(input_dims=None)
    made = package.write_package(rows, tmp_path)
    assert (made.package, made.entries, made.left_out) == (None, 0, 1)
    assert made.reason == "the trace records no arguments for it"
    assert not RunPaths(tmp_path).replay_packages.exists()


def test_the_program_imports_only_torch_and_the_standard_library() -> None:
    tree = ast.parse(package.RUNNER.read_text())
    modules = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert modules - set(sys.stdlib_module_names) == {"torch"}


def test_the_program_times_every_call(unpacked: Path) -> None:
    done = replay(unpacked)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    # The stand-in's clock gives 2 µs a call: 3 calls of one shape, 1 of the other.
    assert lines[2].split()[:4] == ["2.00", "2.00", "3", "0.006"]
    assert lines[3].split()[:4] == ["2.00", "2.00", "1", "0.002"]
    assert lines[-1] == "2 calls replayed, 0 failed; all calls of the trace: 0.008 ms"


def test_the_program_runs_on_the_host_too(unpacked: Path) -> None:
    without_gpu = (unpacked / "torch.py").read_text().replace("lambda: True", "lambda: False")
    (unpacked / "torch.py").write_text(without_gpu)
    assert replay(unpacked, "--device", "cpu").returncode == 0
    refused = replay(unpacked)
    assert refused.returncode == 1
    assert "--device cpu" in refused.stderr


def test_calls_can_be_chosen(unpacked: Path) -> None:
    assert "1 of 2 calls" in replay(unpacked, "--op-limit", "1").stdout
    assert "0 of 2 calls" in replay(unpacked, "--op-filter", "bmm").stdout
    assert "Tensor mat2 = " in replay(unpacked, "-v").stdout


def failing(folder: Path) -> None:
    path = folder / "replay_ir.json"
    entries = json.loads(path.read_text())
    bad = {**entries[0], "op_name": "aten::softmax"}
    path.write_text(json.dumps([bad, *entries]))


def test_a_call_that_fails_is_told(unpacked: Path) -> None:
    failing(unpacked)
    done = replay(unpacked)
    assert done.returncode == 1
    assert "failed: aten::softmax" in done.stderr
    assert "2 calls replayed, 1 failed" in done.stdout


def test_stop_on_error_stops(unpacked: Path) -> None:
    failing(unpacked)
    done = replay(unpacked, "--stop-on-error", "-v")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "0.00 ms" not in done.stdout
    assert "all calls of the trace: 0.000 ms" in done.stdout


@pytest.mark.parametrize(
    ("config", "size", "dtype", "high"),
    [
        (
            {"shape": [4, 8], "strides": [8, 1], "dtype": "bfloat16", "init": "normal"},
            32,
            "bf",
            None,
        ),
        ({"shape": [4, 8], "strides": [0, 1], "dtype": "float32", "init": "normal"}, 8, "fl", None),
        ({"shape": [4, 8], "strides": [1, 16], "dtype": "float32", "init": None}, 116, "fl", None),
        (
            {"shape": [3], "strides": [1], "dtype": "int64", "init": "integers", "high": 9},
            3,
            "in",
            9,
        ),
        (
            {"shape": [3], "strides": [1], "dtype": "bool", "init": "integers", "high": 2},
            3,
            "bo",
            2,
        ),
        ({"shape": [], "strides": [], "dtype": "float32", "init": "normal"}, 1, "fl", None),
        ({"shape": [0, 4], "strides": [4, 1], "dtype": "float32", "init": "normal"}, 0, "fl", None),
    ],
)
def test_tensors_of_every_kind(
    monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], size: int, dtype: str, high: int | None
) -> None:
    from tests.replay import fake_torch

    monkeypatch.setitem(sys.modules, "torch", fake_torch)
    monkeypatch.delitem(sys.modules, "jarvis.replay.runner", raising=False)
    from jarvis.replay import runner

    made = runner.tensor(config, "cpu")
    assert (made.size, made.dtype[:2], made.high) == (size, dtype, high)
    assert (made.shape, made.strides) == (config["shape"], config["strides"])
