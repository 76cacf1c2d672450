"""The table ``inference_steps``, and the command that prints it."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from openpyxl import load_workbook

from jarvis.cli import main
from jarvis.hardware import load_hardware
from jarvis.perf_report.serving.notes import step_notes
from jarvis.perf_report.serving.repetition import repeated_calls
from jarvis.run import Run
from jarvis.trace import read_trace
from jarvis.tracelens.report import TraceLensReport
from tests.builders import TraceBuilder, trace

DECODE = "execute_context_0(0)_generation_8(8)"
DETAILED = "execute_4_context_0(sq0sk0sqsq0sqsk0)_generation_4(sq4sk400sqsq4sqsk400)"
COPY = "Memcpy HtoD (Pageable -> Device)"
ALL_REDUCE = "ncclDevKernel_AllReduce"


def report(builder: TraceBuilder) -> TraceLensReport:
    return TraceLensReport(builder.read(), None)


def rows(builder: TraceBuilder) -> list[dict[str, Any]]:
    return report(builder).inference_steps.to_dicts()


def test_requests_and_rates_of_decoding_steps() -> None:
    builder = trace()
    for at_us in (1200, 1400, 1700):
        builder.annotation(DECODE, us=100).child("aten::mm")
        builder.launches("gemm", us=100, at_us=at_us)
        builder.launches("tiny", us=5, at_us=at_us + 120).up(2)
    first, second, third = rows(builder)
    assert (first["phase"], first["engine"], first["source"]) == ("decode", "vLLM", "engine")
    assert (first["gen_requests"], first["gen_tokens"], first["ctx_tokens"]) == (8, 8, 0)
    assert (first["gpu_start_ms"], first["gpu_end_ms"]) == (0, pytest.approx(0.125))
    assert (first["step_time_ms"], first["gap_before_ms"]) == (pytest.approx(0.125), None)
    # From the end of the step before on.
    assert second["step_time_ms"] == second["itl_ms"] == pytest.approx(0.2)
    assert third["gap_before_ms"] == pytest.approx(0.175)
    assert (second["busy_ms"], second["gap_inside_ms"]) == (pytest.approx(0.105), 0.02)
    assert second["tokens_per_s"] == pytest.approx(8 / 200e-6)
    assert (second["short_kernel_count"], second["short_kernels_ms"]) == (1, 0.005)
    assert (second["mfu_pct"], second["mbu_pct"]) == (None, None)


def test_an_inner_annotation_is_part_of_the_step() -> None:
    builder = trace().annotation(DETAILED, us=200).annotation("step[DECODE bs=4]", us=100)
    (step,) = rows(builder.child("aten::mm").launches("gemm", us=50).up(3))
    assert (step["engine"], step["name"], step["phase"]) == ("SGLang", DETAILED, "decode")
    assert (step["gen_requests"], step["kv_tokens"]) == (4, 400)


def test_padding_is_a_share_of_the_batch() -> None:
    builder = trace().annotation("decode[bs=5/8 tok=5 d=5]", us=100).child("aten::mm")
    (step,) = rows(builder.launches("gemm").up(2))
    assert (step["engine"], step["padded_requests"], step["padding_pct"]) == ("ATOM", 8, 37.5)


def test_launch_modes() -> None:
    builder = trace()
    graph = (("a", 50.0), ("b", 50.0))
    builder.annotation(DECODE, us=100).child("aten::mm").launches("gemm").up(2)
    builder.annotation(DECODE, us=100).graph(*graph).up()
    builder.annotation(DECODE, us=100).graph(*graph).graph(*graph).up()
    builder.annotation(DECODE, us=100).graph(*graph).child("aten::mm")
    builder.launches("gemm", us=50).up(2)
    found = rows(builder)
    assert [row["launch_mode"] for row in found] == ["eager", "graph", "piecewise", "mixed"]
    assert [row["graph_launches"] for row in found] == [0, 1, 2, 1]


def test_replays_in_a_row_are_parts_of_a_diffusion_step() -> None:
    builder = trace().annotation("execute_diffusion_1_256x256", us=900).child("aten::mm")
    builder.launches("encoder").up()
    for _ in range(3):
        builder.graph(("a", 20.0), ("b", 30.0)).runtime("hipEventRecord")
    builder.child("aten::mm").launches("decoder").up(2)
    whole, *parts = rows(builder)
    assert (whole["phase"], whole["resolution"], whole["part"]) == ("diffusion", "256x256", None)
    assert [part["phase"] for part in parts] == ["encode", *["denoise"] * 3, "image_decode"]
    assert [part["gpu_event_count"] for part in parts] == [1, 2, 2, 2, 1]
    assert {part["name"] for part in parts} == {None}


def test_replays_are_steps_if_nothing_marks_steps() -> None:
    builder = trace().op("aten::mm").launches("warm").up()
    for _ in range(3):
        builder.graph(("a", 20.0), ("b", 30.0))
    assert [row["source"] for row in rows(builder)] == ["graph"] * 3
    two = trace().graph(("a", 20.0)).graph(("a", 20.0)).graph(("b", 20.0))
    assert [row["source"] for row in rows(two)] == ["recording"]


def forward(builder: TraceBuilder, kernels: int = 2) -> None:
    """Add a call of a model, with a layer for each kernel."""
    builder.python("nn.Module: Model_0")
    for number in range(kernels):
        builder.python("torch/nn/modules/module.py(1751): _wrapped_call_impl")
        builder.python(f"nn.Module: Layer_{number}").child("aten::mm").launches("gemm", us=50)
        builder.up(3)
    builder.up()


def test_calls_of_the_same_modules_in_a_row_are_steps() -> None:
    builder = trace().python("generate.py(7): generate").child("aten::embedding")
    builder.launches("embed").up()
    for _ in range(4):
        builder.python("generate.py(20): prepare").child("aten::add").launches("add").up(2)
        forward(builder)
    found = rows(builder.up())
    assert [row["source"] for row in found] == ["calls"] * 4
    assert [row["gpu_event_count"] for row in found] == [3] * 4
    assert {row["name"] for row in found} == {None}


def attention(builder: TraceBuilder, queries: int, keys: int) -> None:
    shapes = [[4, 8, queries, 64], [4, 8, keys, 64], [4, 8, keys, 64]]
    builder.child("aten::_scaled_dot_product_flash_attention", shapes)
    builder.launches("flash_fwd_kernel", us=20).up()


def test_one_query_for_each_request_is_decoding() -> None:
    builder = trace()
    for queries, keys in ((64, 64), (1, 65), (1, 1)):
        builder.annotation("ProfilerStep#7", us=100)
        attention(builder, queries, keys)
        builder.up()
    mixed = builder.annotation("ProfilerStep#8", us=100)
    attention(mixed, 1, 65)
    attention(mixed, 64, 64)
    found = rows(mixed.up())
    assert [row["phase"] for row in found] == [None, "decode", None, None]
    assert [row["itl_ms"] is not None for row in found] == [False, True, False, False]


def test_layers_in_a_row_are_no_steps() -> None:
    builder = trace()
    forward(builder, kernels=8)
    assert [row["source"] for row in rows(builder)] == ["recording"]
    calls = trace()
    for _ in range(6):
        calls.op("aten::mm").launches("gemm").up()
    assert [row["source"] for row in rows(calls)] == ["recording"]


def test_two_calls_or_less_than_half_of_the_calls_are_no_steps() -> None:
    twice = trace().python("generate.py(7): generate")
    for _ in range(2):
        forward(twice)
    assert [row["source"] for row in rows(twice.up())] == ["recording"]
    few = trace().python("generate.py(7): generate")
    for _ in range(3):
        forward(few)
    for number in range(9):
        few.python(f"nn.Module: Head_{number}").child("aten::mm").launches("gemm").up(2)
    assert [row["source"] for row in rows(few.up())] == ["recording"]


def test_repeated_calls_of_recordings(reference_root: Path) -> None:
    loop = read_trace(reference_root / "traces" / "normalization-layers.json.gz")
    steps = TraceLensReport(loop, None).inference_steps
    assert steps["source"].to_list() == ["calls"] * 3  # Net_0, three times
    picture = read_trace(reference_root / "serving" / "xdit-flux-sage" / "trace.json.gz")
    denoising = repeated_calls(picture)
    launches = picture.runtime.filter(picture.runtime["name"] == "hipGraphLaunch")["ts_ns"]
    spans = denoising.select("host_start_ns", "host_end_ns").iter_rows()
    assert [[at for at in launches if start <= at <= end] for start, end in spans] == [
        [at] for at in launches
    ]
    once = read_trace(reference_root / "traces" / "mi300-qwen1.5-0.5b.json.gz")
    assert repeated_calls(once).is_empty()


def test_a_step_with_a_launch_without_gpu_work_is_cut() -> None:
    builder = trace()
    builder.annotation(DECODE, us=100).child("aten::mm").launches("gemm").up(2)
    builder.annotation(DECODE, us=100).child("aten::mm").launches("gemm")
    builder.runtime("cudaLaunchKernel").up(2)
    tables = report(builder)
    assert tables.inference_steps["is_cut"].to_list() == [False, True]
    remarks = list(step_notes(tables.inference_steps, tables.idle_gaps, tables.trace.gpu_events))
    assert "GPU work of 1 step is not recorded completely (is_cut)." in remarks


def test_drafted_tokens_make_the_rate_an_upper_limit() -> None:
    name = "step[DECODE bs=8 g_sq=16 g_sqsq=32 g_sqsk=4000 g_sk=2000]"
    tables = report(trace().annotation(name, us=99).child("aten::mm").launches("gemm").up(2))
    remarks = list(step_notes(tables.inference_steps, tables.idle_gaps, tables.trace.gpu_events))
    assert any(remark.startswith("Tokens/s are an upper limit") for remark in remarks)


def test_rates_need_peaks() -> None:
    builder = trace().annotation(DECODE, us=99).child("aten::mm", [[8, 4], [4, 2]])
    tables = report(builder.launches("gemm").up(2))
    (step,) = tables.inference_steps.to_dicts()
    assert (step["modelled_pct"], step["flops"]) == (100, 2 * 8 * 4 * 2)
    remarks = list(step_notes(tables.inference_steps, tables.idle_gaps, tables.trace.gpu_events))
    assert remarks[1:] == ["MFU and MBU are empty where a peak of the GPU is not known."]


def test_mfu_and_mbu_are_shares_of_what_the_peaks_do_in_the_step_time() -> None:
    hardware = load_hardware().get("H200")
    builder = trace().annotation(DECODE, us=99).child("aten::mm", [[512, 512], [512, 512]])
    tables = TraceLensReport(builder.launches("gemm", us=10).up(2).read(), hardware)
    (step,) = tables.inference_steps.to_dicts()
    peak = hardware.max_achievable_tflops["matrix_bf16"] * 1e12
    assert step["mfu_pct"] == pytest.approx(100 * 2 * 512**3 / (peak * 10e-6))
    moved = 3 * 512 * 512 * 2
    assert step["mbu_pct"] == pytest.approx(100 * moved / (hardware.mem_bw_gbps * 1e9 * 10e-6))


def test_a_trace_without_events() -> None:
    tables = report(trace().op("aten::mm").launches("gemm"))
    steps = tables.inference_steps.clear()
    remarks = list(step_notes(steps, tables.idle_gaps, tables.trace.gpu_events))
    assert remarks == ["The trace has no events."]


def test_the_command_prints_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builder = trace().annotation(DECODE, us=100).child("aten::mm").launches("gemm").up(2)
    path = str(builder.write(tmp_path / "t.json"))
    assert main(["steps", path]) == 0
    *_, head, row, source, _ = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["Step", "Phase"]
    assert row.split()[:2] == ["0", "decode"]
    assert source == "Steps are those that the inference engine annotates."
    assert main(["steps", path, "--format", "csv"]) == 0
    (of_csv,) = csv.DictReader(capsys.readouterr().out.splitlines())
    assert of_csv["gen_requests"] == "8"
    assert main(["steps", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"][0]["gen_requests"] == 8


def test_the_command_writes_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builder = trace().annotation(DECODE, us=100).child("aten::mm").launches("gemm").up(2)
    path = str(builder.write(tmp_path / "t.json"))
    assert main(["steps", path, "--output-dir", str(tmp_path / "out")]) == 0
    names = ["inference_steps", "inference_phases", "inference_layers", "inference_layer_times"]
    names += ["inference_events"]
    files = [tmp_path / "out" / f"{name}.csv" for name in names]
    assert capsys.readouterr().out.split() == [str(file) for file in files]
    (phase,) = csv.DictReader(files[1].read_text().splitlines())
    assert (phase["phase"], phase["step_count"], phase["tokens"]) == ("decode", "1", "8")


def test_phases() -> None:
    builder = trace()
    for at_us, name in ((1200, DECODE), (1400, DECODE), (1500, "step[EXTEND bs=2 toks=300]")):
        builder.annotation(name, us=100).child("aten::mm")
        builder.launches("Cijk_gemm", us=100, at_us=at_us).up(2)
    decode, prefill = report(builder).inference_phases.to_dicts()
    assert (prefill["phase"], prefill["tokens"], prefill["step_count"]) == ("prefill", 300, 1)
    assert prefill["tokens_per_s"] == pytest.approx(3e6)
    assert (decode["phase"], decode["tokens"], decode["step_count"]) == ("decode", 16, 2)
    assert decode["time_ms"] == pytest.approx(0.3)
    assert decode["mean_ms"] == decode["p50_ms"] == pytest.approx(0.15)
    assert prefill["share_pct"] == pytest.approx(25)
    assert decode["top_blocks"] == "GEMM 100.0%"


def recorded(root: Path, name: str) -> tuple[list[dict[str, Any]], list[str]]:
    tables = TraceLensReport(read_trace(root / "serving" / name / "trace.json.gz"), None)
    steps = tables.inference_steps
    return steps.to_dicts(), list(step_notes(steps, tables.idle_gaps, tables.trace.gpu_events))


def test_a_recorded_decode_step(reference_root: Path) -> None:
    (step,), remarks = recorded(reference_root, "sglang-qwen3-8b-decode")
    assert (step["engine"], step["phase"], step["launch_mode"]) == ("SGLang", "decode", "graph")
    assert (step["gen_requests"], step["kv_tokens"], step["gpu_event_count"]) == (32, 32785, 558)
    assert step["step_time_ms"] == step["itl_ms"] == pytest.approx(10.450, abs=0.001)
    assert step["carried_in_ms"] == pytest.approx(463.295, abs=0.001)
    assert step["tokens_per_s"] == pytest.approx(3062, abs=1)
    assert not step["is_cut"]
    (carried_in,) = (remark for remark in remarks if "before the recording" in remark)
    assert "`hipMemcpyWithStream` (256 B) of `aten::copy_`" in carried_in
    assert "`populate_from_forward_batch (cuda_graph_runner.py:276)`" in carried_in


def test_a_recorded_diffusion_step(reference_root: Path) -> None:
    (whole, *parts), _ = recorded(reference_root, "xdit-flux-sage")
    assert (whole["phase"], whole["resolution"]) == ("diffusion", "256x256")
    assert (whole["gpu_event_count"], round(whole["step_time_ms"], 3)) == (7866, 226.596)
    replays = [part for part in parts if part["phase"] == "denoise"]
    windows = [part["gpu_end_ms"] - part["gpu_start_ms"] for part in replays]
    assert windows == pytest.approx([42.37, 43.13, 42.44, 43.06], abs=0.005)
    assert {part["gpu_event_count"] for part in replays} == {1566}
    assert replays[0]["gpu_start_ms"] == pytest.approx(50.055, abs=0.001)


QWEN3_8B = {
    "hidden_size": 4096,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 12288,
    "vocab_size": 151936,
    "torch_dtype": "bfloat16",
}


def model_config(folder: Path) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(QWEN3_8B), encoding="utf-8")
    return path


def printed_steps(
    capsys: pytest.CaptureFixture[str], *arguments: str | Path
) -> tuple[dict[str, Any], list[str]]:
    assert main(["steps", *map(str, arguments), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    return printed["steps"][0], printed["notes"]


def test_steps_without_shapes_have_the_costs_of_the_model_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    built = trace()
    name = "execute_2_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq2sk20sqsq2sqsk20)"
    built.annotation(name, us=200).child("aten::unknown_").launches("unknown", us=100)
    path = built.write(tmp_path / "trace.json")
    options = ("--platform", "MI300X")
    row, notes_without = printed_steps(capsys, path, *options)
    assert row["cost_source"] is row["mfu_pct"] is row["lower_bound_ms"] is None
    assert any("MFU and MBU of the steps are not available" in note for note in notes_without)
    row, with_config = printed_steps(
        capsys, path, *options, "--model-config", model_config(tmp_path)
    )
    assert row["cost_source"] == "config"
    weights = 2 * (36 * 192_937_984 + 4096 * 151936)
    assert row["bytes"] == pytest.approx(weights, rel=0.01)
    assert row["mbu_pct"] == pytest.approx(100 * row["bytes"] / 5.3e12 / 1e-4, rel=0.02)
    assert row["lower_bound_ms"] >= 1e3 * row["bytes"] / 5.3e12
    assert any("computed from the configuration of the model" in note for note in with_config)


def test_a_run_has_the_costs_of_the_model_configuration_and_its_workbook_the_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "execute_2_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq2sk20sqsq2sqsk20)"
    built = trace().annotation(name, us=200).child("aten::unknown_").launches("unknown", us=100)
    path = built.write(tmp_path / "trace.json")
    options = ["--platform", "MI300X", "--model-config", str(model_config(tmp_path))]
    roots = [tmp_path / "one", tmp_path / "two"]
    for root, ranks in zip(roots, ("1", "2"), strict=True):
        more = ["--tensor-parallel", ranks, "--output-dir", str(root)]
        assert main(["analyze", str(path), *options, *more]) == 0
    one, two = (Run.load(root) for root in roots)
    (whole,), (shared,) = (run.table("inference_steps").to_dicts() for run in (one, two))
    assert whole["cost_source"] == shared["cost_source"] == "config"
    assert shared["bytes"] < whole["bytes"]
    assert one.manifest.analysis_id != two.manifest.analysis_id
    assert one.manifest.options.served_model_name == "config.json"
    assert two.manifest.options.tensor_parallel == 2
    rough = (roots[1] / "standalone_analysis_rough.md").read_text(encoding="utf-8")
    assert "--model-config config.json --tensor-parallel 2" in rough
    capsys.readouterr()
    assert main(["export", str(roots[0]), "--format", "xlsx", "-o", str(tmp_path / "r.xlsx")]) == 0
    book = load_workbook(tmp_path / "r.xlsx", read_only=True)
    assert {"inference_steps", "inference_phases", "inference_layers"} <= set(book.sheetnames)
    head, row = book["inference_steps"].iter_rows(values_only=True)
    assert dict(zip(head, row, strict=False))["Costs from"] == "config"


def test_a_model_configuration_that_cannot_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = trace().op("aten::mm").launches("gemm").up().write(tmp_path / "trace.json")
    wrong = tmp_path / "config.json"
    wrong.write_text("{}", encoding="utf-8")
    command = ["analyze", str(path), "--output-dir", str(tmp_path / "run"), "--model-config"]
    assert main([*command, str(wrong)]) == 1
    assert "hidden_size" in capsys.readouterr().err
    assert main([*command, str(tmp_path / "none.json")]) == 1
    assert "No such file" in capsys.readouterr().err


def test_the_configuration_agrees_with_the_captured_shapes(
    reference_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = reference_root / "serving" / "sglang-qwen3-8b-decode"
    path = folder / "trace.json.gz"
    captured, _ = printed_steps(capsys, path, "--capture-folder", folder / "capture")
    inferred, _ = printed_steps(capsys, path, "--model-config", model_config(tmp_path))
    assert captured["cost_source"] == "perf models"
    assert captured["modelled_pct"] > 99
    assert inferred["flops"] == pytest.approx(captured["flops"], rel=0.01)
    assert inferred["bytes"] == pytest.approx(captured["bytes"], rel=0.02)
