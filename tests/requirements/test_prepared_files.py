"""What a run directory holds for the analyses, and that they read nothing else."""

import ast
import csv
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import openpyxl
import polars as pl
import pytest

from jarvis.analyses import load_analyses
from jarvis.analyses.base import CategoryData
from jarvis.analyses.runner import run_analyses, split_operations
from jarvis.core.workspace import RunPaths
from jarvis.findings import Finding
from jarvis.hardware import load_hardware
from jarvis.pipeline import Step, analysis, analyze
from jarvis.reports.finding_sheets import FINDINGS, SUMMARY
from jarvis.run.tree_data import read_tree_data
from jarvis.trace import read_trace
from jarvis.tracelens.report import TraceLensReport
from tests.builders import trace
from tests.reports.conftest import Analyzed
from tests.requirements.conftest import HALF, SQUARE, busy_trace

ANALYSES = Path(__file__).parents[2] / "jarvis" / "analyses"
COMPUTE = ("gemm", "convolution", "elementwise", "other")
"""Categories that the trace has operations of."""


def loaded(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def cells(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV, each cell as text."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def value(cell: str) -> str | float:
    """The number in a cell, however it is written, else its text."""
    try:
        return float(cell)
    except ValueError:
        return cell


def test_the_report_is_written_as_workbook_and_as_csvs(busy: Analyzed) -> None:
    paths = RunPaths(busy.root)
    names = {path.stem for path in paths.perf_report_csvs.glob("*.csv")}
    assert names >= {"gpu_timeline", "ops_summary", "unified_perf_summary", "GEMM", "CONV_fwd"}
    first, second, *sheets = openpyxl.load_workbook(paths.perf_report_xlsx).sheetnames
    assert (first, second) == (SUMMARY, FINDINGS)
    assert set(sheets) == names


def test_each_category_has_its_files(busy: Analyzed) -> None:
    for key in COMPUTE:
        for name in (
            f"category_data/{key}_ops.csv",
            f"metadata/{key}_metadata.json",
            f"category_data/{key}_tree_data.json",
            f"category_data/{key}_metrics.json",
            f"category_findings/{key}_findings.md",
        ):
            assert (busy.root / name).is_file(), name
    for key in ("cpu_idle", "multi_kernel"):
        assert (busy.root / f"category_data/{key}_metrics.json").is_file()
        assert (busy.root / f"system_findings/{key}_findings.md").is_file()
    assert (busy.root / "category_data/multi_kernel_data.json").is_file()
    assert (busy.root / "metadata/multi_kernel_metadata.json").is_file()


def test_metadata_say_platform_utilization_and_options(busy: Analyzed) -> None:
    paths, totals = RunPaths(busy.root), busy.run.manifest.totals
    for key in (*COMPUTE, "multi_kernel"):
        found = loaded(paths.metadata(key))
        assert found["platform"] == "MI300X"
        assert found["peak_hbm_bw_tbs"] == 5.3
        assert found["max_achievable_tflops"]["matrix_bf16"] == 708
        assert found["memory_gb"] == 192
        assert found["category_name"] == key
        assert found["output_dir"] == "."
        used = found["gpu_utilization"]
        assert used["computation_time_percent"] == totals.compute_pct
        assert used["exposed_comm_time_percent"] == totals.exposed_comm_pct
        assert used["exposed_memcpy_time_percent"] == totals.exposed_memcpy_pct
        assert used["idle_time_percent"] == totals.idle_pct


def test_the_category_manifest_holds_utilization_categories_and_top_operations(
    busy: Analyzed,
) -> None:
    canonical = busy.root / "category_data" / "category_manifest.json"
    copy = busy.root / "category_manifest.json"
    assert canonical.read_bytes() == copy.read_bytes()
    found = loaded(canonical)
    assert found["gpu_utilization"]["total_time_ms"] == busy.run.manifest.totals.total_time_ms
    assert {entry["name"] for entry in found["categories"]} == set(busy.run.results)
    assert [top["name"] for top in found["top_operations"]][:2] == ["aten::mm", "aten::convolution"]
    assert found["top_operations"][0]["category"] == "gemm"


def test_the_top_operations_are_the_first_ten_of_the_summary_of_operators(busy: Analyzed) -> None:
    summary = pl.read_csv(RunPaths(busy.root).perf_report_csvs / "ops_summary.csv")
    times = summary["total_direct_kernel_time_ms"].to_list()
    assert times == sorted(times, reverse=True)
    top = busy.run.manifest.top_operations
    assert [operation.name for operation in top] == summary["name"].to_list()[:10]
    assert [operation.time_ms for operation in top] == pytest.approx(times[:10])
    compute_ms = busy.run.manifest.totals.compute_time_ms
    of_copies = [operation for operation in top if operation.percent_of_compute is None]
    assert {operation.name for operation in of_copies} == {"aten::copy_", "aten::item"}
    assert [operation.percent_of_compute for operation in top if operation not in of_copies] == (
        pytest.approx([100 * o.time_ms / compute_ms for o in top if o not in of_copies])
    )
    assert {operation.bound for operation in top} >= {"compute", "memory"}


def test_a_category_file_has_its_rows_of_the_unified_sheet_and_no_others(busy: Analyzed) -> None:
    paths = RunPaths(busy.root)
    sheet = cells(paths.perf_report_csvs / "unified_perf_summary.csv")
    unified = {row["ex_UID"]: row for row in sheet}
    seen: list[str] = []
    for key in COMPUTE:
        rows = cells(paths.operations_csv(key))
        own = {str(uid) for uid in busy.run.category_operations(key)["uid"]}
        assert {row["ex_UID"] for row in rows} == own
        seen += [row["ex_UID"] for row in rows]
        for row in rows:
            for column in (
                "Input Dims",
                "operation_count",
                "FLOPS/Byte",
                "TB/s_mean",
                "TFLOPS/s_mean",
                "Kernel Time (µs)_sum",
                "trunc_kernel_details",
                "kernel_details_summary",
                "has_perf_model",
            ):
                assert value(row[column]) == value(unified[row["ex_UID"]][column])
    assert sorted(seen) == sorted(unified)


def test_what_has_no_model_stays_empty_in_the_files(busy: Analyzed) -> None:
    paths = RunPaths(busy.root)
    (row,) = cells(paths.operations_csv("other"))
    assert row["name"] == "aten::item"
    assert row["has_perf_model"].lower() == "false"
    assert [row[name] for name in ("FLOPS/Byte", "TFLOPS/s_mean", "pct_roofline")] == ["", "", ""]
    (entry,) = loaded(paths.metrics("other"))["operations"]
    assert entry["efficiency"]["efficiency_percent"] is None


def test_tree_data_hold_chain_module_and_kernels(busy: Analyzed) -> None:
    (tree,) = read_tree_data(RunPaths(busy.root).tree_data("gemm").read_bytes()).values()
    assert [frame.name for frame in tree.parent_chain][:1] == ["train.py(3): step"]
    assert tree.nn_module_chain == ("Block_0",)
    assert tree.entry_point == "train.py(3): step"
    assert tree.input_dims == "((4096, 4096), (4096, 4096))"
    assert [entry.kind for entry in tree.subtree] == ["runtime", "kernel"]
    assert [kernel.dur_us for kernel in tree.kernels] == [2000.0]


def test_metrics_of_matrix_products(busy: Analyzed) -> None:
    found = loaded(RunPaths(busy.root).metrics("gemm"))
    assert found["status"] == "OK"
    assert found["average_efficiency_percent"] == pytest.approx(9.707, abs=0.001)
    assert found["category_specific"]["missing_perf_model_count"] == 0
    assert found["category_specific"]["quantized_count"] == 0
    (entry,) = found["operations"]
    assert (entry["name"], entry["count"]) == ("aten::mm", 2)
    # 2 * 4096^3 FLOPs in 2 ms
    assert entry["efficiency"]["tflops_achieved"] == pytest.approx(68.719, abs=0.001)
    assert entry["efficiency"]["resolved_peak_maf"] == 708
    assert "MT256x128x64" in entry["kernel_name"]


def test_metrics_of_convolutions(busy: Analyzed) -> None:
    found = loaded(RunPaths(busy.root).metrics("convolution"))
    # 300 of 800 µs
    assert found["category_specific"]["transpose_overhead_percent"] == pytest.approx(37.5)
    table = busy.text("category_findings/convolution_findings.md")
    (entry,) = found["operations"]
    row = next(line for line in table.splitlines() if line.startswith("| `aten::convolution`"))
    assert row.split(" | ")[1:3] == [str(entry["count"]), f"{entry['time_ms']:.2f}"]


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("aten::mm", [[64, 32], [32, 16]]),
        ("aten::bmm", [[4, 64, 32], [4, 32, 16]]),
        ("aten::addmm", [[16], [64, 32], [32, 16]]),
        ("aten::baddbmm", [[4, 64, 16], [4, 64, 32], [4, 32, 16]]),
    ],
)
def test_matrix_products_are_in_one_category(name: str, dims: list[list[int]]) -> None:
    report = TraceLensReport(trace().op(name, dims).launches("a_kernel", us=9).read(), None)
    assert split_operations(report, load_analyses()).operations["category"].to_list() == ["gemm"]


def test_an_analysis_sees_its_own_rows_only() -> None:
    seen: dict[str, set[str]] = {}

    def spy(data: CategoryData) -> Iterator[Finding]:
        seen[data.key] = set(data.operations["name"])
        yield from ()

    report = TraceLensReport(busy_trace().read(), load_hardware().get("MI300X"))
    analyses = {
        key: replace(analysis, checks=(spy,), specific=())
        for key, analysis in load_analyses().items()
        if analysis.tier == "compute"
    }
    run_analyses(report, analyses, split_operations(report, analyses))
    assert seen["gemm"] == {"aten::mm"}
    assert seen["convolution"] == {"aten::convolution"}
    names = [name for key in seen for name in seen[key]]
    assert len(names) == len(set(names))


def test_the_trace_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    original = read_trace

    def counted(path: Path, *arguments: Any) -> Any:
        read.append(path)
        return original(path, *arguments)

    monkeypatch.setattr(analysis, "read_trace", counted)
    path = busy_trace().write(tmp_path / "trace.json")
    analyze(path, output_dir=tmp_path / "run")
    assert read == [path]


@pytest.mark.parametrize(
    "module", sorted(ANALYSES.rglob("*.py")), ids=lambda path: str(path.relative_to(ANALYSES))
)
def test_no_analysis_opens_a_trace_or_a_file(module: Path) -> None:
    opening = {"read_trace", "open", "read_text", "read_bytes", "read_csv", "read_parquet"}
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            assert name not in opening, f"line {node.lineno}"


def test_categories_take_seconds(tmp_path: Path) -> None:
    elapsed: dict[str, float] = {}

    def note(step: Step) -> None:
        if step.elapsed_s is not None:
            elapsed[step.name] = step.elapsed_s

    analyze(busy_trace().write(tmp_path / "t.json"), output_dir=tmp_path / "run", progress=note)
    assert elapsed["Categories"] + elapsed["Analyses"] < 10


@pytest.mark.parametrize("platform", ["MI300X", "H100 SXM"])
def test_the_hardware_supplied_decides_the_efficiency(tmp_path: Path, platform: str) -> None:
    built = trace(device="Mystery 9000").op("aten::mm", SQUARE, types=HALF)
    path = built.launches("gemm", us=2000).write(tmp_path / "t.json")
    found = analyze(path, platform=platform, output_dir=tmp_path / "run")
    peak = load_hardware().get(platform).max_achievable_tflops["matrix_bf16"]
    assert found.results["gemm"].efficiency_pct == pytest.approx(
        100 * 2 * 4096**3 / 2e-3 / (peak * 1e12)
    )


@pytest.mark.parametrize(
    ("name", "memory_type"),
    [
        ("MI300X", "HBM3"),
        ("MI325X", "HBM3E"),
        ("H200 SXM", "HBM3E"),
        ("H100 SXM", "HBM3"),
        ("A100", "HBM2E"),
    ],
)
def test_the_kind_of_memory_of_the_reference_table(name: str, memory_type: str) -> None:
    assert (load_hardware().get(name).memory_type or "").upper() == memory_type
