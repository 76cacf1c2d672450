"""Merging captures into small traces made here: what replayed kernels inherit, and what stays."""

import gzip
import json
import shlex
import zipfile
from pathlib import Path

import polars as pl
import pytest

from jarvis.capture import CaptureError, MergedTrace, capture_alone, merge_captures
from jarvis.capture.engines import ENGINES, OWN_CODE, engine_of
from jarvis.capture.tables import NO_CAPTURES, graph_tables
from jarvis.cli import main
from jarvis.perf_report import PerfReport
from jarvis.run import Run
from jarvis.trace import Trace
from jarvis.tracelens.options import ReportOptions
from jarvis.tracelens.report import TraceLensReport
from tests.builders import TraceBuilder, trace
from tests.perf_report.test_inference_steps import QWEN3_8B
from tests.test_how_to import ROOT, blocks

LAYERS = 3
CAPTURE_FRAME = "engine/runner.py(40): capture"
BEGIN, END = "hipStreamBeginCapture", "hipStreamEndCapture"


def layer(builder: TraceBuilder, rows: int, number: int, *, leftover: bool = False) -> None:
    """Add the captured calls of one layer: a product, and an activation."""
    builder.python(f"nn.Module: Layer_{number}").child("aten::mm", [[rows, 64], [64, 128]])
    builder.adds("Cijk_gemm").up()
    if leftover:
        builder.child("aten::zero_", [[rows]]).adds("fill_kernel").up()
    builder.child("aten::silu", [[rows, 128]]).adds("silu_kernel").up(2)


def captured(*batches: int, layers: int = LAYERS, leftover: bool = False) -> TraceBuilder:
    """A capture trace with one window for each batch."""
    builder = trace("AMD Instinct MI300X").python(CAPTURE_FRAME)
    builder.child("aten::mm", [[1, 64], [64, 128]]).launches("warm_up").up()
    for rows in batches:
        builder.runtime(BEGIN).python("engine/model.py(7): forward")
        for number in range(layers):
            layer(builder, rows, number, leftover=leftover and number == 0)
        builder.up().runtime(END)
    return builder


KERNELS = [("Cijk_gemm", 20.0), ("silu_kernel", 5.0)] * LAYERS


def step(builder: TraceBuilder, rows: int, *graphs: list[tuple[str, float]]) -> TraceBuilder:
    """Add a decode step that launches graphs."""
    builder.annotation(f"step[DECODE bs={rows}]")
    for kernels in graphs or (KERNELS,):
        builder.graph(*kernels, call="hipGraphLaunch")
    return builder.up().waits(500.0)


def replaying(*steps: int) -> Trace:
    """A trace with an eager op and a step for each number of rows."""
    builder = trace("AMD Instinct MI300X").process("python3")
    builder.op("aten::add", [[8, 8], [8, 8]]).launches("add_kernel", us=3.0).up()
    for rows in steps:
        step(builder, rows)
    return builder.read()


def merge(replay: Trace, folder: Path, **files: TraceBuilder) -> MergedTrace:
    """Merge captures that are written to a folder, by file name without suffix."""
    folder.mkdir(exist_ok=True)
    for name, builder in files.items():
        builder.write(folder / f"{name}.json")
    return merge_captures(replay, [folder])


def shapes(merged: Trace) -> set[tuple[str, str]]:
    """The operators of the report with GPU time and their shapes."""
    rows = PerfReport(merged, None).operations.filter(pl.col("kernel_time_us") > 0)
    return set(rows.select("name", "input_dims").iter_rows())


def test_replayed_kernels_inherit_operator_and_shapes(tmp_path: Path) -> None:
    merged = merge(replaying(32), tmp_path, bs_32=captured(32))
    assert shapes(merged) == {
        ("aten::add", "((8, 8), (8, 8))"),
        ("aten::mm", "((32, 64), (64, 128))"),
        ("aten::silu", "((32, 128),)"),
    }
    (match,) = merged.matches
    assert match.chosen is not None
    assert (match.chosen.coverage, match.chosen.leftovers, match.confidence) == (1, 0, "names")


def test_gpu_times_and_host_activity_stay_as_recorded(tmp_path: Path) -> None:
    replay = replaying(32, 32)
    before = PerfReport(replay, None)
    after = PerfReport(merge(replay, tmp_path, bs_32=captured(32)), None)
    for name in (
        *("gpu_timeline", "idle_gaps", "steps", "step_gaps", "other_definitions"),
        *("host_threads", "host_slices", "host_bins", "memory_copies"),
    ):
        assert after.table(name).equals(before.table(name)), name


def test_captured_calls_are_below_the_launch_and_have_its_time(tmp_path: Path) -> None:
    merged = merge(replaying(32), tmp_path, bs_32=captured(32))
    tree = merged.python_call_tree.join(
        pl.concat([t.select("uid", "name") for t in (merged.cpu_ops, merged.runtime)]).cast(
            {"name": pl.String}
        ),
        on="uid",
    )
    (launch,) = tree.filter(name="hipGraphLaunch").iter_rows(named=True)
    below = tree.filter(
        pl.col("order").is_between(launch["order"], launch["subtree_end"], closed="left")
    )
    assert below["name"].value_counts().sort("name").rows() == [
        *(("CaptureRoot", 1), ("aten::mm", LAYERS), ("aten::silu", LAYERS)),
        *(("hipGraphLaunch", 1), ("hipLaunchKernel", 2 * LAYERS)),
    ]
    shown = merged.shown_times(merged.cpu_ops).filter(pl.col("name") == "aten::mm")
    (recorded,) = merged.runtime.filter(pl.col("uid") == launch["uid"]).iter_rows(named=True)
    assert set(shown["ts_ns"]) == {recorded["ts_ns"]}
    assert set(shown["dur_ns"]) == {recorded["dur_ns"]}


def test_the_smallest_capture_that_holds_the_tokens_is_chosen(tmp_path: Path) -> None:
    files = {f"bs_{rows}": captured(rows) for rows in (8, 16, 32)}
    merged = merge(replaying(9, 32), tmp_path, **files)
    chosen = [(m.chosen.capture.batch, m.confidence) for m in merged.matches if m.chosen]
    assert chosen == [(16, "batch"), (32, "batch")]


def test_parts_of_a_step_use_consecutive_captures(tmp_path: Path) -> None:
    first, second = KERNELS[:2], KERNELS[:2]
    replay = step(step(trace(), 4, first, second, first), 4, first, second, first).read()
    merged = merge(replay, tmp_path, piecewise=captured(4, 5, 6, layers=1))
    assert [m.chosen.index for m in merged.matches if m.chosen] == [0, 1, 2, 0, 1, 2]
    assert {m.confidence for m in merged.matches} == {"order"}
    assert {dims for name, dims in shapes(merged) if name == "aten::silu"} == {
        f"(({rows}, 128),)" for rows in (4, 5, 6)
    }


def test_a_graph_without_capture_stays_as_it_is(tmp_path: Path) -> None:
    other = [("unknown_kernel", 30.0), ("another", 10.0)]
    replay = step(trace(), 4, KERNELS, other).read()
    merged = merge(replay, tmp_path, bs_4=captured(4))
    with_capture, without = merged.matches
    assert with_capture.chosen is not None
    assert without.chosen is None
    assert without.reason == "bs_4.json: 0% of the kernel names are the same"
    assert merged.links.height == len(KERNELS)


def test_calls_left_over_on_both_sides_are_counted(tmp_path: Path) -> None:
    kernels = [*KERNELS, ("tail_kernel", 0.1)]
    replay = step(trace(), 4, kernels).read()
    merged = merge(replay, tmp_path, bs_4=captured(4, leftover=True))
    (match,) = merged.matches
    assert match.chosen is not None
    assert match.chosen.leftovers == 1
    assert len(match.chosen.alignment.pairs) == len(KERNELS)
    unified = TraceLensReport(merged, None).unified_perf_summary["name"]
    assert "hipGraphLaunch->tail_kernel (Synthetic Op)" in set(unified)


def test_little_coverage_merges_nothing(tmp_path: Path) -> None:
    kernels = [*KERNELS, ("long_kernel", 900.0)]
    replay = step(trace(), 4, kernels).read()
    (match,) = merge(replay, tmp_path, bs_4=captured(4)).matches
    assert match.chosen is None
    assert match.reason == "bs_4.json: captured calls for 8% of its time"


def test_sheets_of_the_inference_report_have_modules(tmp_path: Path) -> None:
    merged = merge(replaying(32, 32), tmp_path, bs_32=captured(32))
    options = ReportOptions(inference=True, group_by_parent_module=True, group_by_num_kernels=True)
    report = TraceLensReport(merged, None, tracelens_models_only=True, options=options)
    rows = report.ops_summary.filter(name="aten::mm").select("parent_module", "count")
    assert rows.rows() == [("nn.Module: Layer", 2 * LAYERS)]
    assert "coll_analysis" not in report.sheet_tables()


def test_a_folder_is_read_and_not_written(tmp_path: Path) -> None:
    (tmp_path / "execution_details.json").write_text(
        json.dumps([{"file": "/elsewhere/first.json", "batch_size": 64, "mode": "FULL"}])
    )
    captured(8).write(tmp_path / "ignored.json")
    merged = merge(replaying(40), tmp_path, first=captured(64))
    assert merged.matches[0].chosen is not None
    assert merged.matches[0].chosen.capture.batch == 64
    assert {path.name for path in tmp_path.iterdir()} == {
        *("execution_details.json", "first.json", "ignored.json")
    }


def test_names_and_annotations_state_batch_rank_and_phase(tmp_path: Path) -> None:
    named = captured(8)
    annotated = trace().annotation("capture_16_mixed_prefill")
    annotated.runtime(BEGIN)
    layer(annotated, 16, 0)
    annotated.runtime(END)
    places = [
        named.write(tmp_path / "bs_8_q_2_rank1.json"),
        annotated.write(tmp_path / "b.json"),
        captured(24).write(tmp_path / "unnamed.json"),
    ]
    from jarvis.capture.files import read_captures

    found = [(c.batch, c.query_length, c.rank, c.phase, c.mode) for c in read_captures(places)]
    assert found == [
        (8, 2, 1, None, "FULL"),
        (16, None, None, "mixed_prefill", "FULL"),
        (24, None, None, None, "FULL"),
    ]


def test_an_archive_of_captures_is_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "captures.zip", "w") as archive:
        for rows in (8, 32):
            path = captured(rows).write(tmp_path / f"bs_{rows}.json")
            archive.write(path, f"folder/{path.name}")
    merged = merge_captures(replaying(32), [tmp_path / "captures.zip"])
    assert merged.matches[0].chosen is not None
    assert merged.matches[0].chosen.capture.file == "bs_32.json"


def eager(*batches: int, layers: int = LAYERS) -> TraceBuilder:
    """A trace without graphs, with a step for each batch."""
    builder = trace("AMD Instinct MI300X")
    for rows in batches:
        builder.annotation(f"step[DECODE bs={rows}]").python("engine/model.py(7): forward")
        for number in range(layers):
            builder.python(f"nn.Module: Layer_{number}")
            builder.child("aten::mm", [[rows, 64], [64, 128]]).launches("Cijk_gemm").up()
            builder.child("aten::silu", [[rows, 128]]).launches("silu_kernel").up(2)
        builder.up(2)
    return builder


def test_a_step_without_graphs_is_used_like_a_capture(tmp_path: Path) -> None:
    merged = merge(step(trace("AMD Instinct MI300X"), 4, KERNELS).read(), tmp_path, step=eager(4))
    assert shapes(merged) == {("aten::mm", "((4, 64), (64, 128))"), ("aten::silu", "((4, 128),)")}
    (launch,) = graph_tables(merged, TraceLensReport(merged, None).layers.events)[
        "graph_launches"
    ].to_dicts()
    assert (launch["mode"], launch["rule"], launch["coverage_pct"]) == ("EAGER", "names", 100)


def test_the_step_without_graphs_with_the_tokens_of_the_replay_is_used(tmp_path: Path) -> None:
    merged = merge(step(trace(), 4, KERNELS).read(), tmp_path, steps=eager(2, 4, 8))
    assert {dims for name, dims in shapes(merged) if name == "aten::silu"} == {"((4, 128),)"}
    assert [match.confidence for match in merged.matches] == ["batch"]


def test_another_model_without_graphs_is_refused(tmp_path: Path) -> None:
    other = [("other_kernel", 20.0), ("silu_kernel", 5.0)] * LAYERS
    merged = merge(step(trace(), 4, other).read(), tmp_path, step=eager(4))
    assert merged.links.is_empty()
    assert "kernel names are the same" in merged.matches[0].reason


def test_captures_on_another_thread_and_unpaired_calls(tmp_path: Path) -> None:
    builder = captured(32)
    builder.thread(9).python("engine/other.py(1): poll").runtime(END).runtime(BEGIN)
    merged = merge(replaying(32), tmp_path, bs_32=builder)
    assert merged.matches[0].chosen is not None
    assert merged.matches[0].chosen.capture.unpaired == 2


def test_a_capture_given_as_the_trace_is_refused(tmp_path: Path) -> None:
    error = capture_alone(captured(32).read())
    assert error is not None
    assert "Pass the trace of the replay" in str(error)
    assert capture_alone(replaying(32)) is None


def test_a_program_that_captures_and_replays_is_analyzed() -> None:
    once = step(captured(32).up(), 32)
    assert capture_alone(once.read()) is not None
    assert capture_alone(step(once, 32).read()) is None


def test_places_without_captures_are_refused(tmp_path: Path) -> None:
    replay = replaying(4)
    with pytest.raises(CaptureError, match="does not exist"):
        merge_captures(replay, [tmp_path / "none"])
    replay_file = step(trace(), 4).write(tmp_path / "replay.json")
    with pytest.raises(CaptureError, match="no file records the capture"):
        merge_captures(replay, [replay_file])


def test_tables_state_what_was_matched(tmp_path: Path) -> None:
    other = [("unknown_kernel", 30.0)]
    replay = step(trace(), 4, [*KERNELS, ("tail_kernel", 0.1)], other).read()
    merged = merge(replay, tmp_path, bs_8=captured(8))
    tables = graph_tables(merged, TraceLensReport(merged, None).layers.events)
    launches = tables["graph_launches"].select(
        *("step", "kernel_count", "capture_file", "batch", "mode", "rule", "matched_count"),
        *("replayed_only_count", "captured_only_count", "confidence"),
    )
    count = len(KERNELS)
    step_name = "step[DECODE bs=4]"
    assert launches.rows() == [
        (step_name, count + 1, "bs_8.json", 8, "FULL", "names", count, 1, 0, "names"),
        (step_name, 1, None, None, None, None, 0, 1, None, None),
    ]
    rows = tables["graph_kernel_map"]
    assert rows.height == count + 2
    assert rows.row(0, named=True) | {"graph_key": ""} == {
        "graph_key": "",
        "position": 0,
        "kernel": "Cijk_gemm",
        "block": "gemm",
        "kind": 0,
        "layer": 0,
        "dispatch": 0,
        "operation": "aten::mm",
        "input_dims": "((8, 64), (64, 128))",
        "input_types": "('c10::BFloat16', 'c10::BFloat16')",
        "input_strides": "((64, 1), (128, 1))",
        "concrete_inputs": "('', '')",
        "nn_module_chain": ["Layer_0"],
        "entry_point": "engine/model.py(7): forward",
    }
    assert rows["layer"].to_list() == [0, 0, 1, 1, 2, 2, None, None]
    assert rows.row(count)[4:9] == (None,) * 5


def test_tables_without_a_capture() -> None:
    replay = step(trace(), 4, KERNELS).read()
    tables = graph_tables(replay, TraceLensReport(replay, None).layers.events)
    (launch,) = tables["graph_launches"].to_dicts()
    assert (launch["kernel_count"], launch["matched_count"]) == (len(KERNELS), 0)
    assert launch["reason"] == NO_CAPTURES
    assert tables["graph_kernel_map"]["dispatch"].null_count() == len(KERNELS)


def test_the_page_has_the_options_of_each_engine() -> None:
    page = (ROOT / "docs" / "how-to" / "captured-graphs.md").read_text(encoding="utf-8")
    for engine in (*ENGINES, OWN_CODE):
        assert f"| {engine.name} | {engine.capture} | {engine.step} |" in page


def test_an_engine_is_recognized_by_its_frames() -> None:
    frames = pl.Series(["/app/xDiT/xfuser/runner.py(126): <module>", "/opt/vllm/a.py(1): f"] * 2)
    assert engine_of(frames.head(3)).name == "xDiT"
    assert engine_of(pl.Series(["torch/nn/modules/module.py(1): forward"])) is OWN_CODE


def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "captures").mkdir()
    captured(32).write(tmp_path / "captures" / "bs_32.json")
    for path, builder in (
        (tmp_path / "captures" / "bs_32.json.gz", captured(32)),
        (tmp_path / "step.json.gz", step(trace("AMD Instinct MI300X"), 32)),
    ):
        path.write_bytes(gzip.compress(json.dumps(builder.document()).encode()))
    commands, with_config = blocks("captured-graphs.md", "sh")
    for command in commands.splitlines():
        assert main(shlex.split(command)[1:]) == 0, command
    operations = Run.load(tmp_path / "analysis_output").table("operations")
    assert ("aten::mm", "((32, 64), (64, 128))") in set(
        operations.select("name", "input_dims").iter_rows()
    )
    assert (tmp_path / "inference" / "GEMM.csv").is_file()
    launches = Run.load(tmp_path / "analysis_output").table("graph_launches")
    assert launches["matched_count"].to_list() == [2 * LAYERS]
    assert set(operations.filter(name="aten::mm")["host_time_us"]) == {None}
    (tmp_path / "config.json").write_text(json.dumps(QWEN3_8B), encoding="utf-8")
    assert main(shlex.split(with_config)[1:]) == 0
    options = Run.load(tmp_path / "analysis_output").manifest.options
    assert options.served_model_name == "config.json"
