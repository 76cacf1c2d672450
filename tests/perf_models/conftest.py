"""What the perf-model tests share: pricing one call from literal arguments."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from jarvis.perf_models import OpCost, OpSignature, find_model

Price = Callable[..., OpCost]


@pytest.fixture
def price() -> Price:
    """Cost of a call; one dtype name is that of all arguments with a shape."""

    def cost(
        name: str,
        dims: Sequence[Any],
        types: str | Sequence[str] = "float",
        concrete: dict[int, str] | None = None,
        strides: Sequence[Any] = (),
        kernels: Sequence[str] = (),
        backward: bool = False,
        annotation: str | None = None,
    ) -> OpCost:
        if isinstance(types, str):
            types = [types if shape else "" for shape in dims]
        count = max(len(dims), *(index + 1 for index in concrete), 0) if concrete else len(dims)
        values = tuple((concrete or {}).get(index, "") for index in range(count))
        op = OpSignature(
            name,
            tuple(dims),
            tuple(types),
            tuple(strides),
            values,
            annotation=annotation,
            kernel_names=tuple(kernels),
        )
        model = find_model(name)
        assert model is not None
        formula = model.backward if backward else model.cost
        assert formula is not None
        return formula(op)

    return cost
