"""What the sides of a comparison do differently is stated before any percentage."""

import csv
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from jarvis.comparison import Comparison, Side, compare
from jarvis.pipeline import compare as compare_runs
from jarvis.run import Run
from tests.builders import TraceBuilder, trace
from tests.comparison.sides import FAST, SLOW, side
from tests.recorded_runs import RecordedRun

BF16, FP32 = ["c10::BFloat16"] * 2, ["float"] * 2
DIFFER = "The workloads differ, so the times of both sides are not like for like."
N = K = 1024


def model(rows: int, *, types: list[str] = BF16, layers: int = 1, us: float = 1000) -> TraceBuilder:
    """One step of products of ``rows`` x 1024 by 1024 x 1024, and one whose K is the rows."""
    builder = trace().annotation("ProfilerStep#0")
    for _ in range(layers):
        for _ in range(3):
            builder.child("aten::mm", [[rows, K], [K, N]], types=types).launches("g", us=us).up()
    builder.child("aten::mm", [[N, rows], [rows, N]], types=types).launches("g", us=us)
    return builder.waits((3 * layers + 1) * us).up(2)


def matrix_gflop(root: Path) -> float:
    """The FLOPs of matrix work in the performance report of a run of one step."""
    file = root / "perf_report_csvs" / "unified_perf_summary.csv"
    with file.open(encoding="utf-8", newline="") as rows:
        return sum(
            float(row["GFLOPS"]) * int(row["operation_count"])
            for row in csv.DictReader(rows)
            if row["Compute Spec"].startswith("matrix_") and row["GFLOPS"]
        )


def convolution(batch: int, channels: int = 64) -> TraceBuilder:
    dims = [[batch, channels, 56, 56], [channels, channels, 3, 3], [], [], [], [], [], [], []]
    strides = ["[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
    concrete = ["", "", "", *strides]
    builder = trace().annotation("ProfilerStep#0").child(
        "aten::convolution", dims, types=[*BF16, *[""] * 7], concrete=concrete
    )  # fmt: skip
    return builder.launches("conv", us=1000).waits(1000).up(2)


def found(target: TraceBuilder, reference: TraceBuilder) -> Comparison:
    return compare(side(target, FAST), side(reference, SLOW))


def test_equal_work_on_other_gpus_has_no_difference() -> None:
    equal = found(model(256), model(256, us=4000))
    assert equal.workload == ()
    assert equal.is_like_for_like
    assert equal.summary[0].startswith("One step: ")


def test_more_rows_are_compared_per_row_and_stated_before_the_step() -> None:
    more = found(model(512), model(128))
    step_ms = dict(more.steps.select("type", "target_ms").iter_rows())["step time"]
    flops = {rows: 4 * 2 * rows * N * K / 1e9 for rows in (512, 128)}
    assert more.workload == (
        DIFFER,
        "Matrix products with equal N and K have 4 times as many rows (M) on the target as on the "
        "reference; in the one with most FLOPs, 512 against 128.",
        f"Matrix work with known FLOPs does {flops[512]:.4g} GFLOP per step on the target, "
        f"{flops[128]:.4g} GFLOP on the reference.",
        "Shapes of matrix products and convolutions: 4 in all, 0 of them on both sides.",
        *more.workload[4:],
    )
    per_row = f"{1e3 * step_ms / 512:.3g} µs on the target, {1e3 * step_ms / 128:.3g} µs on the"
    assert any(per_row in text for text in more.workload)
    assert not more.is_like_for_like
    assert more.summary[0] == DIFFER
    assert more.summary.index(DIFFER) < next(
        n for n, text in enumerate(more.summary) if text.startswith("One step: ")
    )


def test_more_layers_are_more_flops_but_no_more_rows() -> None:
    more = found(model(256, layers=2), model(256))
    gflop = 2 * 256 * N * K / 1e9
    assert more.workload[:2] == (
        DIFFER,
        f"Matrix work with known FLOPs does {7 * gflop:.4g} GFLOP per step on the target, "
        f"{4 * gflop:.4g} GFLOP on the reference.",
    )
    assert more.workload[2].startswith("Still comparable: the time per call of 2 operations")
    assert "100.0% of the operations' time on the target, 100.0% on the ref" in more.workload[2]


def test_more_steps_of_the_same_work_are_divided_out() -> None:
    twice = model(256)
    twice.annotation("ProfilerStep#1")
    for dims in (*[[[256, K], [K, N]]] * 3, [[N, 256], [256, N]]):
        twice.child("aten::mm", dims, types=BF16).launches("g", us=1000).up()
    both = found(twice.waits(4000).up(), model(256))
    assert both.base
    assert both.workload == ()


def test_another_type_is_named() -> None:
    peaks = {**FAST.max_achievable_tflops, "matrix_fp32": 50.0}
    fast = FAST.model_copy(update={"max_achievable_tflops": peaks})
    reference = side(model(256, types=FP32), fast)
    other = compare(side(model(256), fast), reference)
    assert "Matrix work computes in bf16 on the target, in fp32 on the reference." in other.workload
    assert not any("FLOPs" in text for text in other.workload)


def test_another_batch_of_the_same_convolutions_is_compared_per_image() -> None:
    other = found(convolution(32), convolution(8))
    assert "Convolutions have a batch of 32 on the target, of 8 on the reference." in other.workload
    (step,) = other.steps.filter(pl.col("type") == "step time").to_dicts()
    times = [f"{1e3 * step[f'{role}_ms'] / batch:.3g} µs on the {role}" for role, batch in
             (("target", 32), ("reference", 8))]  # fmt: skip
    text = f"Still comparable: the step time per image of the batch, {', '.join(times)}."
    assert text in other.workload
    filters = found(convolution(32), convolution(8, channels=32)).workload
    assert DIFFER in filters
    assert not any("batch" in text for text in filters)


def test_names_ranks_and_tokens_differ_only_if_both_are_known() -> None:
    target = side(model(256), FAST)
    reference = replace(target, model="B", ranks=1)
    named = compare(replace(target, model="A", ranks=8), reference).workload
    assert named[1] == "The models differ by name: A on the target, B on the reference."
    assert named[2] == "The job of the target has 8 ranks, that of the reference 1 rank."
    assert compare(target, reference).workload == ()

    def decoding(tokens: int) -> Side:
        steps = target.tables["steps"].with_columns(tokens=tokens)
        return replace(target, tables={**target.tables, "steps": steps})

    def decode(tokens: int) -> Comparison:
        return compare(decoding(tokens), decoding(32))

    assert decode(32).workload == ()
    assert "A step has 64 tokens on the target, 32 tokens on the reference." in decode(64).workload
    assert any("the step time per token" in text for text in decode(64).workload)


def test_other_shapes_of_elementwise_work_differ() -> None:
    def add(size: int) -> TraceBuilder:
        return trace().op("aten::add", [[size, size]] * 2, types=BF16).launches("add", us=1000)

    assert any("1 operation of the same name, 100.0%" in text for text in
               found(add(2048), add(1024)).workload)  # fmt: skip
    assert found(add(2048), add(2048)).workload == ()


def test_no_operation_makes_no_sentence() -> None:
    empty = trace().op("aten::view", [[8]])
    nothing = found(empty, empty)
    assert nothing.workload == ()
    assert nothing.is_like_for_like


@pytest.mark.parametrize("model_name", ["bert-small", "vit-nsfw", "qwen1.5-0.5b"])
def test_one_model_on_two_gpus_is_like_for_like(recorded_run: RecordedRun, model_name: str) -> None:
    runs = [Run.load(recorded_run(f"{gpu}-{model_name}")) for gpu in ("mi300", "h100")]
    assert compare_runs(*runs).workload == ()


def test_two_models_say_the_flops_of_their_traces(recorded_run: RecordedRun) -> None:
    roots = [recorded_run(f"mi300-{name}") for name in ("bert-small", "vit-nsfw")]
    stated = compare_runs(*map(Run.load, roots)).workload
    reported = [matrix_gflop(root) for root in roots]
    assert (
        f"Matrix work with known FLOPs does {reported[0]:.4g} GFLOP per step on the target, "
        f"{reported[1]:.4g} GFLOP on the reference."
    ) in stated
