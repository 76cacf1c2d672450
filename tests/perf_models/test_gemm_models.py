from collections.abc import Callable

import pytest

from jarvis.perf_models import OpCost, UnexpectedArgumentsError
from jarvis.perf_models.gemm import kernel_transposes

Price = Callable[..., OpCost]

BF16 = "c10::BFloat16"
FP8 = "c10::Float8_e4m3fn"
SCALAR = "Scalar"


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


def test_addmm_with_activation(price: Price) -> None:
    dims = [(10,), (6, 8), (8, 10), (), (), ()]
    cost = price("aten::_addmm_activation", dims, [BF16, BF16, BF16, SCALAR, SCALAR, SCALAR])
    assert (cost.flops, cost.bytes) == (2 * 6 * 8 * 10 + 60, (10 + 48 + 80 + 60) * 2)


def test_products_by_vectors(price: Price) -> None:
    mv = price("aten::mv", [(6, 8), (8,)])
    assert (mv.flops, mv.bytes, mv.compute) == (96, (48 + 8 + 6) * 4, "vector_fp32")
    dims, types = [(6,), (6, 8), (8,), (), ()], ["float", "float", "float", SCALAR, SCALAR]
    alone = price("aten::addmv_", dims, types, {3: "0", 4: "1"})
    assert (alone.flops, alone.bytes) == (96, (48 + 8 + 6) * 4)
    added = price("aten::addmv_", dims, types, {3: "1", 4: "1"})
    assert (added.flops, added.bytes) == (96 + 6, (48 + 8 + 12) * 4)
    dot = price("aten::dot", [(8,), (8,)])
    assert (dot.flops, dot.bytes) == (16, 17 * 4)
