from collections.abc import Callable

import pytest

from jarvis.perf_models import OpCost, UnexpectedArgumentsError
from jarvis.perf_models.gemm import kernel_transposes

Price = Callable[..., OpCost]

BF16 = "c10::BFloat16"
FP8 = "c10::Float8_e4m3fn"
FP4 = "c10::Float4_e2m1fn_x2"
E8M0 = "c10::Float8_e8m0fnu"

A8W8 = "aiter::gemm_a8w8_ck"
BATCHED_A8W8 = (
    "sglang_profiler::batched_gemm_a8w8_a_per_token_group_prequant_w_per_batched_tensor_quant_"
    "batched_gemm_a8w8_a_per_token_group_prequant_w_per_batched_tensor_quant"
)


def test_mm(price: Price) -> None:
    cost = price("aten::mm", [(8, 4), (4, 2)], BF16, strides=[(4, 1), (1, 4)])
    assert cost.flops == 2 * 8 * 2 * 4
    assert cost.bytes == (8 * 4 + 4 * 2 + 8 * 2) * 2
    assert cost.compute == "matrix_bf16"
    assert cost.params == {
        "M": 8,
        "N": 2,
        "K": 4,
        "bias": False,
        "stride_A": (4, 1),
        "stride_B": (1, 4),
        "dtype_A_B": (BF16, BF16),
        "B": 1,
    }


def test_mm_of_an_unknown_dtype_has_flops_and_no_bytes(price: Price) -> None:
    cost = price("aten::mm", [(8, 4), (4, 2)], "bool")
    assert (cost.flops, cost.bytes, cost.compute) == (128, None, "")


def test_mm_of_another_rank_is_refused(price: Price) -> None:
    with pytest.raises(UnexpectedArgumentsError, match="2-d"):
        price("aten::mm", [(8,), (4, 2)])


def test_addmm(price: Price) -> None:
    cost = price("aten::addmm", [(2,), (8, 4), (4, 2)], BF16)
    assert cost.flops == 2 * 8 * 2 * 4 + 8 * 2
    assert cost.bytes == (8 * 4 + 4 * 2 + 8 * 2 + 2) * 2
    assert cost.exact().bytes == cost.bytes
    assert cost.params["bias"] is True


def test_addmm_with_a_full_matrix_reads_all_of_it(price: Price) -> None:
    cost = price("aten::addmm", [(8, 2), (8, 4), (4, 2)], BF16)
    assert cost.bytes == (8 * 4 + 4 * 2 + 8 * 2 + 2) * 2
    assert cost.exact_bytes == (8 * 4 + 4 * 2 + 8 * 2 + 8 * 2) * 2


def test_addmm_of_an_unknown_dtype_has_no_exact_bytes(price: Price) -> None:
    assert price("aten::addmm", [(2,), (8, 4), (4, 2)], "bool").exact_bytes is None


def test_bmm_puts_the_batch_first(price: Price) -> None:
    cost = price("aten::bmm", [(3, 8, 4), (3, 4, 2)])
    assert cost.flops == 3 * 2 * 8 * 2 * 4
    assert cost.bytes == 3 * (8 * 4 + 4 * 2 + 8 * 2) * 4
    assert list(cost.params)[:4] == ["B", "M", "N", "K"]
    assert cost.params["B"] == 3


def test_baddbmm(price: Price) -> None:
    cost = price("aten::baddbmm", [(3, 8, 2), (3, 8, 4), (3, 4, 2)])
    assert cost.flops == 3 * (2 * 8 * 2 * 4 + 8 * 2)
    assert cost.bytes == 3 * (8 * 4 + 4 * 2 + 8 * 2 + 2) * 4
    assert cost.exact_bytes == 3 * (8 * 4 + 4 * 2 + 8 * 2 + 8 * 2) * 4


def test_scaled_mm(price: Price) -> None:
    dims = [(16, 64), (64, 32), (), (), (), (), (), ()]
    types = [FP8, FP8, "float", "float", "", "", "Scalar", "Scalar"]
    cost = price("aten::_scaled_mm", dims, types, {6: "15", 7: "True"})
    assert cost.flops == 2 * 16 * 32 * 64
    assert cost.bytes == 16 * 64 + 64 * 32 + 16 * 32 * 2
    assert cost.exact_bytes == 16 * 64 + 64 * 32 + 16 * 32 * 2 + 4 + 4
    assert cost.compute == "matrix_fp8"
    assert cost.params["bias"] is False


def test_scaled_mm_writes_the_requested_dtype(price: Price) -> None:
    dims = [(16, 64), (64, 32), (16, 1), (1, 32), (32,), (), (), ()]
    types = [FP8, FP8, "float", "float", BF16, "", "Scalar", "Scalar"]
    cost = price("aten::_scaled_mm", dims, types, {6: "6", 7: "True"})
    assert cost.params["bias"] is True
    assert cost.flops == 2 * 16 * 32 * 64 + 16 * 32
    assert cost.bytes == 16 * 64 + 64 * 32 + 16 * 32 * 2 + 32
    assert cost.exact_bytes == 16 * 64 + 64 * 32 + 16 * 32 * 4 + (16 + 32) * 4 + 32 * 2


def test_scaled_mm_of_older_releases_has_its_bias_third(price: Price) -> None:
    dims = [(16, 64), (64, 32), (32,), (), (), (), (), ()]
    types = [FP8, FP8, BF16, "Scalar", "float", "float", "", "Scalar"]
    cost = price("trtllm::cublas_scaled_mm", dims, types, {3: "5"})
    assert cost.params["bias"] is True
    assert cost.exact_bytes == 16 * 64 + 64 * 32 + 16 * 32 * 2 + 32 * 2 + 4 + 4


def test_int8_linear_takes_its_weight_transposed(price: Price) -> None:
    cost = price("bitsandbytes::int8_linear_matmul", [(16, 64), (256, 64)], "signed char")
    assert cost.flops == 2 * 16 * 256 * 64
    assert cost.bytes == 16 * 64 + 256 * 64 + 16 * 256 * 2
    assert cost.exact_bytes == 16 * 64 + 256 * 64 + 16 * 256 * 4
    assert (cost.params["M"], cost.params["N"], cost.params["K"]) == (16, 256, 64)


def test_int8_linear_folds_leading_dims(price: Price) -> None:
    cost = price("bitsandbytes::int8_linear_matmul", [(2, 8, 64), (256, 64)], "signed char")
    assert cost.params["M"] == 16


def test_dynamic_quant_takes_the_first_two_matrices(price: Price) -> None:
    cost = price("vllm::gemm_with_dynamic_quant", [(7,), (8, 4), (2, 4)], BF16)
    assert cost.flops == 2 * 8 * 2 * 4
    assert cost.bytes == (8 * 4 + 4 * 2 + 8 * 2) * 2


@pytest.mark.parametrize(
    ("a", "trans_a", "b", "trans_b"),
    [
        ((4, 8), "0", (2, 4), "0"),
        ((8, 4), "1", (2, 4), "0"),
        ((4, 8), "0", (4, 2), "1"),
        ((8, 4), "1", (4, 2), "1"),
    ],
)
def test_te_gemm_ts(
    price: Price, a: tuple[int, int], trans_a: str, b: tuple[int, int], trans_b: str
) -> None:
    dims = [a, *[()] * 4, b, *[()] * 4, (8, 2), *[()] * 7, (2,)]
    types = [FP8, *[""] * 4, FP8, *[""] * 4, BF16, *[""] * 7, BF16]
    cost = price("tex_ts::te_gemm_ts", dims, types, {4: trans_a, 9: trans_b, 14: "x"})
    assert cost.flops == 2 * 8 * 2 * 4 + 8 * 2
    assert cost.bytes == 8 * 4 + 4 * 2 + 8 * 2 * 2 + 2 * 2


def test_linear_module_writes_half_precision(price: Price) -> None:
    cost = price("_Linear_yfwd_mm", [(8, 4), (4, 2)], FP8)
    assert cost.flops == 2 * 8 * 2 * 4
    assert cost.bytes == 8 * 4 + 4 * 2 + 8 * 2 * 2
    with pytest.raises(UnexpectedArgumentsError, match="multiplies"):
        price("_Linear_yfwd_mm", [(8, 4), (4, 2)], [FP8, BF16])


@pytest.mark.parametrize(
    ("a", "b", "flags"),
    [
        ((8, 4), (4, 2), ("false", "false", "false")),
        ((4, 8), (4, 2), ("true", "false", "false")),
        ((8, 4), (2, 4), ("0", "1", "0")),
        ((2, 4), (8, 4), ("false", "true", "true")),  # (A B)^T: the operands change places
    ],
)
def test_transposable_fp8(
    price: Price, a: tuple[int, int], b: tuple[int, int], flags: tuple[str, str, str]
) -> None:
    concrete = dict(zip((5, 6, 7), flags, strict=True))
    cost = price(
        "primus_turbo::hipblaslt_gemm_fp8",
        [a, (1,), b, (1,)],
        [FP8, "float", FP8, "float"],
        concrete,
    )
    m, n, k = (cost.params[name] for name in ("M", "N", "K"))
    assert (m, n, k) == (8, 2, 4)
    assert cost.flops == 2 * 8 * 2 * 4
    assert cost.bytes == 8 * 4 + 4 * 2 + 8 * 2 * 2
    assert cost.params["dtype_scaleA"] == "float"
    assert cost.params["dtype_scaleB"] == "float"


def test_transposable_fp4(price: Price) -> None:
    cost = price(
        "primus_turbo::hipblaslt_gemm_fp4",
        [(8, 24), (8, 2), (24, 2), (2, 2)],
        [FP4, E8M0, FP4, E8M0],
    )
    assert cost.params["K"] == 48
    assert cost.flops == 2 * 8 * 2 * 48
    assert cost.bytes == 8 * 24 + 2 * 24 + 8 * 2 + 2 * 2 + 2 * 8 * 2  # two scales per row of 48
    assert cost.compute == "matrix_fp4"


def test_a4w4(price: Price) -> None:
    cost = price(
        "aiter::gemm_a4w4", [(8, 32), (2, 32), (8, 2), (2, 2)], [FP4, FP4, "", "unsigned char"]
    )
    assert cost.flops == 2 * 8 * 2 * 64
    assert cost.bytes == 8 * 32 + 2 * 32 + 8 * 2 + 2 * 2 + 2 * 8 * 2


def test_a8w8_with_scales(price: Price) -> None:
    cost = price(A8W8, [(8, 256), (512, 256), (8, 2), (4, 2)], [FP8, FP8, "float", "float"])
    assert cost.flops == 2 * 8 * 512 * 256
    assert cost.bytes == 8 * 256 + 512 * 256 + 2 * 8 * 512
    assert (cost.params["block_k"], cost.params["block_n"]) == (128, 128)
    assert cost.params["scale_dtype"] == "float"
    assert cost.params["output_shape"] == (8, 512)


@pytest.mark.parametrize("dims", [[(8, 4), (2, 4)], [(8, 4), (2, 4), (), ()]])
def test_a8w8_without_scales(price: Price, dims: list[tuple[int, ...]]) -> None:
    cost = price(A8W8, dims, FP8)
    assert cost.flops == 2 * 8 * 2 * 4
    assert cost.params["output_shape"] == (8, 2)
    assert "block_k" not in cost.params


def test_unquantized_linear(price: Price) -> None:
    plain = price("vllm::rocm_unquantized_gemm", [(8, 4), (2, 4), ()], BF16)
    assert plain.flops == 2 * 8 * 2 * 4
    assert plain.bytes == (8 * 4 + 2 * 4 + 8 * 2) * 2
    biased = price("vllm::rocm_unquantized_gemm", [(8, 4), (2, 4), (2,)], [BF16, BF16, "float"])
    assert biased.flops == 2 * 8 * 2 * 4 + 8 * 2
    assert biased.bytes == (8 * 4 + 2 * 4) * 2 + (8 * 2 + 2) * 4


def test_a16w16(price: Price) -> None:
    plain = price("aiter::gemm_a16w16", [(8, 4), (2, 4)], BF16)
    assert (plain.flops, plain.bytes) == (128, (8 * 4 + 2 * 4 + 8 * 2) * 2)
    biased = price("aiter::gemm_a16w16", [(8, 4), (2, 4), (2,)], BF16)
    assert (biased.flops, biased.bytes) == (128 + 16, (8 * 4 + 2 * 4 + 8 * 2 + 2) * 2)


def test_a16w16_atomic(price: Price) -> None:
    recorded = price(
        "aiter::gemm_a16w16_atomic_", [(8, 4), (2, 4), (8, 2), ()], [BF16, BF16, BF16, "float"]
    )
    assert recorded.bytes == (8 * 4 + 2 * 4) * 2 + 8 * 2 * 4
    assert price("aiter::gemm_a16w16_atomic_", [(8, 4), (2, 4)], BF16).bytes == 2 * (32 + 8 + 16)


def test_a16w16_asm(price: Price) -> None:
    wide = price("aiter::_gemm_a16w16_asm", [(8, 4), (2, 4), (8, 2)], [BF16, BF16, "float"])
    assert wide.bytes == (8 * 4 + 2 * 4) * 2 + 8 * 2 * 4
    assert price("aiter::_gemm_a16w16_asm", [(8, 4), (2, 4)], BF16).bytes == 2 * (32 + 8 + 16)


def test_batched_a16wfp4(price: Price) -> None:
    cost = price("aiter::batched_gemm_a16wfp4_", [(3, 8, 4), (3, 2, 2)], [BF16, "unsigned char"])
    assert cost.flops == 3 * 2 * 8 * 2 * 4
    assert cost.bytes == 3 * (8 * 4 * 2 + 2 * 4 * 0.5 + 8 * 2 * 2)
    assert cost.compute == "matrix_fp4"


@pytest.mark.parametrize("x", [(3, 8, 4), (8, 3, 4)])
def test_batched_a8w8(price: Price, x: tuple[int, int, int]) -> None:
    cost = price(BATCHED_A8W8, [x, (3, 2, 4)], [BF16, FP8])
    assert cost.flops == 3 * 2 * 8 * 2 * 4
    assert cost.bytes == 3 * (8 * 4 * 2 + 2 * 4 + 8 * 2 * 2)
    assert cost.compute == "matrix_fp8"


def test_afp4wfp4(price: Price) -> None:
    cost = price("aiter::gemm_afp4wfp4_", [(8, 4), (2, 4)], "unsigned char")
    assert cost.flops == 2 * 8 * 2 * 8
    assert cost.bytes == 8 * 8 * 0.5 + 2 * 8 * 0.5 + 2 * 8 * 2
    assert cost.compute == "matrix_fp4"


@pytest.mark.parametrize(
    ("kernels", "transposes"),
    [
        (["Cijk_Ailk_Bljk_BBS_BH_MT128x128x32"], (False, False)),
        (["Cijk_Alik_Bljk_BBS_BH_MT128x128x32"], (True, False)),
        (["Cijk_Ailk_Bjlk_BBS_BH_MT128x128x32"], (False, True)),
        (["Cijk_Axyz_Bjlk_BBS"], (None, True)),
        (["nvjet_tst_128x64_64x8_1x2_h_bz_TNT"], (True, False)),
        (["nvjet_hsh_NTN"], (False, True)),
        (["memset", "Cijk_Alik_Bjlk_SB"], (True, True)),
        (["gemm_kernel"], None),
        ([], None),
    ],
)
def test_kernel_names_tell_the_transposes(
    price: Price, kernels: list[str], transposes: tuple[bool | None, bool | None] | None
) -> None:
    assert kernel_transposes(kernels) == transposes
    params = price("aten::mm", [(8, 4), (4, 2)], kernels=kernels).params
    assert params.get("transpose") == transposes
    assert (list(params)[-1] == "transpose") == (transposes is not None)
