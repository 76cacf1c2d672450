from collections.abc import Callable

from jarvis.perf_models import OpCost

Price = Callable[..., OpCost]

BF16 = "c10::BFloat16"
X, C = (2, 8, 4, 4), (8,)
N = 256
VECTOR = 8 * 4


def test_statistics(price: Price) -> None:
    cost = price("aten::batch_norm_stats", [X, ()], [BF16, "Scalar"])
    assert (cost.flops, cost.bytes) == (4 * N, N * 2 + 2 * VECTOR)
    assert cost.params["num_channels"] == 8


def test_normalize(price: Price) -> None:
    dims, types = [X, C, C, C, C, ()], [BF16, "float", "float", "float", "float", "Scalar"]
    cost = price("aten::batch_norm_elemt", dims, types)
    assert (cost.flops, cost.bytes) == (4 * N, 2 * N * 2 + 4 * VECTOR)
    plain = price("aten::batch_norm_elemt", [X, (), (), C, C, ()], [BF16, "", "", *types[3:]])
    assert plain.bytes == 2 * N * 2 + 2 * VECTOR


def test_backward(price: Price) -> None:
    dims, types = [X, X, C, C, C, (), (), ()], [BF16, BF16, *["float"] * 3, *["Scalar"] * 3]
    sums = price("aten::batch_norm_backward_reduce", dims, types)
    assert (sums.flops, sums.bytes) == (4 * N, 2 * N * 2 + (3 + 4) * VECTOR)
    dims, types = [X, X, C, C, C, C, C, (2,)], [BF16, BF16, *["float"] * 5, "int"]
    elements = price("aten::batch_norm_backward_elemt", dims, types)
    assert (elements.flops, elements.bytes) == (5 * N, 3 * N * 2 + 5 * VECTOR)


def test_an_unknown_dtype_leaves_the_bytes_open(price: Price) -> None:
    assert price("aten::batch_norm_stats", [X, ()], ["QInt8", "Scalar"]).bytes is None
    dims, types = [X, X, C, C, C, (), (), ()], [BF16, BF16, "QInt8", *["float"] * 2, *[""] * 3]
    assert price("aten::batch_norm_backward_reduce", dims, types).bytes is None
