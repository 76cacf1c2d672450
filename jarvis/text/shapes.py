"""Compact texts of shapes for tables; the arguments as recorded stay available beside them."""

import json
import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby
from typing import Any

_DIMS = re.compile(r"\((\d[\d, ]*)\)")
_ARGUMENT = re.compile(r"\[([\d,]*)\](?: (\w+))?")
_MAX_CACHED = 4096
_TIMES = "\N{MULTIPLICATION SIGN}"


def product_shape(params: str | None) -> str | None:
    """Return the sides M, N and K of a matrix product from the JSON of its perf model's parameters.

    Batched products end with their number, ``(x8)``; None for all other operations.
    """
    if params is None or '"K"' not in params:
        return None
    known: dict[str, Any] = json.loads(params)
    sides = [known.get(name) for name in ("M", "N", "K")]
    if not all(isinstance(side, int) for side in sides) or known.get("G") is not None:
        return None
    product = _TIMES.join(str(side) for side in sides)
    batch = known.get("B")
    return f"{product} (x{batch})" if isinstance(batch, int) and batch > 1 else product


def operation_shapes(given: Iterable[tuple[str | None, str | None]]) -> list[str | None]:
    """Return the sides of matrix products, else the shapes of the tensors, from the parameters and
    recorded shapes of operations."""
    return [product_shape(params) or compact_dims(dims) for params, dims in given]


@lru_cache(_MAX_CACHED)
def call_shapes(arguments: str | None, params: str | None) -> str | None:
    """Return sides and type of a matrix product, else the shapes of all arguments."""
    compact, product = compact_shapes(arguments), product_shape(params)
    if product is None:
        return compact
    _, _, dtype = (compact or "").rpartition(" ")
    return f"{product} {dtype}" if dtype.isidentifier() else product


def compact_shapes(arguments: str | None) -> str | None:
    """Return ``512 (x2), 64 bf16`` for ``[512] bf16, [512] bf16, [64] bf16``.

    A type that all tensors have is named once; a text of another form is returned as it is.
    """
    found = _ARGUMENT.findall(arguments or "")
    if not found or ", ".join(_argument(*pair) for pair in found) != arguments:
        return arguments
    types = {dtype for _, dtype in found}
    common = types.pop() if len(types) == 1 else None
    sides = ((dims.replace(",", _TIMES) or "scalar", dtype) for dims, dtype in found)
    texts = (dims if common is not None else f"{dims} {dtype}".strip() for dims, dtype in sides)
    return f"{_listed(texts)} {common or ''}".strip()


def compact_dims(dims: str | None) -> str | None:
    """Return ``512 (x2), 64`` for the recorded ``((512,), (512,), (64,), ())``.

    Arguments without sides, which are scalars or no tensors, are left out.
    """
    found = _DIMS.findall(dims or "")
    if not found:
        return "scalar" if dims else None
    return _listed(_TIMES.join(re.findall(r"\d+", sides)) for sides in found)


def _listed(shapes: Iterable[str]) -> str:
    """Return the shapes, with equal ones that follow each other as one."""
    runs = ((text, len(list(run))) for text, run in groupby(shapes))
    return ", ".join(text if count == 1 else f"{text} (x{count})" for text, count in runs)


def _argument(dims: str, dtype: str) -> str:
    return f"[{dims}] {dtype}".strip()
