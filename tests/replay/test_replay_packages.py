"""Packages: which are made, what is in them, and the program that runs them."""

import ast
import importlib
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from jarvis.core.workspace import RunPaths
from jarvis.pipeline import analyze
from jarvis.replay import package
from jarvis.run import Run
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
        programs = {"batched_replay.py", "replay_arguments.py", "replay_equivalents.py"}
        assert set(archive.namelist()) == {"replay_ir.json", "README.md", *programs}
        entries = json.loads(archive.read("replay_ir.json"))
        readme = archive.read("README.md").decode()
    assert [(entry["op_name"], entry["count"]) for entry in entries] == [
        ("aten::mm", 3),
        ("aten::mm", 1),
    ]
    assert "replay_ir.json" in readme
    assert "2 distinct sets of arguments, 4\ncalls" in readme
    beside = json.loads(RunPaths(root).replay_ir("aten::mm").read_text())
    assert beside == entries


def test_the_fair_report_lists_them(root: Path) -> None:
    fair = RunPaths(root).standalone_report("fair").read_text()
    appendix = fair[fair.index("### Replay Artifacts") :]
    assert "For the kernel team, operations that can be replayed alone" in appendix
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
    files = list(package.RUNNER_FOLDER.glob("*.py"))
    modules = {
        name.split(".")[0]
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    own = {file.stem for file in files}
    assert modules - set(sys.stdlib_module_names) - own == {"torch"}


def test_the_program_times_every_call(unpacked: Path) -> None:
    done = replay(unpacked)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Fake GPU" in done.stdout.splitlines()[0]
    # The stand-in's clock gives 2 µs a call: 3 calls of one shape, 1 of the other. The first takes
    # 137.4 GFLOP and 0.1007 GB; on an MI300X that is 194.1 µs at 708 TFLOP/s, 19.0 µs at 5.3 TB/s.
    first, second = (line.split() for line in done.stdout.splitlines()[2:4])
    assert first[:2] == ["2.00", "2.00"]
    assert [float(cell.rstrip("%")) for cell in first[2:7]] == pytest.approx(
        [2 * 4096**3 / 2e6, 3 * 4096**2 * 2 / 2e6, 100 * 194.1 / 2, 2000, 0.1], rel=1e-3, abs=0.1
    )
    assert first[7:9] == ["3", "0.006"]
    assert second[5:9] == ["900.00", "0%", "1", "0.002"]
    assert "2 calls replayed, 0 failed; all calls of the trace: 0.008 ms" in done.stdout
    assert "Kernels of the same calls in the trace: 6.900 ms; here 0.008 ms" in done.stdout
    assert "Roofline of MI300X, trace of AMD Instinct MI300X; this is Fake GPU" in done.stdout


def test_results_for_programs(unpacked: Path) -> None:
    done = replay(unpacked, "--json", "--warmup", "0", "--iterations", "3")
    result = json.loads(done.stdout)
    assert [call["status"] for call in result["calls"]] == ["replayed", "replayed"]
    assert (result["calls"][0]["mean_us"], result["calls"][0]["trace_us"]) == (2.0, 2000.0)


def test_what_is_too_large_is_skipped_and_counted(unpacked: Path) -> None:
    done = replay(unpacked, "--memory-limit", "0.05")
    assert done.returncode == 0
    assert "skipped: aten::mm [4096, 4096] [4096, 4096]: its arguments take 0.07 GB" in done.stdout
    assert "1 calls replayed, 0 failed, 1 skipped" in done.stdout
    assert "137 GFLOP" in replay(unpacked, "--work-limit", "100").stdout


def test_the_program_runs_on_the_host_too(unpacked: Path) -> None:
    without_gpu = (unpacked / "torch.py").read_text().replace("lambda: True", "lambda: False")
    (unpacked / "torch.py").write_text(without_gpu)
    done = replay(unpacked, "--device", "cpu")
    assert done.returncode == 0
    assert done.stdout.splitlines()[2].split()[4:8] == ["-", "-", "-", "3"]  # of a GPU
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


def test_a_call_that_fails_is_reported(unpacked: Path) -> None:
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
    monkeypatch.delitem(sys.modules, "replay_arguments", raising=False)
    monkeypatch.syspath_prepend(package.RUNNER_FOLDER)
    made = importlib.import_module("replay_arguments").tensor(config, "cpu")
    monkeypatch.delitem(sys.modules, "replay_arguments")
    assert (made.size, made.dtype[:2], made.high) == (size, dtype, high)
    assert (made.shape, made.strides) == (config["shape"], config["strides"])
