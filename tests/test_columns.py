"""Columns are named in one place, `jarvis.schemas.names`, so that mypy follows a renamed column."""

import ast
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from jarvis.schemas import ANY_PARAM, TABLES
from jarvis.schemas.names import C, Declared

JARVIS = Path(__file__).parent.parent / "jarvis"
FREE = ("schemas/names.py", "replay/runner/", "validation/")
"""The home of the names; code that runs without Jarvis; checks that must not follow a renaming."""

NAMES = {name: value for name, value in vars(C).items() if not name.startswith("_")}
NAMES |= {name: value for name, value in vars(Declared).items() if not name.startswith("_")}
COMPOUND = {name for name in NAMES if "_" in name}
"""The names that can hardly mean anything but a column."""

OF_POLARS = {"col", "struct", "coalesce", "first", "last", "sum", "max", "min", "mean", "field"}
OF_POLARS |= {"concat_str", "max_horizontal", "min_horizontal", "any_horizontal", "all_horizontal"}
OF_FRAMES = {"select", "with_columns", "agg", "group_by", "sort", "sort_by", "drop", "drop_nulls"}
OF_FRAMES |= {"unique", "explode", "unnest", "over", "partition_by", "get_column", "alias", "then"}
OF_FRAMES |= {"otherwise", "with_row_index", "top_k", "rename", "join", "join_asof"}
KEYWORDS = {"on", "left_on", "right_on", "by", "subset"}
NAMING = {"select", "with_columns", "agg", "filter", "struct"}
"""Methods whose keywords are columns."""


def declared() -> set[str]:
    columns = [column for table in TABLES.values() for column in table]
    fields = {name for column in columns for name in _fields(column.dtype)}
    return {column.name for column in columns if column.name != ANY_PARAM} | fields


def _fields(dtype: object) -> Iterator[str]:
    if isinstance(dtype, pl.List):
        yield from _fields(dtype.inner)
    elif isinstance(dtype, pl.Struct):
        yield from (field.name for field in dtype.fields)


def spelled(source: str) -> Iterator[tuple[int, str]]:
    """The compound names of columns that a module spells where Polars takes a column."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            for place in _places(node, node.func):
                yield from ((node.lineno, name) for name in _literals(place) if name in COMPOUND)
        elif isinstance(node, ast.Subscript) and _is_frame(node.value):
            yield from ((node.lineno, name) for name in _literals(node.slice) if name in COMPOUND)


def _places(call: ast.Call, function: ast.Attribute) -> Iterator[ast.expr]:
    if isinstance(function.value, ast.Name) and function.value.id == "pl":
        is_ours = function.attr in OF_POLARS
    else:
        is_ours = function.attr in OF_FRAMES
    for keyword in call.keywords:
        if keyword.arg is not None and function.attr in NAMING:
            yield ast.Constant(keyword.arg)
        if is_ours and (keyword.arg in KEYWORDS or function.attr in NAMING):
            yield keyword.value
    if is_ours:
        yield from call.args


def _is_frame(node: ast.expr) -> bool:
    """Whether it is what a method of a frame returns, as in ``frame.sort(...)["name"]``."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"select", "with_columns", "sort", "filter", "join", "unique"}
    )


def _literals(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Tuple | ast.List):
        for element in node.elts:
            yield from _literals(element)
    elif isinstance(node, ast.Dict):
        for part in (*node.keys, *node.values):
            if part is not None:
                yield from _literals(part)
    elif isinstance(node, ast.IfExp):
        yield from _literals(node.body)
        yield from _literals(node.orelse)
    elif isinstance(node, ast.Starred):
        yield from _literals(node.value)


def test_a_column_is_named_as_its_attribute() -> None:
    assert {name: name for name in NAMES} == NAMES


def test_the_declared_names_are_those_of_the_schemas() -> None:
    assert {name for name in vars(Declared) if not name.startswith("_")} == declared()


def test_a_name_is_either_declared_or_passed_between_modules() -> None:
    assert not {name for name in vars(C) if not name.startswith("_")} & declared()


@pytest.mark.parametrize(
    "source",
    [
        'pl.col("uid", "kernel_time_us")',
        'pl.struct(kernel_time_us="ms")',
        'frame.sort(["kernel_time_us", "uid"])',
        "frame.with_columns(kernel_time_us=pl.lit(1))",
        'frame.select(time="kernel_time_us")',
        'frame.join(other, on="kernel_time_us", how="left")',
        'frame.rename({"us": "kernel_time_us"})',
        'frame.sort("uid")["kernel_time_us"]',
        'pl.when("known").then("kernel_time_us")',
        'frame.group_by("uid").agg(pl.len().alias("kernel_time_us"))',
    ],
)
def test_a_spelled_column_is_found(source: str) -> None:
    assert [name for _, name in spelled(source)] == ["kernel_time_us"]


@pytest.mark.parametrize(
    "source",
    ["pl.col(C.kernel_time_us)", 'entry["kernel_time_us"]', '{"kernel_time_us": row[C.uid]}'],
)
def test_keys_of_results_are_no_columns(source: str) -> None:
    assert not list(spelled(source))


def test_modules_take_columns_from_their_home() -> None:
    found = [
        f"{path.relative_to(JARVIS)}:{line}: {name}"
        for path in sorted(JARVIS.rglob("*.py"))
        if not path.relative_to(JARVIS).as_posix().startswith(FREE)
        for line, name in spelled(path.read_text(encoding="utf-8"))
    ]
    assert not found, "write C.<name> of jarvis/schemas/names.py:\n" + "\n".join(found)
