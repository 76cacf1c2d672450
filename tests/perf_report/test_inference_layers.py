"""Layers that repeat in the steps of inference."""

import csv
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jarvis.capture import merge_captures
from jarvis.cli import main
from jarvis.hardware import load_hardware
from jarvis.perf_report.serving.layer_operations import layer_module
from jarvis.perf_report.serving.layers import Layers, is_regular, odd_layers, slow_group
from jarvis.perf_report.serving.notes import layer_notes
from jarvis.perf_report.serving.repetition import Repeats, repeats
from jarvis.trace import read_trace
from jarvis.tracelens.report import TraceLensReport
from tests.builders import TraceBuilder, trace

DECODE = "execute_context_0(0)_generation_8(8)"
ATTENTION, REDUCE, NORM, GEMM = "flash_fwd_kernel", "mla_reduce", "rms_norm", "Cijk_gemm"


def found(text: str) -> list[Repeats]:
    ids = np.array([ord(letter) for letter in text])
    return repeats(ids, np.ones_like(ids))


def test_the_longest_stretch_and_what_is_beside_it() -> None:
    assert found("xyabcabcabcabz") == [Repeats(2, 3, 3)]
    assert found("abababcdecdecdecde") == [Repeats(0, 2, 3), Repeats(6, 3, 4)]
    # Twice the period covers as much; two repeats are too few.
    assert found("abababab") == [Repeats(0, 2, 4)]
    assert found("abcabc") == []
    assert found("") == []


def test_what_takes_little_time_is_no_layer() -> None:
    ids = np.array([1, 2, 1, 2, 1, 2, 9])
    assert repeats(ids, np.array([1, 1, 1, 1, 1, 1, 200])) == []


def test_many_short_stretches_are_found_at_once() -> None:
    assert found("".join(chr(200 + n) + "abab" + "ab" for n in range(3000))) == []


@given(st.lists(st.integers(0, 3), max_size=40))
def test_repeats_repeat(ids: list[int]) -> None:
    parts = repeats(np.array(ids, dtype=np.int64), np.ones(len(ids), dtype=np.int64))
    for part in parts:
        first = ids[part.start : part.start + part.period]
        assert ids[part.start : part.stop] == first * part.count
        assert part.count >= 3
    assert all(a.stop <= b.start for a, b in pairwise(parts))


def test_two_groups_of_layers() -> None:
    alternating = np.array([10.0, 20.0] * 6)
    slow = slow_group(alternating)
    assert slow is not None
    assert slow.tolist() == [False, True] * 6
    assert is_regular(slow)
    contiguous = slow_group(np.array([10.0] * 5 + [20.0] * 5))
    assert contiguous is not None
    assert is_regular(contiguous)
    mixed = slow_group(np.array([10.0, 10, 20, 10, 10, 20, 20, 10, 20, 10]))
    assert mixed is not None
    assert not is_regular(mixed)
    assert slow_group(np.array([10.0, 12.0] * 6)) is None  # too close
    assert slow_group(np.array([10.0, 20.0] * 3)) is None  # too few layers
    assert slow_group(np.array([10.0] * 10 + [20.0] * 2)) is None  # two are outliers
    assert slow_group(np.zeros(10)) is None


def test_odd_layers() -> None:
    assert odd_layers(np.array([10.0, 11, 10, 12, 30, 11])) == [4]
    assert odd_layers(np.full(8, 3.0)) == []
    # Beyond the deviations of equal layers, but by 10% only.
    assert odd_layers(np.array([10.0, 10, 10, 10, 11, 10])) == []


def report(*steps: tuple[tuple[str, float], ...]) -> TraceLensReport:
    """The report of decode steps that replay these kernels."""
    builder: TraceBuilder = trace()
    for kernels in steps:
        builder.annotation(DECODE, us=100).graph(*kernels).up()
    return TraceLensReport(builder.read(), None)


def layers(*steps: tuple[tuple[str, float], ...]) -> Layers:
    """The layers of decode steps that replay these kernels."""
    return report(*steps).layers


def notes(of: TraceLensReport) -> list[str]:
    """The sentences about the layers of a report."""
    return list(layer_notes(of.inference_layers, of.inference_layer_times))


LAYER = ((NORM, 5.0), (GEMM, 20.0), (ATTENTION, 30.0), (REDUCE, 5.0))


def test_the_layers_of_a_graph() -> None:
    step = (("embedding_gather", 10.0), *LAYER * 9, ("lm_head_gemm", 50.0))
    made = report(step, step)
    of = made.layers
    (kind,) = of.kinds
    assert (kind.phase, kind.layers, len(kind.names)) == ("decode", 9, 4)
    assert kind.sequence_pct == pytest.approx(100 * 540 / 600)
    rows = of.rows().filter(of.rows()["kind"].is_not_null())
    assert rows["block"].to_list() == ["norm", "gemm", "attention", "attention"]
    assert rows["count"].to_list() == [18] * 4
    assert rows["p50_us"].to_list() == [5, 20, 30, 5]
    assert of.rows()["share_pct"].sum() == pytest.approx(100)
    rest = of.rows().filter(of.rows()["kind"].is_null())
    assert rest["block"].to_list() == ["gemm", "index"]
    (sentence,) = notes(made)
    assert sentence == (
        "9 layers, of 4 kernels per layer, make up 90.0% of the GPU time of decode; median 60.0 µs "
        "per layer."
    )


def test_a_slow_layer_is_named_with_its_block() -> None:
    slow = (LAYER[0], (GEMM, 120.0), *LAYER[2:])
    _, sentence = notes(report((*LAYER * 7, *slow, *LAYER * 2)))
    assert sentence == "Slow: layer 7, 160 µs instead of 60.0 µs, mostly GEMM."


def test_a_period_of_two_layers_and_their_times() -> None:
    local, full = LAYER[:3], ((NORM, 5.0), (GEMM, 20.0), (ATTENTION, 90.0), (REDUCE, 5.0))
    (kind,) = layers((*local, *full) * 5).kinds
    assert (kind.layers, kind.layers_per_period, len(kind.names)) == (10, 2, 7)


def test_layers_of_two_times_have_no_common_mean() -> None:
    fast, slow = ((NORM, 5.0), (ATTENTION, 30.0)), ((NORM, 5.0), (ATTENTION, 60.0))
    of = layers((*fast, *slow) * 5)
    rows = of.rows().filter(of.rows()["position"] == 1)
    assert rows.select("population", "count", "mean_us").rows() == [
        ("fast", 5, 30.0),
        ("slow", 5, 60.0),
    ]
    assert rows["share_pct"].sum() == pytest.approx(100 * 450 / 500)


def test_layers_with_other_tiles_are_compared_by_block() -> None:
    step = [((f"Cijk_MT{tile}", 20.0), (ATTENTION, 10.0)) for tile in range(8)]
    (kind,) = layers(tuple(kernel for layer in step for kernel in layer)).kinds
    assert (kind.layers, len(kind.names)) == (8, 2)


def test_a_step_without_layers() -> None:
    of = report((("a", 10.0), ("b", 10.0)))
    assert notes(of) == ["No layers repeat at least three times."]
    assert of.inference_layers["share_pct"].to_list() == [100]


def ascii_shapes(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows whose shapes have an x between their sides."""
    return rows.with_columns(pl.col("shapes").str.replace_all("\N{MULTIPLICATION SIGN}", "x"))


def eager_layer(builder: TraceBuilder, module: str) -> None:
    builder.python(f"nn.Module: {module}").child("aten::mm", [[8, 64], [64, 128]])
    builder.launches(GEMM, us=20).up().child("aten::silu", [[8, 128]]).launches("silu", us=5).up(2)


def test_layers_have_the_operations_and_modules_of_their_calls() -> None:
    builder = trace("AMD Instinct MI300X").annotation(DECODE, us=500)
    for number in range(4):
        eager_layer(builder, f"Layer_{number}")
    made = TraceLensReport(builder.up().read(), load_hardware().get("MI300X"))
    rows = made.inference_layers
    named = ascii_shapes(rows).select(
        "operation", "shapes", "module", "layer_module", "module_count"
    )
    assert named.rows() == [
        ("aten::mm", "8x128x64 bf16", "Layer", "Layer", 4),
        ("aten::silu", "8x128 bf16", "Layer", "Layer", 4),
    ]
    of_operations = dict(made.operations.select("uid", "pct_roofline").iter_rows())
    efficiency = dict(rows.select("operation_uid", "pct_roofline").iter_rows())
    assert efficiency == of_operations
    assert all(value is not None for value in efficiency.values())
    assert "4 layers (modules Layer)" in notes(made)[0]


def test_modules_that_do_not_tell_layers_apart_are_a_remark() -> None:
    builder = trace().annotation(DECODE, us=500)
    for number in range(4):
        eager_layer(builder, f"Layer_{number // 2}")
    made = TraceLensReport(builder.up().read(), None)
    assert notes(made)[1] == (
        "The modules do not tell these layers apart: 2 instances of `Layer` are around them."
    )


def test_the_layer_module_is_the_outermost_with_most_instances() -> None:
    chains = [["Model_0", f"Block_{n}", f"Attention_{n}", f"Linear_{4 * n}"] for n in range(3)]
    assert layer_module(chains) == ("Block", 3)
    assert layer_module([["Model_0", "Block_0"], ["Model_0", "Other_1"]]) == (None, None)
    assert layer_module([["Model_0"], []]) == (None, None)
    assert layer_module([]) == (None, None)


def test_the_command_lists_layers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(trace().annotation(DECODE).graph(*LAYER * 4).up().write(tmp_path / "t.json"))
    assert main(["steps", path, "--layers"]) == 0
    head, first, *_ = capsys.readouterr().out.splitlines()
    assert head.split()[:4] == ["Phase", "Kind", "Layers", "Position"]
    assert first.split()[:5] == ["decode", "0", "4", "0", "norm"]
    assert main(["steps", path, "--layers", "--format", "csv"]) == 0
    assert len(list(csv.DictReader(capsys.readouterr().out.splitlines()))) == 4
    assert main(["steps", path, "--layers", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["layers"]) == 4


def recorded(root: Path, name: str) -> Layers:
    path = root / "serving" / name / "trace.json.gz"
    return TraceLensReport(read_trace(path), None).layers


def test_the_layers_of_a_recorded_decode_step(reference_root: Path) -> None:
    of = recorded(reference_root, "sglang-qwen3-8b-decode")
    (kind,) = of.kinds
    assert (kind.layers, kind.layers_per_period, len(kind.names)) == (36, 1, 15)
    assert kind.sequence_pct == pytest.approx(95.6, abs=0.05)
    rows = of.rows()
    (attention,) = rows.filter(rows["position"] == 7).to_dicts()
    assert (attention["block"], attention["population"]) == ("attention", None)
    assert attention["max_us"] == pytest.approx(59.7, abs=0.05)
    assert "other" not in rows["block"].to_list()


def test_captured_layers_are_those_of_the_modules(reference_root: Path) -> None:
    folder = reference_root / "serving" / "sglang-qwen3-8b-decode"
    read = merge_captures(read_trace(folder / "trace.json.gz"), [folder / "capture"])
    rows = TraceLensReport(read, load_hardware().get("MI300X")).inference_layers.drop_nulls("kind")
    assert rows["layer_module"].unique().to_list() == ["Qwen3DecoderLayer"]
    assert rows["module_count"].unique().to_list() == [36]
    gemms = (
        ascii_shapes(rows).filter(rows["block"] == "gemm").select("operation", "shapes", "module")
    )
    assert gemms.rows() == [
        ("aiter::gemm_a16w16", "32x6144x4096 bf16", "QKVParallelLinear"),
        ("aiter::gemm_a16w16", "32x4096x4096 bf16", "RowParallelLinear"),
        ("aiter::gemm_a16w16", "32x24576x4096 bf16", "MergedColumnParallelLinear"),
        ("aiter::gemm_a16w16", "32x4096x12288 bf16", "RowParallelLinear"),
    ]


@pytest.mark.parametrize("name", ["sglang-qwen3-8b-decode", "xdit-flux-sage"])
def test_layers_and_blocks_need_no_capture(reference_root: Path, name: str) -> None:
    folder = reference_root / "serving" / name
    read = read_trace(folder / "trace.json.gz")
    alone = TraceLensReport(read, None).layers
    merged = TraceLensReport(merge_captures(read, [folder / "capture"]), None).layers
    assert [kind.layers for kind in alone.kinds] == [kind.layers for kind in merged.kinds]
    shares = (
        of.rows().group_by("phase", "block").agg(pl.col("share_pct").sum()).sort("phase", "block")
        for of in (alone, merged)
    )
    without, with_capture = shares
    assert without["block"].to_list() == with_capture["block"].to_list()
    assert without["share_pct"].to_list() == pytest.approx(
        with_capture["share_pct"].to_list(), abs=1
    )


def test_the_layers_of_a_recorded_picture_model(reference_root: Path) -> None:
    of = recorded(reference_root, "xdit-flux-sage")
    replayed = [kind for kind in of.kinds if kind.durations_us.shape[0] == 4]
    shapes = [(len(kind.names), kind.layers) for kind in replayed]
    # Behind the 23 layers are more of their kind, with other tiles in each second one.
    assert shapes == [(39, 18), (21, 23), (43, 12)]
    assert replayed[0].sequence_pct == pytest.approx(37.3, abs=0.1)
    assert "other" not in of.rows()["block"].to_list()
