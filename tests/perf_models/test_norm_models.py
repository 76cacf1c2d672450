from collections.abc import Callable

import pytest

from jarvis.perf_models import OpCost, UnexpectedArgumentsError, find_model

Price = Callable[..., OpCost]

NONE: tuple[int, ...] = ()
X, N, C = (2, 8, 4, 4), 2 * 8 * 4 * 4, 8
VECTOR = (8,)
ROWS, WIDTH = 6, 32
RMS = ROWS * (2 * WIDTH + 2) + 2 * ROWS * WIDTH
ELEMENTS = ROWS * WIDTH
BF16 = "c10::BFloat16"
VECTOR_BYTES = 8 * 4


@pytest.mark.parametrize("library", ["", "native_", "miopen_", "cudnn_"])
def test_batch_norm_in_training(price: Price, library: str) -> None:
    dims = [X, VECTOR, VECTOR, VECTOR, VECTOR, NONE, NONE, NONE]
    cost = price(f"aten::{library}batch_norm", dims, "float", {5: "True"})
    assert cost.flops == 6 * C + 5 * N
    assert cost.bytes == (2 * N + 6 * C) * 4
    assert cost.compute == "vector_fp32"
    assert cost.params == {
        "op_shape": X,
        "dtype_in_out": ("float", None),
        "stride_input": None,
        "stride_output": None,
        "num_channels": C,
        "has_bias": True,
        "is_affine": True,
        "is_training": True,
    }


def test_batch_norm_in_inference_has_no_statistics_pass(price: Price) -> None:
    dims = [X, VECTOR, VECTOR, VECTOR, VECTOR, NONE, NONE, NONE]
    cost = price("aten::batch_norm", dims, "float", {5: "False"})
    assert cost.flops == 6 * C + 2 * N
    assert cost.bytes == (2 * N + 4 * C) * 4
    assert cost.params["is_training"] is False


def test_instance_norm_without_weight_and_bias(price: Price) -> None:
    cost = price("aten::instance_norm", [X, NONE, NONE, NONE, NONE], "float", {5: "True"})
    assert cost.flops == 6 * C + 5 * N
    assert cost.bytes == (2 * N + 4 * C) * 4
    assert (cost.params["is_affine"], cost.params["has_bias"]) == (False, False)


def test_layer_norm(price: Price) -> None:
    shape = {1: "[4, 4]"}
    full = price("aten::native_layer_norm", [X, NONE, (4, 4), (4, 4), NONE], "float", shape)
    assert full.params["num_channels"] == 16
    assert full.flops == 6 * 16 + 5 * N
    assert full.bytes == (2 * N + 6 * 16) * 4
    weight_only = price("aten::layer_norm", [X, NONE, (4, 4), NONE, NONE], "float", shape)
    assert weight_only.bytes == (2 * N + 5 * 16) * 4
    assert weight_only.params["has_bias"] is False
    with pytest.raises(UnexpectedArgumentsError, match="normalized shape"):
        price("aten::layer_norm", [X, NONE, (4, 4), NONE, NONE])


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("aten::group_norm", [X, NONE, VECTOR, VECTOR]),
        ("aiter::_groupnorm_run", [X, NONE, VECTOR, VECTOR]),
        ("aten::native_group_norm", [X, VECTOR, VECTOR, NONE]),
    ],
)
def test_group_norm(price: Price, name: str, dims: list[tuple[int, ...]]) -> None:
    cost = price(name, dims)
    assert cost.params["num_channels"] == C
    assert cost.flops == 6 * C + 5 * N
    assert cost.bytes == (2 * N + 6 * C) * 4


@pytest.mark.parametrize(("weight", "affine"), [((4, 4), 1), (NONE, 0)])
def test_fused_rms_norm(price: Price, weight: tuple[int, ...], affine: int) -> None:
    cost = price("aten::_fused_rms_norm", [X, NONE, weight, NONE], "float", {1: "[4, 4]"})
    rows = N // 16
    assert cost.flops == rows * (2 * 16 + 2) + N * (1 + affine)
    assert cost.bytes == (2 * N + 16 * affine) * 4
    assert (cost.params["is_affine"], cost.params["is_training"]) == (bool(affine), False)


def test_ln_modulate(price: Price) -> None:
    x = (5, 2, 16)
    n = 5 * 2 * 16
    forward = price("primus::fused_ln_modulate", [x], "c10::BFloat16")
    assert forward.flops == 12 * n
    assert forward.bytes == 2 * n * 2 + 2 * (2 * 16) * 2 + 8 * 5 * 2
    backward = price("primus::fused_ln_modulate_backward", [x], "c10::BFloat16")
    assert backward.flops == 15 * n
    assert backward.bytes == 3 * n * 2 + 3 * (2 * 16) * 2 + 8 * 5 * 2
    with pytest.raises(UnexpectedArgumentsError, match="3-d"):
        price("primus::fused_ln_modulate", [X])


def batch_norm_backward_dims(weight: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [X, X, weight, VECTOR, VECTOR, VECTOR, VECTOR, NONE, NONE, NONE]


@pytest.mark.parametrize(
    ("weight", "mask", "training", "flops", "elements"),
    [
        (VECTOR, "[True, True, True]", "True", 9 * N, 3 * N + C + C + 2 * C),
        (VECTOR, "[True, True, False]", "True", 9 * N, 3 * N + C + C + C),
        (NONE, "[True, False, False]", "True", 9 * N, 3 * N + C),
        (VECTOR, "[False, True, True]", "True", 6 * N, 2 * N + C + C + 2 * C),
        (VECTOR, "[True, True, True]", "False", 4 * N + 3 * C, 2 * N + C),
    ],
)
def test_batch_norm_backward(
    price: Price, weight: tuple[int, ...], mask: str, training: str, flops: int, elements: int
) -> None:
    dims = batch_norm_backward_dims(weight)
    cost = price("aten::native_batch_norm_backward", dims, "float", {7: training, 9: mask})
    assert cost.flops == flops
    assert cost.bytes == elements * 4
    assert cost.params["is_affine"] is bool(weight)
    assert cost.params["output_mask"] == ["True" in mask[:5]]


def test_library_batch_norm_backward_is_exact_in_training(price: Price) -> None:
    dims = [X, X, VECTOR, VECTOR, VECTOR, VECTOR, VECTOR, NONE]
    cost = price("aten::miopen_batch_norm_backward", dims)
    assert cost.flops == 4 * N + 3 * C
    assert cost.bytes == (2 * N + C) * 4
    assert cost.exact_flops == 9 * N
    assert cost.exact_bytes == (3 * N + C + C + 2 * C) * 4


def test_layer_norm_backward(price: Price) -> None:
    dims = [X, X, NONE, (2, 8, 1, 1), (2, 8, 1, 1), (4, 4), (4, 4), NONE]
    values = {2: "[4, 4]", 7: "[True, True, True]"}
    cost = price("aten::native_layer_norm_backward", dims, "float", values)
    assert cost.flops == 9 * N
    assert cost.bytes == (3 * N + (1 + 1 + 2) * 16) * 4
    assert cost.params["output_mask"] == [True, True, True]
    values[7] = "[True, False, False]"
    bare = price("aten::native_layer_norm_backward", dims, "float", values)
    assert bare.bytes == (3 * N + 16) * 4
    assert (bare.params["is_affine"], bare.params["has_bias"]) == (False, False)


@pytest.mark.parametrize(
    ("weight", "mask", "vectors"),
    [(VECTOR, "[True, True, True]", 4), (NONE, "[True, False, False]", 1)],
)
def test_group_norm_backward(
    price: Price, weight: tuple[int, ...], mask: str, vectors: int
) -> None:
    dims = [X, X, (2, 4), (2, 4), weight, NONE, NONE, NONE, NONE, NONE]
    cost = price("aten::native_group_norm_backward", dims, "float", {8: "4", 9: mask})
    assert cost.params["num_channels"] == C
    assert cost.flops == 9 * N
    assert cost.bytes == (3 * N + vectors * C) * 4


@pytest.mark.parametrize(
    ("shape", "weight", "mask", "flops", "elements"),
    [
        ("[4, 4]", (4, 4), "[True, True]", 10 * N, 3 * N + 2 * 16),
        ("[4, 4]", (4, 4), "[False, True]", 4 * N, 3 * N + 2 * 16),
        ("[4, 4]", NONE, "[True, False]", 7 * N, 3 * N),
        ("[2, 8, 4, 4]", X, "[True, True]", 9 * N, 3 * N + 2 * N),  # one row: nothing to sum up
    ],
)
def test_rms_norm_backward(
    price: Price,
    shape: str,
    weight: tuple[int, ...],
    mask: str,
    flops: int,
    elements: int,
) -> None:
    dims = [X, X, NONE, (2, 8, 1, 1), weight, NONE]
    cost = price("aten::_fused_rms_norm_backward", dims, "float", {2: shape, 5: mask})
    assert cost.flops == flops
    assert cost.bytes == elements * 4


def test_instance_norm_backward_has_no_formula() -> None:
    assert find_model("aten::instance_norm_backward") is None


def rms_dims(x: int, weight: int) -> list[tuple[int, ...]]:
    dims: list[tuple[int, ...]] = [NONE] * 8
    dims[x] = (ROWS, WIDTH)
    dims[weight] = (WIDTH,)
    return dims


@pytest.mark.parametrize(
    ("name", "x", "weight", "concrete", "flops", "moved"),
    [
        ("aiter::rms_norm", 0, 1, {}, RMS, 2 * (2 * ELEMENTS + WIDTH)),
        ("aiter::rmsnorm2d_fwd_ck", 0, 1, {}, RMS, 2 * (2 * ELEMENTS + WIDTH)),
        ("aiter::rmsnorm", 1, 2, {}, RMS, 2 * (2 * ELEMENTS + WIDTH)),
        (
            "aiter::rmsnorm2d_fwd_with_dynamicquant_ck",
            *(1, 3, {}),
            RMS + 2 * ELEMENTS,
            2 * (ELEMENTS + WIDTH) + ELEMENTS + 4 * ROWS,
        ),
        (
            "aiter::rmsnorm_quant",
            *(1, 3, {5: "8"}),
            RMS + 2 * ELEMENTS,
            2 * (ELEMENTS + WIDTH) + ELEMENTS + 4 * ROWS * 4,
        ),
        (
            "aiter::rmsnorm_quant",
            *(1, 3, {5: "0"}),
            RMS + 2 * ELEMENTS,
            2 * (ELEMENTS + WIDTH) + ELEMENTS + 4 * ROWS,
        ),
        (
            "vllm::rocm_aiter_rmsnorm_fp8_group_quant",
            *(0, 1, {3: "8"}),
            RMS + 2 * ELEMENTS,
            2 * (ELEMENTS + WIDTH) + ELEMENTS + 4 * ROWS * 4,
        ),
        (
            "vllm::rocm_aiter_rmsnorm_with_add_fp8_group_quant",
            *(0, 2, {4: "8"}),
            RMS + 3 * ELEMENTS,
            2 * (3 * ELEMENTS + WIDTH) + ELEMENTS + 4 * ROWS * 4,
        ),
        ("aiter::add_rmsnorm", 1, 4, {}, RMS + ELEMENTS, 2 * (4 * ELEMENTS + WIDTH)),
        (
            "aiter::fused_add_rmsnorm_pad_",
            *(0, 1, {4: "24"}),
            RMS + ELEMENTS,
            2 * (2 * ELEMENTS + WIDTH + ROWS * 48 + ROWS * WIDTH),
        ),
    ],
)
def test_rms_norm_family(
    price: Price,
    name: str,
    x: int,
    weight: int,
    concrete: dict[int, str],
    flops: int,
    moved: int,
) -> None:
    cost = price(name, rms_dims(x, weight), BF16, concrete)
    assert (cost.flops, cost.bytes) == (flops, moved)
    assert cost.compute == "vector_bf16"
    assert cost.params["num_channels"] == WIDTH


def test_rms_norm_with_mxfp4_quant(price: Price) -> None:
    name = "aiter::_fuse_rmsnorm_fp4_quant"
    dims = rms_dims(0, 1)
    packed = ELEMENTS / 2 + ELEMENTS // 32
    plain = price(name, dims, BF16)
    assert plain.flops == RMS + 2 * ELEMENTS
    assert plain.bytes == 2 * (ELEMENTS + WIDTH) + packed
    dims[3], dims[6] = (ROWS, 16), (ROWS, WIDTH)
    full = price(name, dims, BF16)
    assert full.flops == RMS + ELEMENTS + RMS * ROWS * 16 // ELEMENTS + 2 * ELEMENTS
    assert full.bytes == 2 * (3 * ELEMENTS + WIDTH + 2 * ROWS * 16 + 16) + packed


def test_statistics_of_a_rank(price: Price) -> None:
    cost = price("aten::batch_norm_stats", [X, ()], [BF16, "Scalar"])
    assert (cost.flops, cost.bytes) == (4 * N, N * 2 + 2 * VECTOR_BYTES)
    assert cost.params["num_channels"] == 8


def test_normalization_with_shared_statistics(price: Price) -> None:
    dims, types = (
        [X, VECTOR, VECTOR, VECTOR, VECTOR, ()],
        [BF16, "float", "float", "float", "float", "Scalar"],
    )
    cost = price("aten::batch_norm_elemt", dims, types)
    assert (cost.flops, cost.bytes) == (4 * N, 2 * N * 2 + 4 * VECTOR_BYTES)
    plain = price(
        "aten::batch_norm_elemt",
        [X, (), (), VECTOR, VECTOR, ()],
        [BF16, "", "", *types[3:]],
    )
    assert plain.bytes == 2 * N * 2 + 2 * VECTOR_BYTES


def test_backward_of_shared_statistics(price: Price) -> None:
    dims, types = (
        [X, X, VECTOR, VECTOR, VECTOR, (), (), ()],
        [BF16, BF16, *["float"] * 3, *["Scalar"] * 3],
    )
    sums = price("aten::batch_norm_backward_reduce", dims, types)
    assert (sums.flops, sums.bytes) == (4 * N, 2 * N * 2 + (3 + 4) * VECTOR_BYTES)
    dims, types = (
        [X, X, VECTOR, VECTOR, VECTOR, VECTOR, VECTOR, (2,)],
        [BF16, BF16, *["float"] * 5, "int"],
    )
    elements = price("aten::batch_norm_backward_elemt", dims, types)
    assert (elements.flops, elements.bytes) == (5 * N, 3 * N * 2 + 5 * VECTOR_BYTES)


def test_an_unknown_dtype_leaves_the_bytes_open(price: Price) -> None:
    assert price("aten::batch_norm_stats", [X, ()], ["QInt8", "Scalar"]).bytes is None
    dims, types = (
        [X, X, VECTOR, VECTOR, VECTOR, (), (), ()],
        [BF16, BF16, "QInt8", *["float"] * 2, *[""] * 3],
    )
    assert price("aten::batch_norm_backward_reduce", dims, types).bytes is None


@pytest.mark.parametrize(
    "name", ["_C::rms_norm", "sgl_kernel::rmsnorm", "sgl_kernel::gemma_rmsnorm"]
)
def test_the_output_of_a_norm_is_no_operand(price: Price, name: str) -> None:
    cost = price(name, [(ROWS, WIDTH), (ROWS, WIDTH), (WIDTH,), ()], "c10::BFloat16")
    assert (cost.flops, cost.bytes) == (RMS, 2 * (2 * ELEMENTS + WIDTH))


@pytest.mark.parametrize(
    "name",
    [
        "_C::fused_add_rms_norm",
        "sgl_kernel::fused_add_rmsnorm",
        "sgl_kernel::gemma_fused_add_rmsnorm",
    ],
)
def test_an_added_norm_in_place_has_four_passes(price: Price, name: str) -> None:
    cost = price(name, [(ROWS, WIDTH), (ROWS, WIDTH), (WIDTH,), ()], "c10::BFloat16")
    assert (cost.flops, cost.bytes) == (RMS + ELEMENTS, 2 * (4 * ELEMENTS + WIDTH))
