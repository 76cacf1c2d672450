"""Short names of operations, with what differs between those of equal name and shapes."""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import chain
from typing import Any

import polars as pl

from jarvis.core.literals import parse_tuple
from jarvis.schemas.names import C
from jarvis.text.markdown import shortened
from jarvis.text.short_names import kernel_without_operator, short_operation_name

_LENGTH, _LENGTH_WITHOUT_SHAPES = 23, 38
"""Lengths of a name with what differs, so that both are in view in a table."""

_MAX_LENGTH = 16
_MANGLED = "_Z"
_TOKEN = re.compile(r"\d+|[A-Za-z_]+|\W+")
_IN_PARENTHESES = re.compile(r"\((.+)\)$")
_READ = (
    *(C.name, C.input_dims, C.input_strides, C.concrete_inputs),
    *(C.uid, C.direction, C.thread_name, C.process_name),
)


def with_short_names(
    rows: pl.DataFrame, shapes: str = "arguments", recomputed: Collection[int] = ()
) -> pl.DataFrame:
    """Return operations with ``short_name``, which is unique among those of equal shapes.

    Of rows of the same name it ends with ``difference``: template arguments, strides, place of the
    calls or values of that row, or a number from the second row on. Others have an empty one.

    Args:
        rows: Operations.
        shapes: Column of the shapes.
        recomputed: The ``uid`` of calls that activation checkpointing repeats.
    """
    short = {name: short_operation_name(name) for name in rows[C.name].unique()}
    names = [short[name] for name in rows[C.name]]
    places: dict[tuple[str, str | None], list[int]] = {}
    for place, key in enumerate(zip(names, rows[shapes], strict=True)):
        places.setdefault(key, []).append(place)
    differences = [""] * rows.height
    read = rows.select(name if name in rows.columns else pl.lit(None).alias(name) for name in _READ)
    for (_, shape), same in places.items():
        found = _differences(read[same], recomputed) if len(same) > 1 else []
        length = _LENGTH_WITHOUT_SHAPES if shape is None else _LENGTH
        for place, text in zip(same, found, strict=False):
            differences[place] = text
            if text:
                end = f", {text}" if text[0].isalpha() else f" {text}"
                names[place] = f"{shortened(names[place], length - len(end))}{end}"
    return rows.with_columns(
        short_name=pl.Series(names, dtype=pl.String),
        difference=pl.Series(differences, dtype=pl.String),
    )


def _differences(rows: pl.DataFrame, recomputed: Collection[int]) -> list[str]:
    """Return a different text for each of several rows."""
    names, dims, strides, values, uids, directions, threads, processes = (
        rows[each].to_list() for each in _READ
    )
    calls = (
        ["recomputed" if uid in recomputed else "" for uid in uids],
        [direction or "" for direction in directions],
        [_thread(*pair) for pair in zip(threads, processes, strict=True)],
    )
    kernels = [kernel_without_operator(name) or name for name in names]
    tokens = _differing([_TOKEN.findall(name) for name in kernels])
    if kernels[0].startswith(_MANGLED) and not all(map(str.isdigit, chain(*tokens))):
        tokens = []
    layouts = [_layouts(*pair) for pair in zip(dims, strides, strict=True)]
    kinds = (
        [f"<{', '.join(items)}>" for items in tokens],
        [", ".join(dict.fromkeys(items)) for items in _differing(layouts)],
        next(filter(_varies, calls), ()),
        [f"(…, {', '.join(items)})" for items in _differing([*map(parse_tuple, values)])],
    )
    parts = [texts for texts in kinds if _varies(texts)]
    whole = [", ".join(filter(None, row)) for row in zip(*parts, strict=True)]
    fitting = [texts for texts in (*parts, whole) if max(map(len, texts), default=0) <= _MAX_LENGTH]
    texts = max(fitting, key=lambda texts: len({*texts}), default=None) or [""] * rows.height
    seen: Counter[str] = Counter()
    found = []
    for text in texts:
        seen[text] += 1
        found.append(f"{text} #{seen[text]}".strip() if seen[text] > 1 else text)
    return found


def _varies(texts: Sequence[str]) -> bool:
    return len(set(texts)) > 1


def _differing(rows: Sequence[Sequence[Any]]) -> list[list[str]]:
    """Return the items of each row that differ between rows of equal length."""
    if len({len(row) for row in rows}) > 1:
        return []
    columns = [[*map(str, items)] for items in zip(*rows, strict=True)]
    return [[*row] for row in zip(*filter(_varies, columns), strict=True)]


def _thread(name: str | None, process: str | None) -> str:
    """Return ``pt_autograd_0`` for ``thread 639 (pt_autograd_0)``; empty for the main thread, which
    has the name of the process."""
    found = _IN_PARENTHESES.search(name or "")
    own = found[1] if found else name or ""
    return "" if own == process else own


def _layouts(dims: str | None, strides: str | None) -> list[str]:
    pairs = zip(parse_tuple(dims), parse_tuple(strides), strict=False)
    return [_layout(*pair) for pair in pairs if all(isinstance(each, tuple) for each in pair)]


def _layout(sides: tuple[Any, ...], strides: tuple[Any, ...]) -> str:
    """Return the word for the layout of a tensor; empty for a list of tensors."""
    if len(sides) != len(strides) or not all(isinstance(n, int) for n in (*sides, *strides)):
        return ""
    if 0 in strides:
        return "expanded"
    known = [place for place, side in enumerate(sides) if side != 1]
    order = sorted(known, key=lambda place: -strides[place])
    dense = 1
    for place in reversed(order):
        if strides[place] != dense:
            return "strided"
        dense *= sides[place]
    if order == known:
        return "contiguous"
    is_swap = sum(a != b for a, b in zip(order, known, strict=True)) == 2
    return "transposed" if is_swap else "permuted"
