from collections.abc import Callable

import pytest

from jarvis.perf_models import OpCost

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
SCALAR = "Scalar"


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


def test_int_mm(price: Price) -> None:
    cost = price("aten::_int_mm", [(6, 8), (8, 10)], "signed char")
    assert (cost.flops, cost.bytes) == (2 * 6 * 8 * 10, 48 + 80 + 60 * 4)
    assert cost.compute == "matrix_int8"


def test_products_of_packed_weights(price: Price) -> None:
    types = [BF16, "signed char", BF16]
    int8 = price("aten::_weight_int8pack_mm", [(6, 8), (10, 8), (10,)], types)
    assert (int8.flops, int8.bytes) == (2 * 6 * 8 * 10, 48 * 2 + 80 + 10 * 2 + 60 * 2)
    # K = 128, N = 8: 1024 weights of half a byte, with a scale and a zero for each 32.
    dims = [(6, 128), (1, 1, 32, 4), (), (4, 8, 2)]
    int4 = price("aten::_weight_int4pack_mm", dims, [BF16, "int", SCALAR, BF16], {2: "32"})
    assert (int4.flops, int4.bytes) == (2 * 6 * 8 * 128, 768 * 2 + 512 + 64 * 2 + 48 * 2)
    assert int4.compute == "matrix_bf16"
