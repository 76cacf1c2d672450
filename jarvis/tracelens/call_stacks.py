"""Call stacks of an operator's kernels, and the Python frame that called the operator."""

import re
from collections.abc import Sequence
from itertools import chain, takewhile

import polars as pl

from jarvis.perf_report.call_tree.stacks import CallStacks
from jarvis.perf_report.unified import UnifiedCalls
from jarvis.schemas.names import C

NOT_FOUND = "Not found"
"""Entry point of an operator without a Python frame above it."""

_SHOWN_NAME = re.compile(r"nn\.Module|::|/")
_NUMBER = re.compile(r"_\d+")
_FRAME = re.compile(r"\.py\(\d+\): (?P<function>.*)$")
_WRAPPER_PREFIXES = ("<built-in", "pybind11_builtins", "nn.Module:")
_WRAPPER_FILES = (
    "torch/_ops.py",
    "torch/nn/modules/module.py",
    "torch/utils/_contextlib.py",
    "torch/utils/_device.py",
    "torch/_tensor.py",
    "torch/functional.py",
    "torch/overrides.py",
    "torch/_inductor/",
    "torch/_functorch/",
    "torch/distributed/c10d_logger.py",
    "triton/backends/",
)
_WRAPPER_FUNCTIONS = frozenset(
    {
        "__torch_function__",
        "_call_impl",
        "_wrapped_call_impl",
        "decorate_context",
        "dispatch_wrapper",
        "handle_torch_function",
        "wrapper",
        "custom_wrapper",
        "wrapper_custom",
        "outer_wrapper",
    }
)

Stack = tuple[str, ...]


_MODULE = "nn.Module"
_MAX_MODULE_LENGTH = 256
NO_MODULE = "NA"
"""Parent module of a call outside any module."""


def with_modules(launched: pl.DataFrame, stacks: CallStacks) -> pl.DataFrame:
    """Return launchers with ``parent_module``, without numbers, and ``call_stack``: their name and
    those of the modules around them, innermost first."""
    above = stacks.nearest_above(lambda frame: _MODULE in frame.name)
    chains = [
        [_shortened(name) for name in (own, *reversed(stacks.chain(uid, above)))]
        for uid, own in launched.select(C.uid, C.name).iter_rows()
    ]
    modules = [_NUMBER.sub("", chain[1]) if len(chain) > 1 else NO_MODULE for chain in chains]
    return launched.with_columns(
        pl.Series(C.parent_module, modules, dtype=pl.String),
        pl.Series(C.call_stack, chains, dtype=pl.List(pl.String)),
    )


def _shortened(name: str) -> str:
    return name if len(name) <= _MAX_MODULE_LENGTH else f"{name[:_MAX_MODULE_LENGTH]}.."


def with_stack_owners(unified: UnifiedCalls) -> UnifiedCalls:
    """Return unified ops whose work has ``stack_of``, the launch below a kernel's stack.

    It is null for synthetic rows, which have no stack.
    """
    synthetic = unified.calls.filter(C.is_synthetic)[C.uid]
    is_op = ~pl.col(C.owner_uid).is_in(synthetic.implode())
    work = unified.work.with_columns(pl.when(is_op).then(C.launch_uid).alias(C.stack_of))
    return UnifiedCalls(unified.calls, work)


def with_call_stacks(rows: pl.DataFrame, calls: CallStacks) -> pl.DataFrame:
    """Return rows with ``kernel_call_stacks`` instead of ``stack_owners``.

    A stack has the names of operators, modules and Python frames above a kernel, outermost first,
    without instance numbers.
    """
    shown = calls.nearest_above(lambda frame: frame.kind == "op" or _is_shown(frame.name))
    names = [
        [None if uid is None else _stack(calls.chain(uid, shown)) for uid in uids or ()]
        for uids in rows["stack_owners"].to_list()
    ]
    stacks = pl.Series(C.kernel_call_stacks, names, dtype=pl.List(pl.List(pl.String)))
    return rows.drop("stack_owners").with_columns(stacks)


def _stack(names: Sequence[str]) -> list[str]:
    return [_NUMBER.sub("", name) for name in names]


def _is_shown(name: str) -> bool:
    return _SHOWN_NAME.search(name) is not None


def with_entry_points(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows with ``entry_point`` and ``call_stack_full``, kernels in the order of details.

    Args:
        rows: ``name, kernel_details, kernel_call_stacks``.
    """
    points, texts = [], []
    for name, kernels, stacks in rows.select(
        C.name, C.kernel_details, C.kernel_call_stacks
    ).iter_rows():
        whole = [
            (*(stack or ()), kernel["name"]) for kernel, stack in zip(kernels, stacks, strict=True)
        ]
        points.append(entry_point(name, whole))
        texts.append(repr(merged(whole)))
    return rows.with_columns(
        pl.Series(points, dtype=pl.String).alias(C.entry_point),
        pl.Series(texts, dtype=pl.String).alias(C.call_stack_full),
    )


def merged(stacks: Sequence[Stack]) -> list[str | list[str]]:
    """Merge stacks into one: the shared part, then each distinct rest as a list."""
    distinct = list(dict.fromkeys(stacks))
    if len(distinct) < 2:
        return [name for stack in distinct for name in stack]
    levels = zip(*distinct, strict=False)
    shared = sum(1 for _ in takewhile(lambda names: len(set(names)) == 1, levels))
    return [*distinct[0][:shared], *(list(stack[shared:]) for stack in distinct)]


def entry_point(op_name: str, stacks: Sequence[Stack]) -> str:
    """Return the Python frame from which an operator was called, or NOT_FOUND.

    It is a frame below the operator whose function has its name, else the nearest frame above it
    that is not a wrapper of the framework.
    """
    frames = [
        name for part in merged(stacks) for name in ([part] if isinstance(part, str) else part)
    ]
    shown = _NUMBER.sub("", op_name)
    if shown not in frames:
        return NOT_FOUND
    place = len(frames) - 1 - frames[::-1].index(shown)
    local = shown.rpartition("::")[2].lower()
    below = (f for f in frames[place + 1 :] if local in _function(f).lower())
    above = (f for f in reversed(frames[:place]) if _function(f) and not _is_wrapper(f))
    return next(chain(below, above), NOT_FOUND)


def _function(frame: str) -> str:
    match = _FRAME.search(frame)
    return match["function"] if match else ""


def _is_wrapper(frame: str) -> bool:
    return (
        frame.startswith(_WRAPPER_PREFIXES)
        or any(file in frame for file in _WRAPPER_FILES)
        or _function(frame) in _WRAPPER_FUNCTIONS
    )
