"""Operations of two runs, and what the two GPUs explain."""

from pathlib import Path

import polars as pl
import pytest

from jarvis.comparison import compare_operations, expected_ratio
from jarvis.errors import NotARunError
from jarvis.hardware import HardwareSpec
from jarvis.perf_report import PerfReport
from jarvis.pipeline import analyze
from tests.builders import trace

SOURCES = {"default": "made up for tests"}
SLOW = HardwareSpec(
    name="Slow",
    memory_gb=80,
    mem_bw_gbps=1000,
    max_achievable_tflops={"matrix_bf16": 100.0},
    sources=SOURCES,
)
FAST = HardwareSpec(
    name="Fast",
    memory_gb=80,
    mem_bw_gbps=4000,
    max_achievable_tflops={"matrix_bf16": 200.0},
    sources=SOURCES,
)
SQUARE = [[1000, 1000], [1000, 1000]]  # compute bound on both
THIN = [[1, 1000], [1000, 1000]]  # memory bound on both


def operations(square_us: float, thin_us: float, hardware: HardwareSpec) -> pl.DataFrame:
    builder = trace()
    for _ in range(2):
        builder.op("aten::mm", SQUARE).launches("k", us=square_us)
    builder.op("aten::mm", THIN).launches("k", us=thin_us)
    table = PerfReport(builder.read(), hardware).operations
    return table.with_columns(category=pl.lit("gemm"))


def test_expected_ratios_follow_the_bound() -> None:
    assert expected_ratio("memory", "matrix_bf16", SLOW, FAST) == 4.0
    assert expected_ratio("compute", "matrix_bf16", SLOW, FAST) == 2.0
    assert expected_ratio("compute", "matrix_fp8", SLOW, FAST) is None
    assert expected_ratio(None, None, SLOW, FAST) is None


def test_only_what_the_hardware_does_not_explain_is_unexpected() -> None:
    found = compare_operations(operations(60, 40, SLOW), operations(15, 10, FAST), SLOW, FAST)
    assert found["time_ratio"].to_list() == pytest.approx([4.0, 4.0])
    assert found["expected_ratio"].to_list() == [2.0, 4.0]
    assert found["is_unexpected"].to_list() == [True, False]
    # 4 times as slow where 2 is expected: half of the 120 us of both calls.
    assert found["unexpected_us"].to_list() == pytest.approx([60.0, 0.0])
    assert found["reference_calls"].to_list() == [2, 1]


def test_without_hardware_nothing_is_expected() -> None:
    found = compare_operations(operations(60, 40, SLOW), operations(15, 10, FAST), None, FAST)
    assert found["expected_ratio"].null_count() == found.height == 2
    assert found["is_unexpected"].null_count() == 2


def test_a_run_compares_with_the_reference_it_is_given(tmp_path: Path) -> None:
    for name, us in (("reference", 10.0), ("target", 30.0)):
        built = trace(device="AMD Instinct MI300X").op("aten::mm", SQUARE).launches("k", us=us)
        built.write(tmp_path / f"{name}.json")
    reference = tmp_path / "reference_run"
    analyze(tmp_path / "reference.json", output_dir=reference)
    run = analyze(
        tmp_path / "target.json", output_dir=tmp_path / "target_run", reference=str(reference)
    )
    row = run.table("comparison").row(0, named=True)
    assert (row["time_ratio"], row["expected_ratio"]) == (pytest.approx(3.0), 1.0)
    assert row["category"] == "gemm"


def test_a_reference_that_is_no_run_is_refused_before_any_work(tmp_path: Path) -> None:
    built = trace().op("aten::mm", SQUARE).launches("k", us=5)
    built.write(tmp_path / "target.json")
    with pytest.raises(NotARunError):
        analyze(tmp_path / "target.json", output_dir=tmp_path / "run", reference="nowhere")
    assert not (tmp_path / "run").exists()
