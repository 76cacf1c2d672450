from collections.abc import Callable, Sequence
from typing import Any

import pytest

from jarvis.perf_models import NoModelForCallError, OpCost, UnexpectedArgumentsError

Price = Callable[..., OpCost]

BF16 = "c10::BFloat16"
SCALAR = "Scalar"
CAT = (
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)"
    "::OpaqueType<2u>, unsigned int, 4, 64, 64>(...)"
)


def test_embedding(price: Price) -> None:
    cost = price("aten::embedding", [(1000, 16), (2, 5), ()], [BF16, "long int", "Scalar"])
    assert cost.flops == 0
    assert cost.bytes == 2 * 10 * 16 * 2 + 10 * 8
    assert cost.compute == ""


def test_index_select(price: Price) -> None:
    cost = price("aten::index_select", [(6, 8, 4), (), (3,)], ["float", "Scalar", "int"], {1: "1"})
    assert cost.flops == 0
    assert cost.bytes == 2 * (6 * 3 * 4) * 4 + 3 * 4


def test_embedding_backward(price: Price) -> None:
    types = [BF16, "long int", SCALAR, SCALAR, SCALAR]
    cost = price(
        "aten::embedding_dense_backward", [(2, 5, 16), (2, 5), (), (), ()], types, {2: "1000"}
    )
    assert cost.flops == 10 * 16
    assert cost.bytes == (10 * 16 + 1000 * 16) * 2 + 10 * 8


def test_embedding_bag(price: Price) -> None:
    dims = [(1000, 16), (40,), (8,), (), (), (), (40,), (), ()]
    types = ["float", "long int", "long int", SCALAR, SCALAR, SCALAR, "float", SCALAR, SCALAR]
    cost = price("aten::_embedding_bag", dims, types, {7: "False"})
    assert cost.flops == 2 * 40 * 16
    assert cost.bytes == (40 + 8) * 16 * 4 + 40 * 8 + 8 * 8 + 40 * 4
    dims[6], types[6] = (), ""
    cost = price("aten::_embedding_bag_forward_only", dims, types, {7: "True"})
    assert cost.flops == 40 * 16
    assert cost.bytes == (40 + 7) * 16 * 4 + 40 * 8 + 8 * 8


def test_embedding_bag_backward(price: Price) -> None:
    dims = [(8, 16), (40,), (40,), (8,), (8,), (), (), (), (), ()]
    types = ["float", *["long int"] * 4, *[SCALAR] * 5]
    cost = price("aten::_embedding_bag_dense_backward", dims, types, {5: "1000"})
    assert cost.flops == 40 * 16
    assert cost.bytes == (8 * 16 + 1000 * 16) * 4 + 2 * 40 * 8
    with pytest.raises(UnexpectedArgumentsError):
        price("aten::_embedding_bag_dense_backward", dims, types)


def test_gather(price: Price) -> None:
    types = ["float", SCALAR, "long int", SCALAR]
    cost = price("aten::gather", [(4, 8), (), (4, 2), ()], types, {1: "1"})
    assert (cost.flops, cost.bytes) == (0, 2 * 8 * 4 + 8 * 8)


@pytest.mark.parametrize(
    ("name", "dims", "types", "flops", "moved"),
    [
        ("scatter_", [(4, 8), (), (2, 8), ()], ["float", SCALAR, "long int", SCALAR], 0, 64 + 128),
        ("scatter_", [(4, 8), (), (2, 8), (2, 8)], ["float", SCALAR, "long int", "float"], 0, 256),
        ("scatter", [(4, 8), (), (2, 8), (2, 8)], ["float", SCALAR, "long int", "float"], 0, 512),
        (
            "scatter_add_",
            [(4, 8), (), (2, 8), (2, 8)],
            ["float", SCALAR, "long int", "float"],
            16,
            320,
        ),
        (
            "scatter_add",
            [(4, 8), (), (2, 8), (2, 8)],
            ["float", SCALAR, "long int", "float"],
            16,
            576,
        ),
        (
            "index_add_",
            [(4, 8), (), (2,), (2, 8), ()],
            [BF16, SCALAR, "int", BF16, SCALAR],
            16,
            104,
        ),
        ("index_add", [(4, 8), (), (2,), (2, 8), ()], [BF16, SCALAR, "int", BF16, SCALAR], 16, 232),
        ("index_copy_", [(4, 8), (), (2,), (2, 8)], [BF16, SCALAR, "int", BF16], 0, 72),
        ("index_fill_", [(4, 8), (), (2,), ()], [BF16, SCALAR, "int", SCALAR], 0, 40),
    ],
)
def test_writes_by_index(
    price: Price, name: str, dims: Sequence[Any], types: Sequence[str], flops: int, moved: int
) -> None:
    cost = price(f"aten::{name}", dims, types, {1: "0"})
    assert (cost.flops, cost.bytes) == (flops, moved)


def test_index_put(price: Price) -> None:
    dims, types = [(100, 8), (), (2, 8), ()], ["float", "", "float", SCALAR]
    put = price("aten::index_put_", dims, types, {3: "False"})
    assert (put.flops, put.bytes) == (0, 2 * 16 * 4)
    dims, types = [*dims, ()], [*types, SCALAR]
    added = price("aten::_index_put_impl_", dims, types, {3: "True", 4: "True"})
    assert (added.flops, added.bytes) == (16, 3 * 16 * 4)
    with pytest.raises(NoModelForCallError, match="indices"):
        price("aten::index_put_", [(100, 8), (), (), ()], ["float", "", "float", SCALAR])


def test_concatenation_has_the_element_size_of_its_kernel(price: Price) -> None:
    dims, types = [((1, 4, 8), (1, 4, 8), (1, 2, 8)), ()], ["TensorList", SCALAR]
    cost = price("aten::cat", dims, types, {1: "1"}, kernels=[CAT])
    assert (cost.flops, cost.bytes) == (0, 2 * 80 * 2)
    assert cost.params == {"tensors": 3, "num_elems": 80}
    typed = "void at::native::CatArrayBatchedCopy_contig<double, unsigned int, 1, 128, 1>(...)"
    assert price("aten::stack", dims, types, kernels=[typed]).bytes == 2 * 80 * 8
    assert price("aten::cat", dims, types, kernels=["copy"]).bytes is None
    with pytest.raises(NoModelForCallError, match="shapes"):
        price("aten::cat", [(), ()], types, kernels=[CAT])  # a list too long to be recorded


def test_rearrangement(price: Price) -> None:
    cost = price("aten::roll", [(8, 4), (), ()], [BF16, "ScalarList", "ScalarList"])
    assert (cost.flops, cost.bytes, cost.compute) == (0, 2 * 32 * 2, "")


def test_topk(price: Price) -> None:
    dims, types = [(8, 100), (), (), (), ()], ["float", SCALAR, SCALAR, SCALAR, SCALAR]
    cost = price("aten::topk", dims, types, {1: "3", 2: "-1"})
    assert cost.flops == 800
    assert cost.bytes == 800 * 4 + 24 * 4 + 24 * 8
    integers = price("aten::topk", dims, ["int", *types[1:]], {1: "3", 2: "0"})
    assert (integers.flops, integers.bytes) == (0, 800 * 4 + 300 * 4 + 300 * 8)
    with pytest.raises(UnexpectedArgumentsError, match="without k"):
        price("aten::topk", dims, types)


def test_sort(price: Price) -> None:
    cost = price("aten::sort", [(8, 100), (), ()], ["float", SCALAR, SCALAR], {1: "-1", 2: "False"})
    assert cost.flops == 800 * 7  # 2^7 is the first power of two over 100
    assert cost.bytes == 800 * 4 + 800 * 4 + 800 * 8
    types = ["float", SCALAR, SCALAR, SCALAR]
    stable = price("aten::sort", [(8, 100), (), (), ()], types, {1: "True", 2: "0", 3: "False"})
    assert stable.flops == 800 * 3
