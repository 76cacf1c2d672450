"""Small parts: names of kernels, arguments, numbers in sentences, grades."""

import polars as pl
import pytest

from jarvis.analyses import kernel_names
from jarvis.analyses.operations import arguments, short_dtype
from jarvis.analyses.severity import at_most, grade, is_worth_acting, worst
from jarvis.findings import Severity
from jarvis.text.format import byte_size, counted, decimal, listed, milliseconds, percent, quoted


@pytest.mark.parametrize(
    ("kernel", "library", "tile"),
    [
        ("Cijk_Alik_Bljk_BBS_BH_MT256x128x64_MI16x16x1", "Tensile", "256x128x64"),
        ("sm90_xmma_gemm_bf16_tn_n_tilesize64x64x64_warpgroupsize1x1x1", "cuBLAS", "64x64x64"),
        ("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT", "cuBLAS", "128x256"),
        ("cutlass_80_tensorop_s16816gemm_bf16_64x128_64x6_tn_align8", "CUTLASS", "64x128x64"),
        ("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt64x128x32_wt32x32x8", "MIOpen", "64x128x32"),
        ("_ZN2ck16tensor_operation6device37kernel_batched_gemm", "CK", None),
        ("void pytorch_flash::flash_fwd_kernel<Traits<64, 128>>", "FlashAttention", None),
        ("attn_fwd", "AOTriton", None),
        ("triton_poi_fused_add_0", "Triton", None),
        ("void at::native::vectorized_elementwise_kernel<4>", "PyTorch native", None),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float>", "cuBLAS", None),
        ("void splitKreduce_kernel<float>", "rocBLAS", None),
        ("nvjet_sm100_tst_128x256_64x4_2x1_v_bz_TNT", "cuBLAS", "128x256"),
        (
            "cutlass3x_sm90_tensorop_gemm_f8_f8_f32_bf16_bf16_128x256x64_2x1x1_0_tnn",
            "CUTLASS",
            "128x256x64",
        ),
        ("Memcpy DtoD (Device -> Device)", None, None),
    ],
)
def test_library_and_tile_from_kernel_names(
    kernel: str, library: str | None, tile: str | None
) -> None:
    names = pl.DataFrame({"name": [kernel]})
    found = names.select(
        library=kernel_names.library(pl.col("name")), tile=kernel_names.tile(pl.col("name"))
    )
    assert found.row(0) == (library, tile)


@pytest.mark.parametrize(
    ("dims", "types", "expected"),
    [
        ("((8, 4), (4, 2))", "('c10::BFloat16', 'float')", "[8,4] bf16, [4,2] fp32"),
        ("((8, 4), (), ())", "('float', 'Scalar', '')", "[8,4] fp32"),
        ("(((2, 3), (4, 3)), ())", "('TensorList', 'Scalar')", "[2,3] + [4,3] TensorList"),
        ("(((2, 3), (2, 3)), ())", "('TensorList', 'Scalar')", "2 x [2,3] TensorList"),
        ("(((2,), (2,), (4,), ()),)", "('TensorList',)", "2 x [2] + [4] + [] TensorList"),
        ("(((2,), 3),)", "('TensorList',)", "[2] + [3] TensorList"),
        (
            str((tuple((n,) for n in range(1, 12)),)),
            "('TensorList',)",
            "[1] + [2] + [3] + [4] + [5] + [6] + [7] + [8] + 3 more TensorList",
        ),
        ("((), ())", "('Scalar', '')", None),
        ("((), (), ())", "('long int', 'long int', 'Scalar')", "[] int64, [] int64"),
        ("((8,),)", None, "[8]"),
        (None, None, None),
    ],
)
def test_arguments(dims: str | None, types: str | None, expected: str | None) -> None:
    assert arguments(dims, types) == expected


def test_unknown_dtypes_keep_their_name() -> None:
    assert short_dtype("c10::Float8_e4m3fn") == "fp8_e4m3"
    assert short_dtype("c10::Strange") == "c10::Strange"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.0123, "0.0123"), (4.567, "4.57"), (45.67, "45.7"), (12345.6, "12,346")],
)
def test_number(value: float, text: str) -> None:
    assert decimal(value) == text


def test_units_counts_and_lists() -> None:
    assert milliseconds(4.567) == "4.57 ms"
    assert milliseconds(0.0456) == "45.6 µs"
    assert percent(41.91) == "41.9%"
    assert milliseconds(0.0) == "0 ms"
    assert percent(0.38) == "0.38%"
    assert percent(0.009) == "<0.01%"
    assert percent(0.0) == "0.0%"
    assert [counted(n, "call") for n in (1, 2)] == ["1 call", "2 calls"]
    assert [byte_size(n) for n in (24.0, 5120.0, 1.2e7, 3e9)] == [
        "24 B",
        "5.12 kB",
        "12.0 MB",
        "3.00 GB",
    ]
    assert counted(2, "launch") == "2 launches"
    assert counted(1200, "copy") == "1,200 copies"
    assert listed(["a", "b", "c", "d"]) == "a, b, c and 1 more"
    assert listed(["a", "b"]) == "a, b"


def test_quoted_names_stay_on_one_line_and_inside_their_backticks() -> None:
    assert quoted("a`b\nc") == "`a'b c`"
    assert len(quoted("x" * 500)) == 82


def test_grades() -> None:
    ladder = ((10.0, Severity.HIGH), (5.0, Severity.LOW))
    assert grade(10.0, ladder) is Severity.LOW
    assert grade(10.1, ladder) is Severity.HIGH
    assert grade(5.0, ladder) is Severity.ACCEPTABLE
    assert grade(1.0, ladder, Severity.GOOD) is Severity.GOOD
    assert worst(Severity.LOW, Severity.CRITICAL, Severity.GOOD) is Severity.CRITICAL
    assert at_most(Severity.CRITICAL, Severity.MEDIUM) is Severity.MEDIUM
    assert at_most(Severity.LOW, Severity.MEDIUM) is Severity.LOW
    assert is_worth_acting(Severity.MEDIUM)
    assert not is_worth_acting(Severity.LOW)
