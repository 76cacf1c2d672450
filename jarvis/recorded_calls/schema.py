"""The schemas of operators of PyTorch, and why calls of an operator cannot be replayed."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TABLE = Path(__file__).with_name("operators.txt")
"""One signature per line: ``name.overload(type name, ...)``; ``#`` begins a comment."""

NAMESPACE = "aten::"
_LINE = re.compile(r"(\w+)(?:\.(\w+))?\((.*)\)")


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of an operator; ``type`` is without markers, a list's ends in ``[]``."""

    name: str
    type: str
    is_keyword: bool
    is_optional: bool
    is_written: bool


@dataclass(frozen=True, slots=True)
class Signature:
    """The arguments of one overload in order; the unnamed overload is ``""``."""

    overload: str
    arguments: tuple[Argument, ...]


@cache
def signatures() -> dict[str, tuple[Signature, ...]]:
    """Return operator -> its signatures; the first that matches the trace's arguments applies."""
    found: dict[str, tuple[Signature, ...]] = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        assert match is not None, line
        name, overload, arguments = match.groups()
        operator = NAMESPACE + name
        signature = Signature(overload or "", _arguments(arguments))
        found[operator] = (*found.get(operator, ()), signature)
    return found


def _arguments(text: str) -> tuple[Argument, ...]:
    found = []
    is_keyword = False
    for part in text.split(", "):
        if part == "*":
            is_keyword = True
        elif part:
            type_name, _, name = part.partition(" ")
            base = type_name.removesuffix("?")
            found.append(
                Argument(
                    name,
                    base.removesuffix("!"),
                    is_keyword,
                    is_optional=type_name.endswith("?"),
                    is_written=base.endswith("!"),
                )
            )
    return tuple(found)


NO_ARGUMENTS = "the trace records no arguments for it"
IN_GRAPH = "a GPU graph launched it: the trace records neither its operator nor its arguments"
NO_FIT = "its recorded arguments fit no known signature"
UNKNOWN = "its signature is not known to the replay"
COMPILED = "it is a kernel that a compiler generated; its code is not in the trace"
BACKWARD_STEP = "it is a step of autograd, of which only the incoming gradient is recorded"
COLLECTIVE = "it exchanges data with other processes"

_KERNEL_MARK = "->"
"""Rows of single kernels are named after the launching operator and the kernel."""

_LIBRARY_MARK = "::"
_GRAPH_LAUNCH = "GraphLaunch"

_COMPILED_PREFIXES = ("triton_", "torch_compiled", "## Call CompiledFxGraph", "CompiledFunction")
_COLLECTIVE_PREFIXES = ("c10d::", "_c10d_functional::", "record_param_comms", "nccl:", "rccl:")


def operator_of(row_name: str) -> str:
    """Return the operator in the name of a row of the operations table; the name itself if it has
    none."""
    operator = row_name.partition(_KERNEL_MARK)[0]
    return operator if _LIBRARY_MARK in operator else row_name


def is_single_kernel(row_name: str) -> bool:
    """Return whether a row's times are those of one kernel of the operator and not of its whole
    call."""
    return operator_of(row_name) != row_name


def why_no_arguments(name: str) -> str:
    """Return why a row has no arguments."""
    return IN_GRAPH if _GRAPH_LAUNCH in name.partition(_KERNEL_MARK)[0] else NO_ARGUMENTS


def why_unknown(name: str) -> str:
    """Return why an operator has no known signature."""
    if name.startswith(_COLLECTIVE_PREFIXES):
        return COLLECTIVE
    if name.startswith(_COMPILED_PREFIXES):
        return COMPILED
    library, mark, _ = name.partition(_LIBRARY_MARK)
    if mark and name.startswith(NAMESPACE):
        return UNKNOWN
    if mark:
        return f"it belongs to the library {library}, which the replay does not load"
    if name.rstrip("0123456789").endswith("Backward"):
        return BACKWARD_STEP
    return UNKNOWN
