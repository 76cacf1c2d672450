from collections.abc import Callable

import pytest

from jarvis.perf_models import OpCost

Price = Callable[..., OpCost]

X, N = (2, 3, 5), 30
LIST, SCALAR = "ScalarList", "Scalar"
BF16 = "c10::BFloat16"


@pytest.mark.parametrize(
    ("name", "types", "concrete", "outputs"),
    [
        ("aten::sum", [LIST, SCALAR, ""], {1: "[1]", 2: "False"}, 10),
        ("aten::sum", [LIST, SCALAR, ""], {1: "[0, -1]", 2: "True"}, 3),
        ("aten::sum", [LIST, SCALAR, ""], {1: "[]", 2: "False"}, 1),
        ("aten::sum", ["", SCALAR, ""], {2: "False"}, 1),
        ("aten::sum", [SCALAR], {1: "6"}, 1),  # a dtype, not a dim
        ("aten::sum", [], {}, 1),
        ("aten::mean", [LIST, SCALAR, ""], {1: "[-1]", 2: "True"}, 6),
        ("aten::amax", [LIST, SCALAR], {1: "[2]", 2: "False"}, 6),
        ("aten::std", [LIST, SCALAR, SCALAR], {1: "[0]", 2: "1", 3: "False"}, 15),
        ("aten::var", [SCALAR], {1: "True"}, 1),  # unbiased over everything
        ("aten::logsumexp", [LIST, SCALAR], {1: "[0]", 2: "False"}, 15),
        ("aten::norm", [SCALAR, LIST, SCALAR], {1: "2", 2: "[1, 2]", 3: "False"}, 2),
        ("aten::norm", [SCALAR], {1: "2"}, 1),
        ("aten::linalg_norm", ["", LIST, SCALAR], {2: "[1]", 3: "False"}, 10),
        ("aten::max", [], {}, 1),
        ("aten::cumsum", [SCALAR, ""], {1: "0"}, 30),
        ("aten::cumprod", [SCALAR, ""], {1: "0"}, 30),
    ],
)
def test_outputs_follow_from_the_dims(
    price: Price, name: str, types: list[str], concrete: dict[int, str], outputs: int
) -> None:
    dims = [X, *[()] * len(types)]
    cost = price(name, dims, ["float", *types], concrete)
    assert cost.flops == N
    assert cost.bytes == (N + outputs) * 4
    assert cost.params["num_input_elems"] == N
    assert cost.params["num_output_elems"] == outputs
    assert cost.exact().bytes == cost.bytes
    assert cost.compute == "vector_fp32"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::mean", "mean"),
        ("aten::amax", "max"),
        ("aten::min", "min"),
        ("aten::linalg_norm", "norm"),
        ("aten::logsumexp", "sum"),
        ("aten::var", "sum"),
    ],
)
def test_the_kind_of_reduction(price: Price, name: str, kind: str) -> None:
    params = price(name, [X]).params
    assert params["reduce_type"] == kind
    assert params["dtype_in_out"] == ("float", None)


def test_max_along_a_dim_writes_indices_too(price: Price) -> None:
    cost = price("aten::max", [X, (), ()], ["float", SCALAR, SCALAR], {1: "-1", 2: "False"})
    assert cost.params["num_output_elems"] == 6
    assert cost.bytes == (N + 6) * 4
    assert cost.exact_bytes == (N + 6) * 4 + 6 * 8
    unknown = price("aten::max", [X, (), ()], ["bool", SCALAR, SCALAR], {1: "-1", 2: "False"})
    assert (unknown.bytes, unknown.exact_bytes) == (None, None)


def test_max_of_two_tensors_is_elementwise(price: Price) -> None:
    cost = price("aten::max", [(3, 5), X])
    assert cost.params["num_output_elems"] == N
    assert cost.flops == 15
    assert cost.bytes == (15 + N) * 4
    assert cost.exact_flops == N
    assert cost.exact_bytes == (15 + N + N) * 4


def test_a_scalar_tensor_reduces_to_itself(price: Price) -> None:
    cost = price("aten::sum", [(), ()], ["float", LIST], {1: "[0]"})
    assert (cost.flops, cost.bytes) == (1, 2 * 4)


def test_an_op_recorded_without_shapes_has_nothing_to_reduce(price: Price) -> None:
    cost = price("aten::sum", [])
    assert (cost.flops, cost.bytes, cost.compute) == (0, None, "")


def test_backward_reads_the_output_and_writes_the_input(price: Price) -> None:
    cost = price(
        "aten::mean", [X, (), ()], ["float", LIST, SCALAR], {1: "[0]", 2: "False"}, backward=True
    )
    assert cost.flops == N
    assert cost.bytes == (N + 15) * 4


def test_backward_of_max_counts_no_indices(price: Price) -> None:
    types = ["float", SCALAR, SCALAR]
    cost = price("aten::max", [X, (), ()], types, {1: "0", 2: "False"}, backward=True)
    assert cost.exact_bytes is None


@pytest.mark.parametrize(
    ("name", "types", "concrete", "flops", "moved"),
    [
        ("aten::argmax", [SCALAR, SCALAR], {1: "-1", 2: "False"}, N, N * 4 + 6 * 8),
        ("aten::argmin", ["", SCALAR], {2: "False"}, N, N * 4 + 8),
        ("aten::count_nonzero", [""], {}, N, N * 4 + 8),
        ("aten::any", [SCALAR, SCALAR], {1: "0", 2: "False"}, N, N * 4 + 15),
        ("aten::all", [LIST, SCALAR], {1: "[0, 1]", 2: "True"}, N, N * 4 + 5),
        ("aten::prod", [""], {}, N, (N + 1) * 4),
        ("aten::prod", [SCALAR, SCALAR, ""], {1: "1", 2: "False"}, N, (N + 10) * 4),
        ("aten::nansum", ["", SCALAR, ""], {2: "False"}, 2 * N, (N + 1) * 4),
        ("aten::linalg_vector_norm", [SCALAR, LIST], {1: "2", 2: "[0]"}, 2 * N, (N + 15) * 4),
        ("aten::linalg_vector_norm", [SCALAR, ""], {1: "2"}, 2 * N, (N + 1) * 4),
        ("aten::aminmax", [SCALAR, SCALAR], {1: "2", 2: "True"}, 2 * N, (N + 2 * 6) * 4),
        ("aten::var_mean", [LIST, SCALAR], {1: "[1]", 2: "1"}, 4 * N, (N + 2 * 10) * 4),
        ("aten::std_mean", [SCALAR], {1: "True"}, 4 * N, (N + 2) * 4),  # unbiased, not a dim
        ("aten::_cummax_helper", [], {}, N, 2 * N * 4 + N * 8),
        ("aten::_logcumsumexp", [SCALAR], {1: "0"}, 10 * N, 2 * N * 4),
    ],
)
def test_reductions_that_the_sheets_leave_out(
    price: Price, name: str, types: list[str], concrete: dict[int, str], flops: int, moved: int
) -> None:
    cost = price(name, [X, *[()] * len(types)], ["float", *types], concrete)
    assert (cost.flops, cost.bytes) == (flops, moved)
    assert cost.compute == "vector_fp32"


def test_reductions_of_bools_have_no_flops(price: Price) -> None:
    cost = price("aten::all", [X], "bool")
    assert (cost.flops, cost.bytes, cost.compute) == (0, N + 1, "")


@pytest.mark.parametrize("name", ["aten::_softmax", "aten::_log_softmax"])
def test_softmax(price: Price, name: str) -> None:
    cost = price(name, [(8, 4), (), ()], [BF16, SCALAR, SCALAR], {1: "-1", 2: "False"})
    assert (cost.flops, cost.bytes) == (5 * 32, 2 * 32 * 2)
    assert cost.compute == "vector_bf16"
    wide = price(name, [(8, 4), (), ()], ["c10::Half", "", ""], {2: "True"})
    assert wide.bytes == 32 * 2 + 32 * 4


@pytest.mark.parametrize(
    ("name", "flops"),
    [("aten::_softmax_backward_data", 4), ("aten::_log_softmax_backward_data", 7)],
)
def test_softmax_backward(price: Price, name: str, flops: int) -> None:
    dims, types = [(8, 4), (8, 4), (), ()], ["float", "float", SCALAR, SCALAR]
    cost = price(name, dims, types, {2: "1", 3: "6"})
    assert (cost.flops, cost.bytes) == (flops * 32, 3 * 32 * 4)
    narrow = price(name, dims, types, {2: "1", 3: "15"})  # the gradient in bfloat16
    assert narrow.bytes == 2 * 32 * 4 + 32 * 2
