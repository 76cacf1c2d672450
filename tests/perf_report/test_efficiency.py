"""Roofline time, bound and efficiency, and why they may be missing."""

import polars as pl
import pytest

from jarvis.hardware import HardwareSpec
from jarvis.tracelens.report import TraceLensReport
from tests.builders import trace

# 100 TFLOPS and 1 TB/s: 100 FLOP/byte at the ridge.
PEAKS = {"matrix_bf16": 100.0, "vector_fp32": 10.0}
MM = [[1000, 1000], [1000, 1000]]  # 2e9 FLOPs (20 us), 6e6 bytes (6 us)
THIN_MM = [[1, 1000], [1000, 1000]]  # 2e6 FLOPs (0.02 us), 2.004e6 bytes (2.004 us)


def spec(**peaks: float) -> HardwareSpec:
    return HardwareSpec(
        name="Test GPU",
        memory_gb=80,
        mem_bw_gbps=1000,
        max_achievable_tflops=peaks,
        sources={"default": "made up for tests"},
    )


def row(
    name: str, dims: list[list[int]], us: float, hardware: HardwareSpec | None, **options: object
) -> dict[str, object]:
    builder = trace()
    for _ in range(2):
        builder.op(name, dims, **options).launches("k", us=us)
    found = TraceLensReport(builder.read(), hardware).operations
    assert found.height == 1
    result: dict[str, object] = found.row(0, named=True)
    return result


def test_the_longer_side_is_the_roofline_time_of_one_call() -> None:
    found = row("aten::mm", MM, 80, spec(**PEAKS))
    assert found["roofline_time_us"] == pytest.approx(20.0)
    assert found["bound"] == "compute"
    assert found["pct_roofline"] == pytest.approx(25.0)
    assert found["tflops_per_s"] == pytest.approx(25.0)
    assert found["tb_per_s"] == pytest.approx(6e6 / 80e-6 / 1e12)
    assert found["flops_per_byte"] == pytest.approx(2e9 / 6e6)
    assert (found["peak_tflops"], found["peak_tb_per_s"]) == (100.0, 1.0)
    assert found["roofline_note"] is None


def test_memory_bounds_what_has_few_flops_per_byte() -> None:
    found = row("aten::mm", THIN_MM, 4.008, spec(**PEAKS))
    assert found["bound"] == "memory"
    assert found["pct_roofline"] == pytest.approx(50.0)


def test_copies_do_no_flops_and_are_bound_by_memory() -> None:
    found = row("aten::copy_", [[1000, 1000], [1000, 1000]], 8, spec(matrix_bf16=1.0))
    assert (found["flops"], found["bound"]) == (0.0, "memory")
    assert found["pct_roofline"] == pytest.approx(50.0)


@pytest.mark.parametrize(
    ("kernel", "has_efficiency"),
    [
        ("Memcpy HtoD (Pageable -> Device)", False),
        ("Memcpy DtoH (Device -> Pinned)", False),
        ("Memcpy DtoD (Device -> Device)", True),
    ],
)
def test_a_copy_over_the_link_to_the_host_is_not_held_against_the_gpus_memory(
    kernel: str, has_efficiency: bool
) -> None:
    builder = trace().op("aten::copy_", [[1000, 1000], [1000, 1000]])
    builder.launches(kernel, us=80, cat="gpu_memcpy")
    found = TraceLensReport(builder.read(), spec(**PEAKS)).operations.row(0, named=True)
    assert found["tb_per_s"] == pytest.approx(4e6 / 80e-6 / 1e12)
    for name in ("peak_tb_per_s", "roofline_time_us", "bound", "pct_roofline"):
        assert (found[name] is not None) is has_efficiency
    assert (
        "to and from the host cross a link" in (found["roofline_note"] or "")
    ) is not has_efficiency


def test_a_small_copy_beside_the_kernel_of_an_op_does_not_hide_its_efficiency() -> None:
    builder = trace().op("aten::mm", MM).launches("k", us=70)
    builder.launches("Memcpy HtoD (Pageable -> Device)", us=10, cat="gpu_memcpy")
    found = TraceLensReport(builder.read(), spec(**PEAKS)).operations.row(0, named=True)
    assert found["pct_roofline"] == pytest.approx(25.0, rel=0.1)


def test_without_hardware_there_is_no_efficiency() -> None:
    found = row("aten::mm", MM, 80, None)
    for missing in ("peak_tflops", "peak_tb_per_s", "roofline_time_us", "bound", "pct_roofline"):
        assert found[missing] is None
    assert found["tflops_per_s"] == pytest.approx(25.0)
    assert found["roofline_note"] == "No hardware description is selected, so no peak is known."


def test_a_missing_peak_is_not_substituted() -> None:
    found = row("aten::mm", MM, 80, spec(vector_fp32=10.0, matrix_fp16=100.0))
    assert (found["bound"], found["peak_tflops"]) == ("memory only", None)
    assert found["pct_roofline"] == pytest.approx(7.5)  # 6 of 80 us: only memory traffic counts
    assert found["roofline_note"] == (
        "Test GPU has no compute peak for matrix_bf16; the efficiency considers only memory "
        "and is a lower limit."
    )


def test_the_peak_of_a_wider_type_can_prove_that_memory_decides() -> None:
    add = [[1000, 1000], [1000, 1000], []]  # 1e6 FLOPs (0.1 us at fp32), 6e6 bytes (6 us)
    types = {"types": ["c10::BFloat16", "c10::BFloat16", "Scalar"]}
    found = row("aten::add", add, 12, spec(**PEAKS), **types)
    assert (found["bound"], found["peak_tflops"]) == ("memory", None)
    assert found["pct_roofline"] == pytest.approx(50.0)
    assert "no compute peak for vector_bf16; even at its peak for vector_fp32" in str(
        found["roofline_note"]
    )


def test_the_peak_of_a_wider_type_proves_nothing_about_compute() -> None:
    # 20 us at fp32 against 6 us of moving data: the true compute time may be either side.
    found = row("aten::mm", MM, 80, spec(matrix_fp32=100.0))
    assert (found["pct_roofline"], found["bound"]) == (pytest.approx(7.5), "memory only")


def test_an_op_without_a_model_is_marked() -> None:
    found = row("custom::op", [[4, 4]], 5, spec(**PEAKS))
    assert (found["has_perf_model"], found["model_origin"], found["params"]) == (False, None, None)
    assert found["roofline_note"] == "No perf model covers this operator."


def test_an_unknown_element_size_leaves_bytes_unknown() -> None:
    found = row("aten::mm", MM, 80, spec(**PEAKS), types=["c10::Mystery", "c10::Mystery"])
    assert (found["bytes"], found["peak_tb_per_s"], found["pct_roofline"]) == (None, None, None)
    assert found["roofline_note"] == "The bytes of this call are not known, so it has no roofline."


def test_work_of_no_duration_has_no_rate() -> None:
    found = row("aten::mm", MM, 0, spec(**PEAKS))
    assert (found["tflops_per_s"], found["pct_roofline"]) == (None, None)
    assert found["roofline_note"] == "The GPU work of this operation has no duration."


def test_sheet_and_operations_agree_where_no_convention_differs() -> None:
    builder = trace().op("aten::mm", MM).launches("k", us=80)
    report = TraceLensReport(builder.read(), spec(**PEAKS))
    sheet = report.unified_perf_summary.row(0, named=True)
    ours = report.operations.row(0, named=True)
    assert sheet["pct_roofline_mean"] == pytest.approx(ours["pct_roofline"])
    assert sheet["roofline_time_us"] == pytest.approx(ours["roofline_time_us"])
    assert sheet["roofline_bound"] == "COMPUTE_BOUND"
    assert sheet["gflops"] == pytest.approx(2.0)
    assert sheet["data_moved_mb"] == pytest.approx(6e6 / 2**20)


def test_a_sheet_has_no_roofline_columns_without_a_peak_for_any_row() -> None:
    builder = trace().op("aten::mm", MM).launches("k", us=80)
    report = TraceLensReport(builder.read(), spec(vector_fp32=10.0))
    columns = pl.concat(
        [
            pl.Series(f.columns)
            for f in (report.unified_perf_summary, report.roofline_sheets["GEMM"])
        ]
    )
    assert not columns.str.contains("roofline").any()
