from collections.abc import Callable

import pytest

from jarvis.perf_models import NoModelForCallError, OpCost

Price = Callable[..., OpCost]

SCALAR, LIST = "Scalar", "TensorList"
SHAPES = ((4, 4), (8,), ())
N = 16 + 8 + 1


def _kernel(functor: str, lists: int = 1) -> str:
    space = "at::native::(anonymous namespace)"
    return (
        f"void {space}::multi_tensor_apply_kernel<{space}::TensorListMetadata<{lists}>, "
        f"{space}::{functor}, std::plus<float>, float>({space}::TensorListMetadata<{lists}>)"
    )


HALF = _kernel("BinaryOpListAlphaFunctor<c10::BFloat16, 2, 2, 0>", 2)


@pytest.mark.parametrize(
    ("name", "lists", "flops", "moved"),
    [
        ("_foreach_add_", 1, 1, 2),
        ("_foreach_add_", 2, 1, 3),
        ("_foreach_mul", 1, 1, 2),
        ("_foreach_sqrt", 1, 2, 2),
        ("_foreach_lerp_", 2, 3, 3),
        ("_foreach_addcdiv_", 3, 3, 4),
        ("_foreach_exp", 1, 4, 2),
    ],
)
def test_foreach(price: Price, name: str, lists: int, flops: int, moved: int) -> None:
    dims, types = [*[SHAPES] * lists, ()], [*[LIST] * lists, SCALAR]
    cost = price(f"aten::{name}", dims, types, kernels=[HALF])
    assert (cost.flops, cost.bytes) == (flops * N, moved * N * 2)
    assert cost.compute == "vector_bf16"
    assert cost.params == {"tensors": 3, "num_elems": N}


def test_the_type_is_that_of_the_kernel_over_lists(price: Price) -> None:
    fill = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<double>>(int)"
    norm = _kernel("LpNormFunctor<c10::Half, (at::native::NormType)1, float, 1, 1, 0>")
    cost = price("aten::_foreach_norm", [SHAPES, (), ()], [LIST, SCALAR, ""], kernels=[fill, norm])
    assert (cost.flops, cost.bytes) == (2 * N, (N + 3) * 2)
    assert cost.compute == "vector_fp16"


def test_an_unknown_kernel_leaves_the_bytes_open(price: Price) -> None:
    cost = price("aten::_foreach_add_", [SHAPES, ()], [LIST, SCALAR], kernels=["kernel"])
    assert (cost.flops, cost.bytes, cost.compute) == (N, None, "")


def test_copy_zero_and_unscale(price: Price) -> None:
    dims, types = [SHAPES, SHAPES, ()], [LIST, LIST, SCALAR]
    mixed = _kernel("CopyFunctor<int, long, 2, 1, 1>, at::native::Copy<int, long>", 2)
    copy = price("aten::_foreach_copy_", dims, types, kernels=[mixed])
    assert (copy.flops, copy.bytes) == (0, N * 8 + N * 4)
    plain = _kernel("UnaryOpFunctor<long, 2, 1, 1>, at::native::Copy<long, long>", 2)
    assert price("aten::_foreach_copy_", dims, types, kernels=[plain]).bytes == 2 * N * 8
    zero = price("aten::_foreach_zero_", [SHAPES], [LIST], kernels=[_kernel("ZeroFunctor<float>")])
    assert (zero.flops, zero.bytes) == (0, N * 4)
    unscale = price(
        "aten::_amp_foreach_non_finite_check_and_unscale_",
        [SHAPES, (1,), ()],
        [LIST, "float", "float"],
        kernels=[_kernel("UnaryOpFunctor<float, 1, 1, 0>")],
    )
    assert (unscale.flops, unscale.bytes) == (2 * N, 2 * N * 4)


def test_a_list_that_is_too_long_to_be_recorded_has_no_model(price: Price) -> None:
    for name in ("aten::_foreach_add_", "aten::_foreach_copy_", "aten::_fused_sgd_"):
        with pytest.raises(NoModelForCallError, match="shapes"):
            price(name, [(), (), ()], [LIST, LIST, SCALAR], kernels=[HALF])


ADAM = _kernel("FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)1, false>")
SGD = _kernel("FusedSgdMathFunctor<float, 3, true, false>")


@pytest.mark.parametrize(
    ("decay", "amsgrad", "scale", "flops", "values"),
    [
        ("0.", "False", "", 14, 7),
        ("0.01", "False", "", 16, 7),
        ("0.", "True", "", 15, 9),
        ("0.01", "False", "float", 17, 8),
    ],
)
def test_adam(price: Price, decay: str, amsgrad: str, scale: str, flops: int, values: int) -> None:
    largest = SHAPES if amsgrad == "True" else ()
    dims = [SHAPES, SHAPES, SHAPES, SHAPES, largest, ((), (), ()), *[()] * 9]
    types = [*[LIST] * 6, *[SCALAR] * 7, scale, scale]
    cost = price("aten::_fused_adamw_", dims, types, {9: decay, 11: amsgrad}, kernels=[ADAM])
    assert (cost.flops, cost.bytes) == (flops * N, values * N * 4)
    assert cost.compute == "vector_fp32"


@pytest.mark.parametrize(
    ("concrete", "flops", "values"),
    [
        ({3: "0.", 4: "0."}, 2, 3),
        ({3: "0.1", 4: "0."}, 4, 3),
        ({3: "0.", 4: "0.9", 9: "True"}, 2, 4),  # the momentum begins as the gradient
        ({3: "0.", 4: "0.9", 9: "False"}, 5, 5),
        ({3: "0.", 4: "0.9", 7: "True", 9: "False"}, 7, 5),
    ],
)
def test_sgd(price: Price, concrete: dict[int, str], flops: int, values: int) -> None:
    dims, types = [SHAPES, SHAPES, SHAPES, *[()] * 9], [*[LIST] * 3, *[SCALAR] * 7, "", ""]
    cost = price("aten::_fused_sgd_", dims, types, concrete, kernels=[SGD])
    assert (cost.flops, cost.bytes) == (flops * N, values * N * 4)
