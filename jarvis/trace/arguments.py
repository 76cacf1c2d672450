"""Validate recorded arguments of operators: shapes, types, strides and values."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import orjson

MAX_RANK = 64
"""PyTorch's maximum number of tensor dimensions."""

MAX_ELEMENTS = 2**63
"""Limit of tensor elements: PyTorch counts them in 64 bits."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """Reader of one list of recorded arguments; ``absent`` replaces invalid entries."""

    is_valid: Callable[[Any], bool]
    absent: Any

    def __call__(self, value: Any) -> str | None:
        """Return the list as JSON text; None for other values and for what JSON cannot encode."""
        if not isinstance(value, list):
            return None
        entries = [entry if self.is_valid(entry) else self.absent for entry in value]
        try:
            return orjson.dumps(entries).decode()
        except TypeError:  # whole numbers of more than 64 bits, halves of surrogate pairs
            return None

    def has_invalid_entries(self, value: Any) -> bool:
        """Return whether the list has entries to replace."""
        return isinstance(value, list) and not all(map(self.is_valid, value))


def _is_sizes(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= MAX_RANK
        and all(type(size) is int and size >= 0 for size in value)
        and prod(size or 1 for size in value) < MAX_ELEMENTS
    )


def _is_shape(value: Any) -> bool:
    """Return whether ``value`` is the shape of a tensor, or a list of shapes."""
    return _is_sizes(value) or (isinstance(value, list) and all(map(_is_sizes, value)))


def _is_strides(value: Any) -> bool:
    def is_plain(steps: Any) -> bool:
        return isinstance(steps, list) and all(
            type(step) is int and 0 <= step < MAX_ELEMENTS for step in steps
        )

    return is_plain(value) or (isinstance(value, list) and all(map(is_plain, value)))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)


DIMS = Arguments(_is_shape, [])
TYPES = Arguments(_is_text, "")
STRIDES = Arguments(_is_strides, [])
VALUES = Arguments(_is_scalar, "")
