"""One recorded call -> the description from which it can be made again, without the framework."""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, prod
from typing import Any

from jarvis.errors import ReplayError
from jarvis.replay.schema import (
    INDEX_BOUNDS,
    OUTPUTS,
    SIGNATURES,
    WRITTEN,
    Argument,
    arguments,
)

DTYPES = {
    "float": "float32",
    "double": "float64",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "c10::Float8_e4m3fn": "float8_e4m3fn",
    "c10::Float8_e4m3fnuz": "float8_e4m3fnuz",
    "c10::Float8_e5m2": "float8_e5m2",
    "c10::Float8_e5m2fnuz": "float8_e5m2fnuz",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
    "bool": "bool",
    "unsigned char": "uint8",
    "signed char": "int8",
    "short": "int16",
    "short int": "int16",
    "int": "int32",
    "long": "int64",
    "long int": "int64",
}
"""Type of a tensor as a trace names it -> the framework's dtype."""

NORMAL, INTEGERS = "normal", "integers"
"""How a tensor is filled: normally distributed numbers, or whole ones below ``high``; null: not at
all, for tensors that the call only writes."""

SMALL_INTEGERS = 2
TENSOR_LIST = "TensorList"
_NUMBERS = {"Scalar", "int", "float", "bool", "ScalarType"}


@dataclass(frozen=True, slots=True)
class _Recorded:
    """What the trace holds of one argument."""

    dims: Any
    type: str
    strides: Any
    concrete: str


class _MisfitError(ValueError):
    """An argument is not what the signature wants."""


def replay_ir(row: Mapping[str, Any]) -> dict[str, Any]:
    """The call of an operations row as ``{"list_pos_args": [...], "list_kwargs": [...]}``.

    ``row`` has ``name`` and the four argument columns as text. Each argument is
    ``{"arg_name", "arg_type", "value"}``; a tensor's value is ``{"shape", "dtype", "strides",
    "init"}`` and ``high`` for whole numbers, infinity is text. Raises ReplayError with the reason
    where the call cannot be described.
    """
    name = row["name"]
    if row["input_dims"] is None:
        raise ReplayError("the trace records no arguments for it")
    recorded = _recorded(row)
    if any(argument.type == TENSOR_LIST for argument in recorded):
        raise ReplayError("it takes a list of tensors, whose dtypes the trace does not record")
    if name not in SIGNATURES:
        raise ReplayError("what arguments it takes is not known to the replay")
    for signature in SIGNATURES[name]:
        wanted = arguments(signature)
        if len(wanted) != len(recorded):
            continue
        try:
            values = [_value(name, a, r) for a, r in zip(wanted, recorded, strict=True)]
        except _MisfitError:
            continue
        return _ir(name, wanted, values)
    raise ReplayError("its recorded arguments fit no known signature")


def _recorded(row: Mapping[str, Any]) -> list[_Recorded]:
    columns = ("input_dims", "input_types", "input_strides", "concrete_inputs")
    dims, types, strides, concrete = (_literal(row[column]) for column in columns)
    return [
        _Recorded(
            shape,
            types[i] if i < len(types) else "",
            strides[i] if i < len(strides) else (),
            concrete[i] if i < len(concrete) else "",
        )
        for i, shape in enumerate(dims)
    ]


def _literal(text: str | None) -> Sequence[Any]:
    value: Sequence[Any] = ast.literal_eval(text) if text else ()
    return value


def _ir(name: str, wanted: Sequence[Argument], values: list[Any]) -> dict[str, Any]:
    _bound_indices(name, wanted, values)
    named = [
        (argument, {"arg_name": argument.name, "arg_type": argument.type, "value": value})
        for argument, value in zip(wanted, values, strict=True)
    ]
    return {
        "list_pos_args": [entry for argument, entry in named if not argument.is_keyword],
        # A keyword that the trace does not tell keeps its default.
        "list_kwargs": [
            entry for argument, entry in named if argument.is_keyword and entry["value"] is not None
        ],
    }


def _value(operator: str, argument: Argument, recorded: _Recorded) -> Any:
    if argument.is_optional and (recorded.type == "" or argument.base == "str"):
        return None
    if argument.base == "Tensor":
        return _tensor(operator, argument, recorded)
    if argument.base in _NUMBERS:
        return _number(argument.base, recorded)
    return _list(argument.base, recorded)


def _tensor(operator: str, argument: Argument, recorded: _Recorded) -> dict[str, Any]:
    dtype = DTYPES.get(recorded.type)
    if dtype is None:
        raise _MisfitError
    shape = [int(size) for size in recorded.dims]
    if argument.name in OUTPUTS or WRITTEN.get(operator) == argument.name:
        fill: dict[str, Any] = {"init": None}
    elif dtype.startswith(("float", "bfloat", "complex")):
        fill = {"init": NORMAL}
    else:
        fill = {"init": INTEGERS, "high": SMALL_INTEGERS}
    strides = list(recorded.strides)
    if len(strides) != len(shape):  # not recorded
        strides = [prod(shape[i + 1 :]) for i in range(len(shape))]
    return {"shape": shape, "dtype": dtype, "strides": strides, **fill}


def _number(wanted: str, recorded: _Recorded) -> bool | int | float | str:
    if recorded.type != "Scalar":
        raise _MisfitError
    text = recorded.concrete
    if text in ("True", "False"):
        if wanted not in ("bool", "Scalar"):
            raise _MisfitError
        return text == "True"
    try:
        return int(text) if wanted in ("int", "ScalarType") else _parsed(text, wanted)
    except ValueError as error:
        raise _MisfitError from error


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
    kind = bool if wanted == "bool[]" else int
    try:
        value = ast.literal_eval(recorded.concrete)
    except (ValueError, SyntaxError) as error:
        raise _MisfitError from error
    if not isinstance(value, list) or any(type(item) is not kind for item in value):
        raise _MisfitError
    return value


def _bound_indices(name: str, wanted: Sequence[Argument], values: list[Any]) -> None:
    """Let an index tensor point all over the tensor that it indexes."""
    if name not in INDEX_BOUNDS:
        return
    index, indexed, along = INDEX_BOUNDS[name]
    by_name = {argument.name: value for argument, value in zip(wanted, values, strict=True)}
    dimension = by_name[along] if isinstance(along, str) else along
    shape = by_name[indexed]["shape"]
    by_name[index]["high"] = max(1, shape[dimension]) if shape else 1
