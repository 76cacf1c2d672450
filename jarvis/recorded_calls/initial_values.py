"""Initial values of the tensors of a replayed call: random numbers, but valid indices.

A trace does not record contents. Invalid indices or negative probabilities would abort a replay;
all other values are arbitrary.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from jarvis.core.dtypes import element_bytes
from jarvis.perf_models.arguments import copied_size, functor_dtypes
from jarvis.perf_models.registry import OpSignature
from jarvis.recorded_calls.schema import Argument

_NAMES = ("unsigned char", "c10::BFloat16", "float", "double")
_OF_SIZE = {element_bytes(name): name for name in _NAMES}
"""Bytes per element -> a type of that size; a copy takes as long for any other."""


def list_dtype(operator: str, argument: Argument, kernels: Sequence[str]) -> str | None:
    """Return the dtype of a list's elements as traces name it, None if no kernel indicates it.

    Kernels that only copy indicate only the element size: then it is a dtype of that size.
    """
    call = OpSignature(operator, kernel_names=tuple(kernels))
    if (size := copied_size(call)) is not None:
        return _OF_SIZE.get(size)
    named = functor_dtypes(call)
    if argument.name == "state_steps":
        return "float"  # optimizers count steps in float, whatever they train
    if argument.name == "src":
        return named[-1] if named else None
    return named[0] if named else None


NORMAL, UNIFORM, INTEGERS, OFFSETS, ENDS = "normal", "uniform", "integers", "offsets", "ends"
"""How a tensor is initialized: normal distribution; uniform from 0 to 1; integers from ``low``
(default 0) below ``high``; start offsets of equal pieces of ``high`` elements, or their end
offsets. None: uninitialized, for tensors that the call only writes."""

SMALL_INTEGERS = 2
"""Upper bound of integers that are not indices, as for booleans."""

_ALL = "all"
_LAST_TWO, _LAST_THREE = slice(-2, None), slice(-3, None)

INDEX_BOUNDS: dict[str, tuple[str, str, Any]] = {
    "embedding": ("indices", "weight", 0),
    "embedding_renorm_": ("indices", "self", 0),
    "_embedding_bag": ("indices", "weight", 0),
    "_embedding_bag_forward_only": ("indices", "weight", 0),
    "embedding_dense_backward": ("indices", "num_weights", None),
    **dict.fromkeys(
        [
            "index_select",
            "index_add",
            "index_add_",
            "index_copy",
            "index_copy_",
            "index_fill_",
            "gather",
            "scatter",
            "scatter_",
            "scatter_add",
            "scatter_add_",
        ],
        ("index", "self", "dim"),
    ),
    **dict.fromkeys(("take", "put_"), ("index", "self", _ALL)),
    **dict.fromkeys(
        ("index", "index_put", "index_put_", "_index_put_impl_"), ("indices", "self", None)
    ),
    **dict.fromkeys(("_unsafe_index", "_unsafe_index_put"), ("indices", "self", None)),
    **dict.fromkeys(("nll_loss_forward", "nll_loss_backward"), ("target", "self", -1)),
    **dict.fromkeys(
        ("nll_loss2d_forward", "nll_loss2d_backward", "cross_entropy_loss"), ("target", "self", 1)
    ),
    **dict.fromkeys(
        ("max_pool2d_with_indices_backward", "adaptive_max_pool2d_backward"),
        ("indices", "self", _LAST_TWO),
    ),
    "max_pool3d_with_indices_backward": ("indices", "self", _LAST_THREE),
    "value_selecting_reduction_backward": ("indices", "sizes", "dim"),
}
"""Operator -> its index tensor, the indexed tensor, and the dimension: a number, the argument that
gives it, or several. Lists of indices have one per dimension."""

_QUERIES, _KEYS = ("query", 0), ("key", 0)
_OFFSETS: dict[str, dict[str, tuple[str, int]]] = {
    "_embedding_bag": {"offsets": ("indices", 0)},
    "_embedding_bag_forward_only": {"offsets": ("indices", 0)},
    "_flash_attention_forward": {"cum_seq_q": _QUERIES, "cum_seq_k": _KEYS},
    "_flash_attention_backward": {"cum_seq_q": _QUERIES, "cum_seq_k": _KEYS},
    "_efficient_attention_forward": {
        "cu_seqlens_q": ("query", 1),
        "cu_seqlens_k": ("key", 1),
    },
    "_efficient_attention_backward": {
        "cu_seqlens_q": ("query", 1),
        "cu_seqlens_k": ("key", 1),
    },
}
"""Operator -> its tensors of offsets, each with the tensor and dimension that they partition."""

_GROUPED = {"_grouped_mm": ("offs", "self")}
"""Operator -> its tensor of end offsets, and the matrix whose rows they partition."""

_UNIFORM = {
    "multinomial": {"self"},
    "bernoulli": {"self", "p"},
    "bernoulli_": {"p"},
    "binary_cross_entropy": {"self", "target"},
    "binary_cross_entropy_backward": {"self", "target"},
    "normal": {"std"},
}
"""Operator -> arguments that must lie between 0 and 1, or must not be negative."""

_DIVISORS = dict.fromkeys(
    ("div", "floor_divide", "floor_divide_", "fmod", "fmod_", "remainder", "remainder_"), "other"
)
"""Operator -> the argument that must not be 0 if it is an integer."""

_OVERWRITTEN = dict.fromkeys(
    (
        "copy_",
        "exponential_",
        "fill_",
        "normal_",
        "random_",
        "uniform_",
        "zero_",
        "_foreach_copy_",
        "_foreach_zero_",
    ),
    "self",
)
"""Operator -> the argument that it writes without reading, as is every output given by keyword."""


def initial_value(operator: str, argument: Argument, dtype: str) -> dict[str, Any]:
    """Return the initialization of one tensor, before ``bound_indices``: ``{"init": ...}`` and any
    bounds."""
    if (argument.is_written and argument.is_keyword) or argument.name == _OVERWRITTEN.get(operator):
        return {"init": None}
    if dtype.startswith(("float", "bfloat", "complex")):
        return {"init": UNIFORM if argument.name in _UNIFORM.get(operator, ()) else NORMAL}
    if dtype != "bool" and _DIVISORS.get(operator) == argument.name:
        return {"init": INTEGERS, "low": 1, "high": 1 + SMALL_INTEGERS}
    return {"init": INTEGERS, "high": SMALL_INTEGERS}


def bound_indices(operator: str, values: Mapping[str, Any]) -> None:
    """Bound the indices of a call by the size of the indexed tensors; ``values`` by argument
    name."""
    if operator in INDEX_BOUNDS:
        index, indexed, along = INDEX_BOUNDS[operator]
        dimension = values[along] if along == "dim" else along
        _bound(values.get(index), values[indexed], dimension)
    for name, (cut, dimension) in _OFFSETS.get(operator, {}).items():
        if (offsets := values.get(name)) is not None:
            offsets |= {"init": OFFSETS, "high": values[cut]["shape"][dimension]}
    if operator in _GROUPED:
        name, cut = _GROUPED[operator]
        if (ends := values.get(name)) is not None:
            ends |= {"init": ENDS, "high": _cut_up(values[cut], values["mat2"])}


def _bound(index: Any, indexed: Any, along: Any) -> None:
    if isinstance(index, list):
        for dimension, one in enumerate(index):
            if one is not None and one["dtype"] != "bool":
                one["high"] = _extent(indexed["shape"], dimension)
    elif index is not None and index["init"] == INTEGERS:  # else probabilities
        shape = indexed["shape"] if isinstance(indexed, dict) else indexed
        index["high"] = shape if isinstance(shape, int) else _extent(shape, along)


def _extent(shape: Sequence[int], along: Any) -> int:
    if not shape:
        return 1
    if along == _ALL:
        return max(1, prod(shape))
    if isinstance(along, slice):
        return max(1, prod(shape[along]))
    return max(1, shape[int(along)])


def _cut_up(first: dict[str, Any], second: dict[str, Any]) -> int:
    """Return the length of the dimension of a grouped product that the groups partition."""
    if len(first["shape"]) == 3:  # one matrix per group times columns that they partition
        return int(second["shape"][-1])
    is_over_inner = len(second["shape"]) == 2
    return int(first["shape"][-1 if is_over_inner else 0])
