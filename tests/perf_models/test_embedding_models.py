"""Lookups in several embedding tables at once."""

from collections.abc import Callable
from typing import Any

import pytest

from jarvis.perf_models import NoModelForCallError, OpCost, UnexpectedArgumentsError

Price = Callable[..., OpCost]

S = "Scalar"
LOOKUP = "fbgemm::split_embedding_codegen_lookup_adagrad_function"
DENSE = "fbgemm::dense_embedding_codegen_lookup_function"
BACKWARD = "fbgemm::split_embedding_backward_codegen_adagrad_unweighted_exact_cuda"
DIMS: list[Any] = [(0,), (640_000,), (0,), (0, 0), (3,), (3,), (4,), (), (), (4,), (), (768,)]
DIMS += [(385,), (), ()]
TYPES = [*["float"] * 4, "int", "long int", "int", S, S, "long int", S, "long int", "long int", S]
TYPES += [""]
"""768 indices into 3 tables, 128 bags of each; arguments 7 and 13: sum of widths, pooling."""


def test_pooled_lookup_in_several_tables(price: Price) -> None:
    cost = price(LOOKUP, DIMS, TYPES, {7: "48", 13: "0"})
    assert cost.flops == 768 * 16
    assert cost.bytes == (768 * 16 + 128 * 48) * 4 + 768 * 8 + 385 * 8
    assert cost.params["tables"] == 3


def test_weights_of_indices_are_read_too(price: Price) -> None:
    dims, types = [*DIMS[:14], (768,)], [*TYPES[:14], "float"]
    cost = price(LOOKUP, dims, types, {7: "48", 13: "0"})
    assert cost.flops == 2 * 768 * 16
    assert cost.bytes == (768 * 16 + 128 * 48 + 768) * 4 + 768 * 8 + 385 * 8


def test_without_pooling_every_row_is_written(price: Price) -> None:
    cost = price(LOOKUP, DIMS, TYPES, {7: "48", 13: "2"})
    assert (cost.flops, cost.bytes) == (0, 2 * 768 * 16 * 4 + 768 * 8 + 385 * 8)


def test_later_versions_have_an_argument_before(price: Price) -> None:
    cost = price(LOOKUP, [(0,), *DIMS], ["float", *TYPES], {8: "48", 14: "0"})
    assert cost.flops == 768 * 16


def test_a_dense_table(price: Price) -> None:
    dims = [(112,), (2,), (3,), (), (), (3,), (), (32,), (33,), (), ()]
    types = ["float", "long int", "int", S, S, "long int", S, "long int", "long int", S, ""]
    cost = price(DENSE, dims, types, {3: "32", 9: "0"})
    assert cost.bytes == (32 * 16 + 16 * 32) * 4 + 32 * 8 + 33 * 8


def test_the_backward_updates_the_rows(price: Price) -> None:
    # gradient, three kinds of weights, placements, first row and column of each table, widest
    dims = [(128, 48), (640_000,), (0,), (0, 0), (3,), (3,), (4,), (), (4,), (), (768,), (385,), ()]
    types = [*["float"] * 4, "int", "long int", "int", S, "long int", S, "long int", "long int", S]
    cost = price(BACKWARD, dims, types)
    assert cost.flops == 768 * 16
    assert cost.bytes == (128 * 48 + 2 * 768 * 16) * 4 + 768 * 8 + 385 * 8


def test_what_is_not_recorded_stays_unknown(price: Price) -> None:
    with pytest.raises(UnexpectedArgumentsError, match="width"):
        price(LOOKUP, DIMS, TYPES)
    with pytest.raises(UnexpectedArgumentsError, match="indices"):
        price(LOOKUP, DIMS[:9], TYPES[:9], {7: "48"})
    uneven = [*DIMS[:12], (384,), *DIMS[13:]]
    with pytest.raises(UnexpectedArgumentsError, match="do not fit"):
        price(LOOKUP, uneven, TYPES, {7: "48"})
    with pytest.raises(NoModelForCallError, match="indices"):
        price("torch::autograd::CppNode<SplitLookupFunction_adagrad_Op>", [(128, 48)], ["float"])
