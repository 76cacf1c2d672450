"""GEMM: shapes, patterns and their words."""

import pytest

from jarvis.analyses.checks import low_efficiency
from jarvis.analyses.compute.gemm import helper_kernels, measure
from tests.analyses.rows import category, operation

BF16 = ["c10::BFloat16", "c10::BFloat16"]


def gemm(m: int, n: int, k: int, *, b: int = 1, count: int = 1, dtypes=BF16, **values):
    params = {"M": m, "N": n, "K": k, "B": b, "bias": False, "dtype_A_B": dtypes}
    row = {"time_us": 2000.0, "pct_roofline": 20.0, "bound": "compute", "params": params}
    return operation(values.pop("name", "aten::mm"), count=count, **(row | values))


def pattern(row, compute_units: int | None = 304) -> str | None:
    return category("gemm", row, compute_units=compute_units).operations["pattern"][0]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (gemm(8, 16, 32, b=1000), "tiny batched"),
        (gemm(8, 16, 32, count=1000), "tiny batched"),
        (gemm(8, 64, 64, b=37632), "tiny batched"),
        (gemm(8, 72, 128, b=1000), None),
        (gemm(256, 256, 8192), "few tiles"),
        (gemm(4096, 4096, 8192), None),
        (gemm(64, 4096, 4096), "tall and skinny"),
        (gemm(4096, 4096, 64), "short K"),
        (gemm(64, 4096, 64), "short K"),
        (gemm(128, 4096, 4096), None),
        (gemm(1025, 4096, 4096), "misaligned"),
        (gemm(4096, 4096, 4103), "misaligned"),
        (gemm(4096, 4096, 4104), None),
        (gemm(8192, 50257, 768), "misaligned"),
        (gemm(8213, 4096, 768), None),
        (gemm(4096, 4096, 4096), None),
        (gemm(4096, 4096, 4096, name="vllm::w8a8_gemm"), "quantized"),
        (gemm(4096, 4096, 4096, dtypes=["c10::Float8_e4m3fn"] * 2), "quantized"),
    ],
)
def test_pattern_of_a_shape(row, expected: str | None) -> None:
    assert pattern(row) == expected


def test_few_tiles_need_the_number_of_compute_units() -> None:
    assert pattern(gemm(256, 256, 8192), compute_units=None) is None


def test_columns_of_a_row() -> None:
    kernel = "Cijk_Alik_Bljk_BBS_BH_Bias_MT256x128x64_MI16x16x1"
    row = category("gemm", gemm(8944, 2816, 1024, kernels=[(kernel, 2000.0)])).operations
    fields = row.row(0, named=True)
    assert [fields[c] for c in ("m", "n", "k", "b")] == [8944, 2816, 1024, 1]
    assert fields["dtype"] == "bf16"
    assert fields["gemm_type"] == "regular"
    assert fields["tile"] == "256x128x64"
    assert fields["library"] == "Tensile"


def test_finding_speaks_of_shape_dtype_and_tile() -> None:
    kernel = "sm90_xmma_gemm_bf16bf16_tn_n_tilesize128x64x64_warpgroupsize1x1x1"
    data = category("gemm", gemm(4096, 4096, 4096, kernels=[(kernel, 2000.0)]))
    (finding,) = low_efficiency(data)
    assert "M=4096, N=4096, K=4096 (bf16)" in finding.issue
    assert "tile 128x64x64 from the kernel name" in finding.kernel
    assert "torch.compile" in finding.algorithmic


def test_misaligned_finding_names_the_dimensions() -> None:
    (finding,) = low_efficiency(category("gemm", gemm(1025, 4097, 4096)))
    assert "M=1025 and N=4097" in finding.algorithmic
    assert finding.title.endswith("(misaligned)")


def test_patterns_make_findings_of_their_own() -> None:
    data = category("gemm", gemm(8, 16, 32, b=2000), gemm(4096, 4096, 4096))
    titles = {finding.title for finding in low_efficiency(data)}
    assert titles == {"Low efficiency: `aten::mm` (tiny batched)", "Low efficiency: `aten::mm`"}


def test_rows_without_shapes_have_no_pattern() -> None:
    data = category("gemm", operation("aten::mm", time_us=100.0, bound=None))
    assert data.operations["pattern"][0] is None
    assert data.operations["b"][0] is None
    assert measure(data)["missing_perf_model_count"] == 1


def test_helper_kernels_are_weighed_against_the_product() -> None:
    kernels = [("Cijk_main", 1500.0), ("splitKreduce_kernel", 500.0)]
    (finding,) = helper_kernels(category("gemm", gemm(4096, 4096, 4096, kernels=kernels)))
    assert finding.evidence["Share of the operator (%)"] == pytest.approx(25.0)
    assert finding.impact.saved_ms.high == pytest.approx(0.5)
    few = [("Cijk_main", 1850.0), ("splitKreduce_kernel", 150.0)]
    assert not list(helper_kernels(category("gemm", gemm(4096, 4096, 4096, kernels=few))))


def test_measure_counts_and_peaks() -> None:
    rows = [gemm(1025, 4096, 4096), gemm(64, 64, 64, name="aten::_scaled_mm")]
    metrics = measure(category("gemm", *rows))
    assert metrics["quantized_count"] == 1
    assert metrics["missing_perf_model_count"] == 0
    assert metrics["peak_maf_tflops"] == 708.0
    assert metrics["peak_hbm_bw_tbs"] == 5.3
    assert metrics["patterns"] == {"misaligned": 1, "short K": 1}
    assert measure(category("gemm", *rows, hardware=None))["peak_maf_tflops"] is None


def test_advice_on_a_skinny_product_fits_its_short_side() -> None:
    (rows,) = low_efficiency(category("gemm", gemm(64, 8192, 4096)))
    assert "(M=64)" in rows.issue
    assert "more rows" in rows.algorithmic
    (columns,) = low_efficiency(category("gemm", gemm(8192, 64, 4096)))
    assert "(N=64)" in columns.issue
    assert "same input" in columns.algorithmic


def test_products_too_small_for_the_roofline_are_to_be_merged() -> None:
    small = gemm(144, 512, 512, count=25, roofline_time_us=0.3, time_us=150.0)
    (finding,) = low_efficiency(category("gemm", small))
    assert finding.title.endswith("(launch bound)")
    assert "merge products" in finding.algorithmic
    assert pattern(gemm(1, 4103, 64, roofline_time_us=0.3, time_us=5.0)) is None
