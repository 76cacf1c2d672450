"""Convert a recorded call to a framework-independent description from which it can be replayed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import isfinite, prod
from typing import Any

from jarvis.core.dtypes import find_dtype
from jarvis.core.errors import ReplayError
from jarvis.core.literals import parse_literal
from jarvis.recorded_calls.initial_values import bound_indices, initial_value, list_dtype
from jarvis.recorded_calls.schema import (
    NAMESPACE,
    NO_FIT,
    Argument,
    Signature,
    operator_of,
    signatures,
    why_no_arguments,
    why_unknown,
)
from jarvis.schemas.names import C

TENSOR_LIST = "TensorList"
DEVICE = "Device"
_PASSED_UNRECORDED = {DEVICE, "Generator"}
"""Keywords that some overloads require but traces never record."""
_OPERAND = "other"
_WHOLE = {"int", "ScalarType", "Layout", "MemoryFormat"}
_NUMBERS = {"Scalar", "float", "bool"} | _WHOLE
_LARGEST = (1 << 63) - 1
"""The largest integer that arguments and JSON support."""

_ITEMS: dict[str, tuple[type, ...]] = {
    "int[]": (int,),
    "bool[]": (bool,),
    "float[]": (float, int),
    "Scalar[]": (float, int),
}


@dataclass(frozen=True, slots=True)
class _Recorded:
    """The recorded data of one argument."""

    dims: Any
    type: str
    strides: Any
    concrete: str


_NOTHING = _Recorded((), "", (), "")


class _MisfitError(ValueError):
    """An argument does not match the signature; the message says what the trace lacks, if known."""


def replay_ir(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the call of an operations row: ``{"overload", "list_pos_args", "list_kwargs"}``.

    Each argument is ``{"arg_name", "arg_type", "value"}``; a tensor's value is ``{"shape", "dtype",
    "strides", "init"}`` and the bounds of integers, infinity is text.

    Args:
        row: Has ``name``, the four argument columns as text, and ``kernels``, whose names indicate
            the dtype of tensor lists.

    Raises:
        ReplayError: The call cannot be described; gives the reason.
    """
    name = operator_of(row[C.name])
    if row[C.input_dims] is None:
        raise ReplayError(why_no_arguments(name))
    if name not in signatures():
        raise ReplayError(why_unknown(name))
    kernels = tuple(kernel[C.name] for kernel in row.get(C.kernels) or ())
    recorded = _recorded(row)
    reasons = []
    for is_lenient, signature in product((False, True), _fitting(name, len(recorded))):
        missing = [_NOTHING] * (len(signature.arguments) - len(recorded))
        try:
            return _ir(name, signature, [*recorded, *missing], kernels, is_lenient)
        except _MisfitError as error:
            reasons.append(str(error))
    raise ReplayError(next(filter(None, reasons), NO_FIT))


def _fitting(name: str, count: int) -> list[Signature]:
    """Return the signatures of an operator with ``count`` arguments, then those with more optional
    ones: releases add arguments at the end."""
    found = [
        signature
        for signature in signatures()[name]
        if len(signature.arguments) >= count
        and all(argument.is_optional for argument in signature.arguments[count:])
    ]
    return sorted(found, key=lambda signature: len(signature.arguments))


def _recorded(row: Mapping[str, Any]) -> list[_Recorded]:
    columns = (C.input_dims, C.input_types, C.input_strides, C.concrete_inputs)
    dims, types, strides, concrete = (_literal(row[column]) for column in columns)
    return [
        _Recorded(
            shape, _text(types, i), strides[i] if i < len(strides) else (), _text(concrete, i)
        )
        for i, shape in enumerate(dims)
    ]


def _text(values: Sequence[Any], place: int) -> str:
    """Return the text at a place of a column; empty if the trace has none or another type."""
    value = values[place] if place < len(values) else ""
    return value if isinstance(value, str) else ""


def _literal(text: str | None) -> Sequence[Any]:
    try:
        value: Sequence[Any] = parse_literal(text)
    except (ValueError, SyntaxError) as error:
        raise ReplayError(NO_FIT) from error
    return value


def _ir(
    name: str,
    signature: Signature,
    recorded: Sequence[_Recorded],
    kernels: Sequence[str],
    is_lenient: bool,
) -> dict[str, Any]:
    """Return the description for one signature; if lenient, tensors may be undefined or plain
    numbers."""
    operator = name.removeprefix(NAMESPACE)
    pairs = list(zip(signature.arguments, recorded, strict=True))
    if is_lenient:
        pairs = [_relaxed(*pair) if pair[0].type == "Tensor" else pair for pair in pairs]
    values = {wanted.name: _value(operator, wanted, found, kernels) for wanted, found in pairs}
    try:
        bound_indices(operator, values)
    except (LookupError, TypeError) as error:
        raise _MisfitError("its indices do not match the tensor that they index") from error
    entries = [
        (wanted, {"arg_name": wanted.name, "arg_type": wanted.type, "value": values[wanted.name]})
        for wanted, _ in pairs
    ]
    return {
        "overload": signature.overload,
        "list_pos_args": [entry for wanted, entry in entries if not wanted.is_keyword],
        # Other keywords that the trace does not record keep their default.
        "list_kwargs": [
            entry
            for wanted, entry in entries
            if wanted.is_keyword
            and (entry["value"] is not None or wanted.type in _PASSED_UNRECORDED)
        ],
    }


def _relaxed(wanted: Argument, recorded: _Recorded) -> tuple[Argument, _Recorded]:
    """Accept an undefined tensor, or a number in place of an operand's tensor, which it wraps."""
    if recorded.type == "Scalar" and wanted.name == _OPERAND:
        recorded = replace(recorded, dims=(), type="double")
    return replace(wanted, is_optional=True), recorded


def _value(operator: str, argument: Argument, recorded: _Recorded, kernels: Sequence[str]) -> Any:
    if argument.is_optional and (recorded.type == "" or argument.type == DEVICE):
        return None
    if argument.type == "Tensor":
        return _tensor(operator, argument, recorded)
    if argument.type in ("Tensor[]", "Tensor?[]"):
        return _tensors(operator, argument, recorded, kernels)
    if argument.type in _NUMBERS:
        return _number(argument.type, recorded)
    if argument.type in _ITEMS:
        return _list(argument.type, recorded)
    if argument.type == "str" and recorded.concrete:
        return recorded.concrete
    raise _MisfitError(f"the trace does not record its argument {argument.name}")


def _tensor(operator: str, argument: Argument, recorded: _Recorded) -> dict[str, Any]:
    dtype = find_dtype(recorded.type)
    if dtype is None or not dtype.torch:
        raise _MisfitError
    return _config(operator, argument, dtype.torch, recorded.dims, recorded.strides)


def _config(
    operator: str, argument: Argument, dtype: str, dims: Any, recorded: Any
) -> dict[str, Any]:
    shape, strides = _sizes(dims), _sizes(recorded)
    if shape is None or prod(shape) > _LARGEST:
        raise _MisfitError
    if strides is None or len(strides) != len(shape):  # not recorded
        strides = [prod(shape[i + 1 :]) for i in range(len(shape))]
    return {
        "shape": shape,
        "dtype": dtype,
        "strides": strides,
        **initial_value(operator, argument, dtype),
    }


def _sizes(recorded: Any) -> list[int] | None:
    """Return sizes or strides, None if something else was recorded."""
    if not isinstance(recorded, tuple):
        return None
    are_sizes = all(type(size) is int and 0 <= size <= _LARGEST for size in recorded)
    return list(recorded) if are_sizes else None


def _tensors(
    operator: str, argument: Argument, recorded: _Recorded, kernels: Sequence[str]
) -> list[dict[str, Any]]:
    if recorded.type == "":
        raise _MisfitError(f"the trace does not record its argument {argument.name}")
    if recorded.type != TENSOR_LIST:
        raise _MisfitError
    if not isinstance(recorded.dims, tuple):
        raise _MisfitError
    if not recorded.dims:
        raise _MisfitError("its lists of tensors are too long for the trace to record their shapes")
    dtype = find_dtype(list_dtype(operator, argument, kernels) or "")
    if dtype is None or not dtype.torch:
        raise _MisfitError("neither the trace nor its kernels show the dtype of its tensors")
    strides = recorded.strides
    if not isinstance(strides, tuple) or len(strides) != len(recorded.dims):
        strides = ((),) * len(recorded.dims)
    return [
        _config(operator, argument, dtype.torch, shape, steps)
        for shape, steps in zip(recorded.dims, strides, strict=True)
    ]


def _number(wanted: str, recorded: _Recorded) -> bool | int | float | str:
    if recorded.type != "Scalar":
        raise _MisfitError
    text = recorded.concrete
    if text in ("True", "False"):
        if wanted not in ("bool", "Scalar"):
            raise _MisfitError
        return text == "True"
    try:
        number = int(text) if wanted in _WHOLE else _parsed(text, wanted)
    except ValueError as error:
        raise _MisfitError from error
    if isinstance(number, int) and abs(number) > _LARGEST:
        raise _MisfitError
    return number


def _parsed(text: str, wanted: str) -> int | float | str:
    if wanted == "bool":
        raise _MisfitError
    try:
        whole = int(text)
    except ValueError:
        number = float(text)
        return number if isfinite(number) else text  # JSON has no infinity
    return float(whole) if wanted == "float" else whole


def _list(wanted: str, recorded: _Recorded) -> list[Any]:
    if recorded.type != "ScalarList":
        raise _MisfitError
    try:
        value = parse_literal(recorded.concrete)
    except (ValueError, SyntaxError) as error:
        raise _MisfitError from error
    if not isinstance(value, list) or any(type(item) not in _ITEMS[wanted] for item in value):
        raise _MisfitError
    if any(abs(item) > _LARGEST for item in value):
        raise _MisfitError
    return value
