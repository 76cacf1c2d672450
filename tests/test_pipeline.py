"""The pipeline: steps, hardware, and runs of a small trace and of recorded ones."""

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from jarvis.core.errors import EmptyTraceError, OutputFolderError, UnknownHardwareError
from jarvis.core.workspace import RunPaths
from jarvis.findings import Severity, Status
from jarvis.pipeline import STEPS, Step, analyze, choose_hardware, generate_report
from jarvis.run import Options, Run, analysis_id, category_table
from jarvis.schemas.names import C
from jarvis.text.messages import to_text
from tests.builders import TraceBuilder, trace
from tests.recorded_runs import RecordedRun

MM = [[4096, 4096], [4096, 4096]]


def small_trace(device: str = "AMD Instinct MI300X") -> TraceBuilder:
    return (
        trace(device)
        .op("aten::mm", MM)
        .launches("Cijk_Alik_Bljk_MT256x128x64", us=2000.0)
        .op("aten::mul", [[4096, 4096], [4096, 4096]])
        .launches("void at::native::vectorized_elementwise_kernel<4>", us=100.0)
        .op("aten::item", [[1]])
        .launches("Memcpy DtoH (Device -> Pageable)", us=3.0, cat="gpu_memcpy")
    )


@pytest.fixture
def trace_path(tmp_path: Path) -> Path:
    return small_trace().write(tmp_path / "trace.json")


def test_steps_are_reported_as_they_start_and_end(trace_path: Path, tmp_path: Path) -> None:
    seen: list[Step] = []
    analyze(trace_path, output_dir=tmp_path / "run", progress=seen.append)
    assert [s.name for s in seen if s.state == "started"] == list(STEPS)
    assert [s.name for s in seen if s.state == "done"] == list(STEPS)
    assert [s.number for s in seen] == sorted(s.number for s in seen)
    assert all((s.elapsed_s is None) == (s.state != "done") for s in seen)
    reading = [s for s in seen if s.state == "running"]
    assert {s.name for s in reading} == {"Read the trace"}
    assert reading[-1].reading.bytes_done == trace_path.stat().st_size
    assert str(reading[-1].reading).endswith("events")


@pytest.mark.parametrize("name", STEPS)
def test_an_exception_in_the_callback_stops_the_work_without_output(
    trace_path: Path, tmp_path: Path, name: str
) -> None:
    class CancelledError(Exception):
        pass

    def cancel(step: Step) -> None:
        if step.name == name:
            raise CancelledError

    with pytest.raises(CancelledError):
        analyze(trace_path, output_dir=tmp_path / "run", progress=cancel)
    assert list(tmp_path.iterdir()) == [trace_path]


def test_a_run_of_a_small_trace(trace_path: Path, tmp_path: Path) -> None:
    run = analyze(trace_path, output_dir=tmp_path / "run", model_name="Tiny")
    manifest = run.manifest
    assert manifest.model_name == "Tiny"
    assert manifest.hardware.name == "MI300X"
    assert manifest.platform_warning is None
    assert manifest.totals.compute_time_ms == pytest.approx(2.1)
    assert [top.name for top in manifest.top_operations][:2] == ["aten::mm", "aten::mul"]
    assert manifest.top_operations[0].category == "gemm"
    assert run.results["gemm"].percent_of_compute == pytest.approx(100 * 2.0 / 2.1)
    # 2 * 4096^3 FLOP in 2 ms are 68.7 of 708 TFLOPS
    assert run.results["gemm"].efficiency_pct == pytest.approx(9.707, abs=0.001)
    assert run.results["convolution"].status is Status.NO_DATA
    assert run.results["multi_kernel"].metrics["memcpy_summary"]["total_count"] == 1


def test_report_alone(trace_path: Path) -> None:
    report = generate_report(trace_path, platform="H100 SXM")
    assert report.hardware.name == "H100 SXM"
    assert "unified_perf_summary" in report.sheets()


def test_hardware_from_the_trace_or_as_given() -> None:
    info = small_trace().read().info
    assert choose_hardware(info, None, None)[0].name == "MI300X"
    same, warning = choose_hardware(info, "mi300x", None)
    assert (same.name, warning) == ("MI300X", None)
    other, warning = choose_hardware(info, "H100 SXM", None)
    assert other.name == "H100 SXM"
    assert "AMD Instinct MI300X" in warning
    assert "H100 SXM" in warning
    with pytest.raises(UnknownHardwareError):
        choose_hardware(info, "MI9999", None)


MI300X_PROPERTIES = {
    "numSms": 304,
    "totalGlobalMem": 206141652992,
    "warpSize": 64,
    "computeMajor": 9,
    "computeMinor": 4,
}
H100_PROPERTIES = {
    "numSms": 132,
    "totalGlobalMem": 85018279936,
    "warpSize": 32,
    "computeMajor": 9,
    "computeMinor": 0,
}


def traced_on(device: str, **properties: int) -> TraceBuilder:
    built = small_trace(device)
    built.header["deviceProperties"][0] |= properties
    return built


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        ("", "The trace does not name its GPU."),
        ("AMD Radeon Graphics", "No GPU named 'AMD Radeon Graphics' is described."),
    ],
)
def test_a_gpu_is_recognized_by_its_properties_and_this_is_stated(device: str, reason: str) -> None:
    info = traced_on(device, **MI300X_PROPERTIES).read().info
    spec, warning = choose_hardware(info, None, None)
    assert spec.title == "MI300X"
    assert warning == (
        f"{reason} The analysis uses the peaks of MI300X, the only known GPU with 304 compute "
        "units and 192 GB of memory."
    )
    spec, warning = choose_hardware(info, None, "datasheet")
    assert spec.title == "MI300X (datasheet)"
    assert "peaks of MI300X (datasheet), the only" in warning
    assert choose_hardware(info, "MI300X", None)[1] is None


def test_several_gpus_with_the_recorded_properties_are_offered() -> None:
    info = traced_on("", **H100_PROPERTIES).read().info
    spec, warning = choose_hardware(info, None, None)
    assert spec is None
    assert warning == (
        "The trace does not name its GPU, and several known GPUs have 132 compute units and 79 GB "
        "of memory: H100 SXM, H800 SXM. Name one of them to get efficiencies."
    )
    assert choose_hardware(info, "H800 SXM", None)[1] is None
    assert choose_hardware(info, "MI300X", None)[1] == (
        "The trace was recorded on a GPU with 132 compute units and 79 GB of memory, but the "
        "analysis uses the peaks of MI300X."
    )


def test_a_gpu_without_name_and_properties_is_unknown() -> None:
    for built in (traced_on(""), traced_on("", **H100_PROPERTIES | {"numSms": 131})):
        spec, warning = choose_hardware(built.read().info, None, None)
        assert spec is None
        assert warning == (
            "The trace does not name its GPU, so no peaks are available. Name a GPU to get "
            "efficiencies."
        )


@pytest.mark.parametrize(
    ("built", "platform", "units"),
    [
        (traced_on("AMD Instinct MI300X", numSms=76), None, 76),
        (traced_on("AMD Instinct MI300X", numSms=76), "H100 SXM", 76),
        (traced_on("AMD Instinct MI300X"), None, 304),
        (traced_on("AMD Instinct MI300X"), "H100 SXM", 304),
        (traced_on("Mystery GPU 9000"), "H100 SXM", 132),
        (traced_on("Mystery GPU 9000"), None, None),
    ],
)
def test_tiles_are_counted_against_the_gpu_that_ran_them(
    built: TraceBuilder, platform: str | None, units: int | None, tmp_path: Path
) -> None:
    path = built.write(tmp_path / "trace.json")
    run = analyze(path, platform=platform, output_dir=tmp_path / "run")
    assert run.table(category_table("gemm"))[C.compute_units].to_list() == [units]


def test_an_unknown_device_runs_without_peaks_and_is_reported(tmp_path: Path) -> None:
    path = small_trace("Mystery GPU 9000").write(tmp_path / "trace.json")
    run = analyze(path, output_dir=tmp_path / "run")
    assert run.manifest.hardware is None
    assert "'Mystery GPU 9000'" in run.manifest.platform_warning
    result = run.results["gemm"]
    assert result.status is Status.OK
    assert result.efficiency_pct is None
    assert result.gpu_time_ms == pytest.approx(2.0)
    assert "not available" in to_text(result.notes[0])
    with pytest.raises(UnknownHardwareError):
        analyze(path, preset="reference", output_dir=tmp_path / "other")


ODD_TRACES = {
    "no GPU work": lambda: trace().op("aten::mm", MM, us=50.0),
    "copies only": lambda: trace().op("aten::copy_", MM).launches("Memcpy HtoD", cat="gpu_memcpy"),
    "no duration": lambda: trace().op("aten::mm", MM).launches("gemm", us=0.0),
    "no shapes": lambda: trace().op("aten::mm").launches("gemm"),
    "no host ops": lambda: trace().unlinked("gemm"),
    "a graph": lambda: trace().runtime("x").graph(("k1", 5.0), ("k2", 6.0)),
    "communication only": lambda: trace().op("c10d::allreduce_", [[1024]]).launches("ncclKernel"),
    "hostile names": lambda: trace().op("a|b<c>`d`\n*x*", [[4]]).launches("<script>1</script>"),
}


@pytest.mark.parametrize("kind", ODD_TRACES)
def test_unusual_documents_end_without_errors(tmp_path: Path, kind: str) -> None:
    path = ODD_TRACES[kind]().write(tmp_path / "trace.json")
    run = analyze(path, output_dir=tmp_path / "run")
    assert Status.ERROR not in {result.status for result in run.results.values()}
    assert Run.load(tmp_path / "run").manifest.sheets


def test_the_default_output_folder_is_beside_the_trace(trace_path: Path) -> None:
    analyze(trace_path)
    assert RunPaths(trace_path.parent / "analysis_output").manifest.is_file()


def test_an_invalid_trace_leaves_no_files(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": []}')
    with pytest.raises(EmptyTraceError):
        analyze(path, output_dir=tmp_path / "run")
    assert list(tmp_path.iterdir()) == [path]


def test_the_folder_is_rejected_before_the_analysis(trace_path: Path, tmp_path: Path) -> None:
    seen: list[Step] = []
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").touch()
    with pytest.raises(OutputFolderError, match="--output-dir"):
        analyze(trace_path, output_dir=tmp_path / "run", progress=seen.append)
    assert {step.name for step in seen} == {STEPS[0]}


def test_the_id_depends_on_trace_and_options_only() -> None:
    first = analysis_id("abc", Options(model_name="m"))
    assert first == analysis_id("abc", Options(model_name="m"))
    others = [
        analysis_id("abd", Options(model_name="m")),
        analysis_id("abc", Options(model_name="n")),
        analysis_id("abc", Options(model_name="m", platform="MI300X")),
        analysis_id("abc", Options(model_name="m", reference="def")),
    ]
    assert len({first, *others}) == 5
    assert first.isalnum()


@pytest.fixture(scope="module")
def resnet(reference_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("resnet") / "run"
    path = reference_root / "traces" / "mi300-resnet-ddp-checkpoint.json.gz"
    analyze(path, platform="MI300X", output_dir=root)
    return root


def test_layout_transposes_of_a_real_training_step(resnet: Path) -> None:
    run = Run.load(resnet)
    overhead = run.results["convolution"].metrics["transpose_overhead_percent"]
    assert overhead == pytest.approx(41.9, abs=0.05)
    finding = next(f for f in run.results["convolution"].findings if f.check == "layout_transposes")
    assert "41.9% of convolution time" in to_text(finding.issue)
    assert "channels_last" in to_text(finding.algorithmic)


def test_communication_of_a_real_training_step_is_critical(resnet: Path) -> None:
    run = Run.load(resnet)
    metrics = run.results["multi_kernel"].metrics
    assert metrics["nccl_blocking_assessment"]["severity"] == "CRITICAL"
    assert metrics["nccl_blocking_assessment"]["exposed_percent_of_total"] == pytest.approx(
        62.43, abs=0.01
    )
    assert metrics["overlap_assessment"]["severity"] == "CRITICAL"
    assert metrics["overlap_assessment"]["overlap_percent"] == pytest.approx(25.25, abs=0.01)
    assert metrics["memcpy_summary"]["by_direction"]["D2D"]["count"] == 366
    assert metrics["memcpy_assessment"]["severity"] == "MEDIUM"
    assert metrics["cross_validation"]["status"] == "PASS"
    severities = {f.check: f.severity for f in run.results["multi_kernel"].findings}
    assert severities["exposed_communication"] is Severity.CRITICAL
    assert severities["poor_overlap"] is Severity.CRITICAL


def test_files_of_a_real_run(resnet: Path) -> None:
    paths = RunPaths(resnet)
    canonical, copy = paths.category_manifests
    manifest = json.loads(canonical.read_text())
    assert canonical.read_bytes() == copy.read_bytes()
    assert len(manifest["top_operations"]) == 10
    assert manifest["gpu_utilization"]["exposed_comm_time_percent"] == pytest.approx(
        62.43, abs=0.01
    )
    for category in manifest["categories"]:
        for kind in ("metadata_file", "metrics_file", "findings_file", "csv_file"):
            if category.get(kind):
                assert not Path(category[kind]).is_absolute()
                assert (resnet / category[kind]).is_file(), category[kind]
    times = {c["name"]: c.get("gpu_kernel_time_ms", 0.0) for c in manifest["categories"]}
    assert times["convolution"] == pytest.approx(10.057, abs=0.001)


def test_prepared_rows_carry_the_labels_of_the_report_and_the_right_values(resnet: Path) -> None:
    rows = pl.read_csv(RunPaths(resnet).operations_csv("convolution"))
    assert rows.height == 32
    for name in ("name", "op category", "Kernel Time (µs)_sum", "perf_params", "ex_UID"):
        assert name in rows.columns
    for name in ("pct_roofline", "transpose_us", "pattern", "percent_of_compute"):
        assert name in rows.columns
    assert rows["Kernel Time (µs)_sum"].to_list() == pytest.approx(rows["kernel_time_us"].to_list())


def test_tree_data_hold_real_chains_and_kernels(resnet: Path) -> None:
    trees = Run.load(resnet).call_paths("convolution")
    assert trees
    for tree in trees.values():
        assert list(tree.subtree)
        assert tree.kernels
    assert any("Conv2d" in name for tree in trees.values() for name in tree.nn_module_chain)


def test_json_files_are_strict(resnet: Path) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} in JSON")

    for path in resnet.rglob("*.json"):
        json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


@pytest.mark.parametrize(
    "name", ["mi210-gpu-only", "sglang-qwen3-8b-decode", "torch-compile-triton", "h100-bert-small"]
)
def test_unusual_traces_end_without_errors(recorded_run: RecordedRun, name: str) -> None:
    run = Run.load(recorded_run(name))
    assert Status.ERROR not in {result.status for result in run.results.values()}
    times = [r.gpu_time_ms for r in run.results.values() if r.tier == "compute"]
    total = run.table("operations")["kernel_time_us"].sum() / 1000
    assert sum(times) == pytest.approx(total)


def test_what_replays_no_steps_loads_no_compiled_code_workbooks_or_charts() -> None:
    code = (
        "import sys, jarvis.pipeline, jarvis.server.actions; "
        "print([name for name in ('altair', 'numba', 'openpyxl') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
