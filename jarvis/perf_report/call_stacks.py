"""What stands above the kernels of an operator, and the Python frame that called the operator."""

import re
from collections.abc import Sequence
from itertools import chain, takewhile

import polars as pl

from jarvis.perf_report.unified import UnifiedCalls

NOT_FOUND = "Not found"
"""The entry point of an operator without a Python frame above it."""

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


def with_call_stacks(unified: UnifiedCalls, tree: pl.DataFrame) -> UnifiedCalls:
    """Unified ops whose work has ``call_stack``; null for rows that stand for one GPU event.

    ``tree``: ``named_tree``. A stack holds the names of operators, modules and Python frames above
    a kernel, outermost first, without the numbers that tell instances apart.
    """
    synthetic = unified.calls.filter("is_synthetic")["uid"]
    stacks = stacks_above(tree, unified.work["launch_uid"].unique())
    found = pl.DataFrame(
        {"launch_uid": list(stacks), "call_stack": list(map(list, stacks.values()))},
        schema={"launch_uid": pl.Int64, "call_stack": pl.List(pl.String)},
    )
    work = unified.work.join(found, on="launch_uid", how="left", maintain_order="left")
    is_op = ~pl.col("owner_uid").is_in(synthetic.implode())
    return UnifiedCalls(
        unified.calls, work.with_columns(call_stack=pl.when(is_op).then("call_stack"))
    )


def with_entry_points(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows (``name, kernel_details, kernel_call_stacks``) with the columns of call stacks.

    These are ``entry_point`` and ``call_stack_full``, kernels in the order of their details.
    """
    points, texts = [], []
    for name, kernels, stacks in rows.select(
        "name", "kernel_details", "kernel_call_stacks"
    ).iter_rows():
        whole = [
            (*(stack or ()), kernel["name"])
            for kernel, stack in zip(kernels, stacks or (), strict=True)
        ]
        points.append(entry_point(name, whole))
        texts.append(repr(merged(whole)))
    return rows.with_columns(
        entry_point=pl.Series(points, dtype=pl.String),
        call_stack_full=pl.Series(texts, dtype=pl.String),
    )


def stacks_above(tree: pl.DataFrame, uids: pl.Series) -> dict[int, Stack]:
    """The shown names from the root down to each of these events of the ``named_tree``."""
    rows = {
        uid: (parent, _NUMBER.sub("", name) if kind == "op" or _SHOWN_NAME.search(name) else None)
        for uid, parent, name, kind in tree.select("uid", "parent_uid", "name", "kind").iter_rows()
    }
    stacks: dict[int | None, Stack] = {None: ()}
    wanted = uids.drop_nulls().to_list()
    for uid in wanted:
        path: list[int] = []
        node: int | None = uid
        while node is not None and node not in stacks:
            path.append(node)
            node = rows[node][0]
        for step in reversed(path):
            parent, shown = rows[step]
            stacks[step] = stacks[parent] if shown is None else (*stacks[parent], shown)
    return {uid: stacks[uid] for uid in wanted}


def merged(stacks: Sequence[Stack]) -> list[str | list[str]]:
    """Several stacks as one: the part that all share, then each distinct rest as a list."""
    distinct = list(dict.fromkeys(stacks))
    if len(distinct) < 2:
        return [name for stack in distinct for name in stack]
    levels = zip(*distinct, strict=False)
    shared = sum(1 for _ in takewhile(lambda names: len(set(names)) == 1, levels))
    return [*distinct[0][:shared], *(list(stack[shared:]) for stack in distinct)]


def entry_point(op_name: str, stacks: Sequence[Stack]) -> str:
    """The Python frame from which an operator was called, or NOT_FOUND.

    First a frame below the operator whose function bears its name, else the nearest frame above
    it that is no wrapper of the framework.
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
    found = _FRAME.search(frame)
    return found["function"] if found else ""


def _is_wrapper(frame: str) -> bool:
    return (
        frame.startswith(_WRAPPER_PREFIXES)
        or any(file in frame for file in _WRAPPER_FILES)
        or _function(frame) in _WRAPPER_FUNCTIONS
    )
