"""GEMM: shapes, patterns and their words."""

import json

import pytest

from jarvis.analyses import checks, fp32
from jarvis.analyses.compute.gemm import measure, products
from jarvis.hardware import load_hardware
from jarvis.text.messages import resolve, to_text
from tests.analyses.rows import category, operation
from tests.worded import in_words

low_efficiency = in_words(checks.low_efficiency)
opportunity = in_words(checks.opportunity)
helper_kernels = in_words(products.helper_kernels)
quantized_without_gain = in_words(products.quantized_without_gain)
fp32_products = in_words(fp32.fp32_products)
repeated_reads = in_words(products.repeated_reads)

GPUS = load_hardware()
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
    assert "torch.compile" in small_product().algorithmic


def small_product():
    row = gemm(144, 512, 512, count=25, roofline_time_us=0.3, time_us=150.0)
    (finding,) = low_efficiency(category("gemm", row))
    return finding


ROWS, COLUMNS = [4096, 1], [1, 4096]
"""Strides of operands whose last and whose first side is contiguous."""


def strided(m: int, n: int, k: int, a: list[int], b: list[int], **values):
    row = gemm(m, n, k, **values)
    params = {**json.loads(row["params"]), "stride_A": a, "stride_B": b}
    return row | {"params": json.dumps(params)}


FP32, FP64, FP8 = ["float"] * 2, ["double"] * 2, ["c10::Float8_e4m3fn"] * 2


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (gemm(1025, 4096, 4096), None),
        (gemm(4096, 4096, 4103), "misaligned"),
        (gemm(4096, 4096, 4104), None),
        (gemm(4096, 4096, 4100), "misaligned"),
        (gemm(4096, 4096, 4100, dtypes=FP32), None),
        (gemm(4096, 4096, 4098, dtypes=FP32), "misaligned"),
        (gemm(4096, 4096, 4098, dtypes=FP64), None),
        (gemm(4096, 4096, 4104, dtypes=FP8), "misaligned"),
        (gemm(4096, 4104, 4096, dtypes=FP8), "quantized"),
        (gemm(8192, 50257, 768), "misaligned"),
        (gemm(8213, 4096, 768), None),
        (strided(4096, 4096, 4103, ROWS, COLUMNS), "misaligned"),
        (strided(4096, 4096, 4103, COLUMNS, COLUMNS), "misaligned"),
        (strided(4096, 4096, 4103, COLUMNS, ROWS), None),
        (strided(4097, 4096, 4096, COLUMNS, ROWS), "misaligned"),
        (strided(4097, 4096, 4096, ROWS, ROWS), None),
        (strided(4096, 4096, 4103, COLUMNS, ROWS, name="mylib::linear"), "misaligned"),
        (gemm(4096, 4096, 4103, dtypes=["?"] * 2), None),
    ],
)
def test_a_contiguous_size_of_no_whole_16_bytes(row, expected: str | None) -> None:
    assert pattern(row) == expected


@pytest.mark.parametrize(
    ("kernel", "dtypes", "is_narrow"),
    [
        ("cutlass_80_tensorop_bf16_s16816gemm_bf16_128x64_64x3_nn_align1", BF16, True),
        ("cutlass_80_tensorop_bf16_s16816gemm_bf16_128x64_64x3_nn_align2", BF16, True),
        ("cutlass_80_tensorop_bf16_s16816gemm_bf16_128x64_64x3_nn_align8", BF16, False),
        ("cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4", FP32, False),
        ("cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1", FP64, True),
        ("cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align2", FP64, False),
        ("my_alignment1_kernel", BF16, False),
    ],
)
def test_a_kernel_that_loads_less_than_16_bytes_at_once(
    kernel: str, dtypes: list[str], is_narrow: bool
) -> None:
    row = gemm(4096, 4096, 4096, dtypes=dtypes, kernels=[(kernel, 2000.0)])
    assert (pattern(row) == "misaligned") is is_narrow
    if is_narrow:
        (finding,) = low_efficiency(category("gemm", row))
        assert "at once" in finding.issue
        assert "Check strides and storage offsets" in finding.algorithmic


@pytest.mark.parametrize(
    ("kernel", "gpu", "is_fallback"),
    [
        ("cutlass_75_tensorop_f16_s1688gemm_f16_256x128_nn_align8", "H100 SXM", True),
        ("cutlass_75_tensorop_f16_s1688gemm_f16_256x128_nn_align8", "V100 SXM2 16GB", False),
        ("cutlass_75_tensorop_f16_s1688gemm_f16_256x128_nn_align8", "MI300X", False),
        ("cutlass_75_tensorop_f16_s1688gemm_f16_256x128_nn_align8", None, False),
        ("cutlass_80_tensorop_f16_s16816gemm_f16_256x128_nn_align8", "H100 SXM", False),
        ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", "A100 SXM 40GB", True),
        ("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_nn", "H100 SXM", False),
    ],
)
def test_a_kernel_of_an_older_generation_is_a_fallback(
    kernel: str, gpu: str | None, is_fallback: bool
) -> None:
    row = gemm(4096, 4096, 4096, dtypes=["c10::Half"] * 2, kernels=[(kernel, 2000.0)])
    hardware = GPUS.get(gpu) if gpu else None
    data = category("gemm", row, hardware=hardware)
    assert (data.operations["pattern"][0] == "misaligned") is is_fallback
    if is_fallback:
        (finding,) = low_efficiency(data)
        assert "older generation" in finding.issue


@pytest.mark.parametrize(
    ("neighbor", "is_slower"),
    [
        (gemm(1024, 4096, 4096, time_us=1880.0), True),
        (gemm(1024, 4096, 4096, time_us=1920.0), False),
        (gemm(1088, 4096, 4096, time_us=1900.0), True),
        (gemm(1152, 4096, 4096, time_us=1000.0), False),
        (gemm(1024, 4096, 2048, time_us=900.0), False),
        (gemm(1024, 4096, 4096, time_us=1880.0, dtypes=FP32), False),
        (gemm(1024, 4096, 4096, time_us=1880.0, b=2), False),
    ],
    ids=["6 % faster", "4 %", "next", "too far", "another K", "another dtype", "another batch"],
)
def test_an_aligned_neighbor_shows_what_a_size_costs(neighbor, is_slower: bool) -> None:
    rows = category("gemm", gemm(1025, 4096, 4096), neighbor).operations.filter(m=1025)
    assert (rows["pattern"][0] == "misaligned") is is_slower
    (finding,) = low_efficiency(category("gemm", gemm(1025, 4096, 4096), neighbor))[:1]
    assert ("more FLOPS/s in this trace" in finding.issue) is is_slower


def test_misaligned_finding_names_the_dimensions() -> None:
    (finding,) = low_efficiency(category("gemm", gemm(1025, 4097, 4100)))
    assert "(N=4097: 8,194 bytes; K=4100: 8,200 bytes)" in finding.issue
    assert "Pad or trim N=4097 and K=4100" in finding.algorithmic
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
    rows = [gemm(1025, 4096, 4100), gemm(64, 64, 64, name="aten::_scaled_mm")]
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
    finding = small_product()
    assert finding.title.endswith("(launch bound)")
    assert "merge products" in finding.algorithmic
    assert pattern(gemm(1, 4103, 64, roofline_time_us=0.3, time_us=5.0)) is None


NVJET = "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT"


def test_output_tiles_come_from_the_tile_in_the_kernel_name() -> None:
    row = gemm(4096, 4096, 4096, kernels=[(NVJET, 2000.0)])
    # 32 x 16 tiles of 128x256, whichever edge lies along M
    data = category("gemm", row, compute_units=132)
    assert data.operations["output_tiles"][0] == 512
    (finding,) = low_efficiency(data)
    assert "512 output tiles for 132 compute units" in finding.kernel
    assert finding.hypothesis is None, "3.9 rounds leave 3% without work"
    unnamed = gemm(4096, 4096, 4096)
    assert category("gemm", unnamed).operations["output_tiles"][0] is None
    (finding,) = low_efficiency(category("gemm", unnamed))
    assert "the kernel name states no tile" in finding.kernel


def test_a_last_round_of_few_tiles_is_a_hypothesis() -> None:
    # 20 x 8 or 10 x 16 = 160 tiles over 132 units: two rounds have room for 264
    row = gemm(2560, 2048, 4096, kernels=[(NVJET, 2000.0)])
    (finding,) = low_efficiency(category("gemm", row, compute_units=132))
    assert "160 output tiles of 128x256 need 2 rounds over 132" in finding.hypothesis
    assert "about 39%" in finding.hypothesis
    (finding,) = low_efficiency(category("gemm", row, compute_units=None))
    assert finding.hypothesis is None
    memory = gemm(2560, 2048, 4096, kernels=[(NVJET, 2000.0)], bound="memory")
    (finding,) = low_efficiency(category("gemm", memory, compute_units=132))
    assert finding.hypothesis is None


@pytest.mark.parametrize(
    ("kernels", "words"),
    [
        (["nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT"], "Request a kernel that splits K=8192"),
        (["Cijk_Alik_Bljk_BBS_BH_MT128x128x64_GSU1_"], "Request a kernel that splits K=8192"),
        (["Cijk_Alik_Bljk_BBS_BH_MT128x128x64_GSU4_"], "splits K=8192 already"),
        (["Cijk_Alik_Bljk_MT128x128x64", "Cijk_PostGSU8_VW4"], "splits K=8192 already"),
        (["Cijk_Alik_Bljk_MT128x128x64_SK3_"], "splits K=8192 already"),
        (["cutlass_80_gemm_128x64_splitK_tn"], "splits K=8192 already"),
    ],
)
def test_a_kernel_that_splits_k_is_not_requested_again(kernels: list[str], words: str) -> None:
    row = gemm(256, 256, 8192, kernels=[(name, 1000.0) for name in kernels])
    (finding,) = low_efficiency(category("gemm", row))
    assert finding.title.endswith("(few tiles)")
    assert words in finding.kernel
    assert (finding.hypothesis is None) is ("already" in words)


@pytest.mark.parametrize(
    ("shape", "units", "kernel", "words"),
    [
        ((512, 512, 4096), 132, NVJET, "8 output tiles of 128x256 leave 94% of 132 compute units"),
        ((512, 512, 4096), 132, f"{NVJET}_splitK", None),
        ((2048, 1664, 4096), 132, NVJET, None),
        ((4096, 160, 65536), None, NVJET, "Only 62% of the output tiles of 128x256"),
        ((4096, 2304, 4096), None, NVJET, None),
    ],
    ids=["few", "splits K", "112 of 132 units", "padded", "whole tiles"],
)
def test_few_and_padded_tiles_are_hypotheses(
    shape: tuple[int, int, int], units: int | None, kernel: str, words: str | None
) -> None:
    row = gemm(*shape, kernels=[(kernel, 2000.0)])
    (finding,) = low_efficiency(category("gemm", row, compute_units=units))
    assert (words in finding.hypothesis) if words else finding.hypothesis is None


@pytest.mark.parametrize(
    ("pct", "b", "count", "is_suspected"),
    [(19.0, 37632, 1, True), (21.0, 37632, 1, False), (19.0, 1, 37632, False)],
    ids=["more than 5 times slower", "less", "single products, not a batch"],
)
def test_tiny_products_far_slower_than_their_roofline_point_to_the_kernel(
    pct: float, b: int, count: int, is_suspected: bool
) -> None:
    row = gemm(8, 64, 64, b=b, count=count, pct_roofline=pct)
    (finding,) = low_efficiency(category("gemm", row))
    assert finding.title.endswith("(tiny batched)")
    assert (finding.hypothesis is not None) == is_suspected


@pytest.mark.parametrize(
    ("modules", "part"),
    [
        (["Qwen2DecoderLayer_0", "Qwen2Attention_0", "Linear_0"], "attention"),
        (["Qwen2DecoderLayer_0", "Qwen2MLP_0", "Linear_4"], "MLP"),
        (["BertLayer_0", "BertAttention_0", "BertSelfOutput_0", "Linear_3"], "attention"),
        (["BertLayer_0", "BertIntermediate_0", "Linear_4"], "MLP"),
        (["BertLayer_0", "BertOutput_0", "Linear_5"], "MLP"),
        (["BertOnlyMLMHead_0", "BertLMPredictionHead_0", "Linear_49"], "output head"),
        (["MyBlock_0", "Linear_0"], None),
        ([], None),
    ],
)
def test_part_of_the_model(modules: list[str], part: str | None) -> None:
    row = gemm(4096, 4096, 4096, module_path=modules)
    assert category("gemm", row).operations["model_part"][0] == part


def test_the_finding_says_which_parts_of_the_model_its_time_is_in() -> None:
    rows = [
        gemm(4096, 4096, 4096, time_us=1500.0, module_path=["A_0", "MLP_0", "Linear_0"]),
        gemm(4096, 1024, 4096, time_us=500.0, module_path=["A_0", "SelfAttention_0", "Linear_1"]),
    ]
    data = category("gemm", *rows)
    (finding,) = low_efficiency(data)
    assert finding.evidence["Part of the model"] == "MLP 1.50 ms, attention 0.500 ms"
    assert measure(data)["time_ms_by_model_part"] == {"MLP": 1.5, "attention": 0.5}


def test_equal_products_of_one_module_are_to_be_merged() -> None:
    attention = ["Layer_0", "Attention_0"]
    qkv = gemm(8944, 1024, 1024, count=72, module_path=[*attention, "Linear_0"])
    out = gemm(8944, 768, 1024, count=24, time_us=10.0, module_path=[*attention, "Linear_3"])
    (finding,) = low_efficiency(category("gemm", qkv, out))
    assert "72 calls come 3 at a time" in finding.algorithmic
    assert "a merged product of N=3072 reads it only once" in finding.algorithmic
    for other in ({"count": 25}, {"count": 24, "module_path": ["Layer_0", "MLP_0", "Linear_3"]}):
        row = gemm(8944, 768, 1024, **{"time_us": 10.0, "module_path": out["module_path"], **other})
        (finding,) = low_efficiency(category("gemm", qkv, row))
        assert "merged product" not in (finding.algorithmic or "")


@pytest.mark.parametrize(
    ("dtype", "words"),
    [
        ("float", "bf16 inputs"),
        ("c10::BFloat16", "8-bit inputs"),
        ("c10::Float4_e2m1fn_x2", "already quantized"),
    ],
)
def test_a_narrower_type_is_advised_only_where_there_is_one(dtype: str, words: str) -> None:
    row = gemm(256, 4096, 4096, dtypes=[dtype] * 2, bound="memory")
    narrower = category("gemm", row).operations["narrower_note"][0]
    assert words in to_text(resolve(narrower, {}))


def test_helper_kernels_are_named() -> None:
    kernels = [("Cijk_main", 1500.0), ("splitKreduce_kernel", 500.0)]
    (finding,) = helper_kernels(category("gemm", gemm(4096, 4096, 4096, kernels=kernels)))
    assert "`splitKreduce_kernel`" in finding.issue
    assert "`Cijk_main`" in finding.kernel


@pytest.mark.parametrize(
    ("values", "is_found"),
    [
        ({"flops": 0.80e12}, True),
        ({"flops": 0.86e12}, False),
        ({"flops": 0.80e12, "dtypes": BF16}, False),
        ({"flops": 0.80e12, "bound": "memory", "bytes": 1e6}, False),
        ({"flops": 0.03e12, "time_us": 90.0}, False),
    ],
    ids=["400 TFLOP/s", "430 TFLOP/s", "not quantized", "memory bound", "0.9% of compute"],
)
def test_quantized_products_that_a_wide_one_could_match(values: dict, is_found: bool) -> None:
    # a good bf16 product of this GPU reaches 60% of 708 = 425 TFLOP/s
    row = gemm(4096, 4096, 4096, **{"dtypes": FP8, **values})
    findings = list(quantized_without_gain(category("gemm", row)))
    assert bool(findings) == is_found
    for finding in findings:
        assert "400 TFLOP/s" in finding.issue
        assert "425 TFLOP/s" in finding.issue
        assert "calibration" in finding.algorithmic
        assert finding.impact is None


def test_quantized_gain_needs_a_peak() -> None:
    row = gemm(4096, 4096, 4096, dtypes=FP8, flops=0.8e12)
    assert not list(quantized_without_gain(category("gemm", row, hardware=None)))


@pytest.mark.parametrize(
    ("shape", "values", "is_found"),
    [
        ((1, 4096, 4096), {}, True),
        ((1, 4096, 4096), {"count": 99}, False),
        ((1, 4096, 4096), {"pct_roofline": 79.0}, False),
        ((1, 4096, 4096), {"pct_roofline": 111.0}, False),
        ((1, 4096, 4096), {"bound": "compute"}, False),
        ((4096, 4096, 64), {}, False),
        ((1, 4096, 4096), {"time_us": 90.0}, False),
    ],
    ids=["few rows", "99 calls", "low", "anomaly", "compute", "output decides", "0.9%"],
)
def test_efficient_products_that_read_their_weights_again(
    shape: tuple[int, int, int], values: dict, is_found: bool
) -> None:
    row = {"count": 100, "pct_roofline": 90.0, "bound": "memory", "bytes": 33.6e6} | values
    findings = list(repeated_reads(category("gemm", gemm(*shape, **row))))
    assert bool(findings) == is_found
    for finding in findings:
        assert "M=1, N=4096, K=4096" in finding.issue
        assert "33.6 MB for 1 row, 100.0% of it weights" in finding.issue
        assert "8-bit" in finding.algorithmic


@pytest.mark.parametrize(
    ("tile", "units", "words"),
    [
        ("MT64x32x256", 304, "a larger output lets the kernel use larger tiles"),
        ("MT64x32x256", 130, "another batch size"),
        ("MT128x128x64", 304, "another batch size"),
    ],
)
def test_more_rows_are_advised_where_small_tiles_barely_fill_the_gpu(
    tile: str, units: int, words: str
) -> None:
    row = gemm(788, 768, 3072, kernels=[(f"Cijk_{tile}_SN", 2000.0)])
    (finding,) = low_efficiency(category("gemm", row, compute_units=units))
    assert words in finding.algorithmic


@pytest.mark.parametrize(
    ("pct", "bound", "is_advised"),
    [
        (39.0, "compute", False),
        (75.0, "compute", True),
        (20.0, "memory", True),
    ],
)
def test_a_kernel_far_below_its_compute_peak_needs_no_higher_peak(
    pct: float, bound: str, is_advised: bool
) -> None:
    data = category("gemm", gemm(4096, 4096, 4096, pct_roofline=pct, bound=bound), top={1})
    (finding,) = [*low_efficiency(data), *opportunity(data)]
    assert ("8-bit inputs" in (finding.algorithmic or "")) is is_advised
    assert ("little is left to gain" in finding.issue) is (pct > 72)


SGEMM = "ampere_sgemm_128x64_tn"


@pytest.mark.parametrize(
    ("kernel", "values", "gpu", "is_found"),
    [
        (SGEMM, {}, "H100 SXM", True),
        ("volta_sgemm_128x64_tn", {}, "V100 SXM2 16GB", True),
        ("cutlass_80_simt_sgemm_128x128_8x5_nn_align1", {}, "A100", True),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x64x8_ffma", {}, "H100 SXM", True),
        ("void gemmSN_NN_kernel<float, 128, 2>", {}, "H100 SXM", True),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x64x32", {}, "H100 SXM", False),
        ("cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4", {}, "H100 SXM", False),
        ("Cijk_Alik_Bljk_SB_MT128x64x16", {}, "MI300X", False),
        (SGEMM, {"dtypes": BF16}, "H100 SXM", False),
        (SGEMM, {"bound": "memory", "flops": 1e9}, "H100 SXM", False),
        (SGEMM, {"time_us": 40.0}, "H100 SXM", False),
        (SGEMM, {}, None, False),
    ],
)
def test_fp32_without_tensor_cores(
    kernel: str, values: dict, gpu: str | None, is_found: bool
) -> None:
    row = {"dtypes": FP32, "bound": "memory only", "pct_roofline": 1.0, "flops": 1.4e11, **values}
    types = tuple(row["dtypes"])
    rows = gemm(4096, 4096, 4096, kernels=[(kernel, 2000.0)], input_types=str(types), **row)
    hardware = GPUS.get(gpu) if gpu else None
    found = fp32_products(category("gemm", rows, hardware=hardware))
    assert bool(found) is is_found


@pytest.mark.parametrize(
    ("kernel", "is_found"),
    [
        (SGEMM, True),
        ("volta_scudnn_128x64_relu_interior_nn_v1", True),
        ("void cudnn::detail::dgrad_engine<float, 512, 6, 5>(int)", True),
        ("void cudnn::cnn::wgrad_alg0_engine<float, 128, 5, 5>(int)", True),
        ("void cudnn::detail::dgrad_engine<__half, 512, 6, 5>(int)", False),
        ("void cudnn::cnn::wgrad_alg0_engine<__half, 128, 5, 5>(int)", False),
        ("gemm_ffma", False),
    ],
)
def test_fp32_by_the_name_of_the_kernel_where_no_types_are_recorded(
    kernel: str, is_found: bool
) -> None:
    rows = gemm(4096, 4096, 4096, kernels=[(kernel, 2000.0)], input_types="()", bound=None)
    assert bool(fp32_products(category("gemm", rows, hardware=GPUS.get("V100 SXM2 16GB")))) is (
        is_found
    )


def test_both_peaks_beside_fp32_without_tensor_cores() -> None:
    row = {"dtypes": FP32, "bound": "memory only", "pct_roofline": 1.0, "flops": 1.4e11}
    rows = gemm(
        4096,
        4096,
        4096,
        kernels=[(SGEMM, 2000.0)],
        bytes=2e8,
        input_types=str(("float", "float")),
        **row,
    )
    for gpu, peaks in (
        (
            "H100 SXM",
            "66.9 TFLOP/s). The tensor cores reach 495 TFLOP/s in tf32 and 990",
        ),
        ("V100 SXM2 16GB", "(at most 15.7 TFLOP/s). The tensor cores reach 125 TFLOP/s in fp16"),
    ):
        data = category("gemm", rows, hardware=GPUS.get(gpu))
        (finding,) = fp32_products(data)
        assert peaks in finding.issue
        assert ("TF32" in finding.algorithmic) is (gpu == "H100 SXM")
        assert ("another dtype or setting" in finding.kernel) is (gpu == "H100 SXM")
    # 0.14 TFLOP take 1.12 ms at 125 TFLOP/s, and 1.4 ms at 80 % of it
    assert finding.impact.saved_ms.high == pytest.approx(0.88)
    assert finding.impact.saved_ms.mid == pytest.approx(0.6)
