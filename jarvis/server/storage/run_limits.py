"""Limits of a run directory from outside: files, JSON documents and tables.

All limits are here. A trace of 1 GB of JSON makes a run of some 0.07 GB whose tables take 0.6 GB in
memory; the largest recorded trace of the tests one of 5 MB and 11 MB.
"""

import re
from ast import literal_eval
from collections.abc import Iterable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from jarvis.core.errors import JarvisError
from jarvis.core.workspace import RunPaths
from jarvis.schemas import (
    ANY_PARAM,
    FLAG,
    INTEGER,
    KERNEL_STATS,
    KERNELS,
    NAMES,
    NUMBER,
    PARAM_PREFIX,
    TEXT,
    UIDS,
    Column,
)

MAX_RUN_BYTES = 512 << 20
"""All files of a run together, unpacked."""

MAX_FILES = 10_000

MAX_TEXT_BYTES = 64 << 20
"""One file that is read as a whole: JSON, Markdown, CSV."""

MAX_MANIFEST_BYTES = 4 << 20
"""The manifest is copied into the database, and parsed for each list of analyses."""

MAX_JSON_DEPTH = 64
MAX_NUMBER = 1e30
"""Sums and products of two such numbers are still finite."""

MAX_TABLES = 500
MAX_COLUMNS = 1_000
MAX_ROW_GROUPS = 10_000
MAX_ROWS = 10_000_000
MAX_ROWS_OF = {
    "trace_health": 1_000,
    "gpu_timeline": 1_000,
    "other_definitions": 1_000,
    "ops_summary_by_category": 10_000,
    "short_kernel_histogram": 10_000,
    "top_operations": 1_000,
}
"""Tables of facts that do not grow with the trace; pages show each of their rows."""

MAX_DECODED_BYTES = 2 << 30
"""All tables of a run together, as they are in memory."""

_MANIFEST = RunPaths(Path()).manifest.name
_READ_WHOLE = (".json", ".md", ".csv")
_DTYPES = (INTEGER, TEXT, FLAG, NUMBER, NAMES, UIDS, KERNELS, KERNEL_STATS)
_SEQUENCES = {
    "input_dims": int,
    "input_strides": int,
    "product_dims": int,
    "input_types": str,
    "product_types": str,
    "concrete_inputs": str,
}
"""Columns of Python sequences, and of what; shapes are sequences in sequences."""

_MAPPINGS = ("params", "perf_params")
"""Columns of Python or JSON dictionaries."""

_MAX_LITERAL_LETTERS = 1_000_000

_EXTRA_COLUMN = re.compile(r"[a-z][a-z0-9_]{0,99}")
_TEXT_BYTES = 16
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8}
"""Bytes of a value in memory by its physical type in a parquet file; a text takes 16 and itself."""


class RunLimitError(JarvisError):
    """A run directory is not accepted; the message is the reason, without the run's name."""


def check_file_sizes(sizes: Iterable[tuple[str, int]]) -> None:
    """Raise RunLimitError for too many files, or too large ones; names are relative paths."""
    total = 0
    for number, (name, size) in enumerate(sizes, start=1):
        total += size
        limit = MAX_MANIFEST_BYTES if name == _MANIFEST else MAX_TEXT_BYTES
        if name.endswith(_READ_WHOLE) and size > limit:
            raise RunLimitError(f"{name} in it is larger than {limit >> 20} MiB")
        if number > MAX_FILES:
            raise RunLimitError(f"it has more than {MAX_FILES:,} files")
    if total > MAX_RUN_BYTES:
        raise RunLimitError(f"its files take more than {MAX_RUN_BYTES >> 20} MiB")


def check_json(path: Path, name: str) -> None:
    """Raise RunLimitError where a file is not strict JSON, or too deep, or has a huge number."""
    try:
        content = orjson.loads(path.read_bytes())
    except ValueError as error:
        raise RunLimitError(f"{name} in it is not JSON") from error
    level: list[Any] = [content]
    for _ in range(MAX_JSON_DEPTH):
        if not level:
            return
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += value.values()
            elif isinstance(value, list):
                below += value
            elif isinstance(value, int | float) and not -MAX_NUMBER <= value <= MAX_NUMBER:
                raise RunLimitError(f"{name} in it has the number {value:.3g}")
        level = below
    raise RunLimitError(f"{name} in it has more than {MAX_JSON_DEPTH} levels")


def read_table(
    path: Path, name: str, columns: Iterable[Column], max_bytes: int
) -> tuple[pl.DataFrame, int]:
    """Read a table that takes at most ``max_bytes`` in memory; give it and its bytes.

    The parquet footer is checked before anything is decoded, and what was decoded against it.
    Raises RunLimitError, and what Polars raises for a damaged file.
    """
    rows = _check_footer(path, name, max_bytes)
    _check_schema(pl.read_parquet_schema(path), name, columns)
    frame = pl.read_parquet(path, use_statistics=False, glob=False)
    if frame.height != rows:
        raise RunLimitError(f"the table {name} has not the rows that its footer says")
    size = sum(memory_bytes(column, name) for column in frame)
    if size > max_bytes:
        raise _too_large()
    literals = [c for c in (*_SEQUENCES, *_MAPPINGS) if frame.schema.get(c) == TEXT]
    for column in frame.select(literals):
        if not all(_is_readable(column.name, text) for text in column.drop_nulls().unique()):
            raise RunLimitError(f"the table {name} has unreadable {column.name}")
    return frame, size


def _is_readable(column: str, text: str) -> bool:
    """Whether a text is the literal that its column has."""
    if not text:
        return True
    if len(text) > _MAX_LITERAL_LETTERS:
        return False
    if column in _MAPPINGS:
        return isinstance(_value(text), dict)
    value, leaf = _value(text), _SEQUENCES[column]
    if not isinstance(value, tuple | list):
        return False
    return all(_is_of(item, leaf) and (leaf is str or type(item) is not leaf) for item in value)


def _value(text: str) -> object:
    """The value of a Python literal, or of a JSON document; None for other texts."""
    try:
        return literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        pass
    try:
        return orjson.loads(text)
    except ValueError:
        return None


def _is_of(value: object, leaf: type) -> bool:
    """Whether a value is of a type, or a sequence of such."""
    if isinstance(value, tuple | list):
        return all(_is_of(item, leaf) for item in value)
    return type(value) is leaf


def _too_large() -> RunLimitError:
    return RunLimitError(f"its tables take more than {MAX_DECODED_BYTES >> 20:,} MiB in memory")


def _check_footer(path: Path, name: str, max_bytes: int) -> int:
    """The rows of a table, once its footer says that it can be read."""
    import pyarrow as pa  # type: ignore[import-untyped]  # slow to import
    from pyarrow import parquet

    try:
        footer = parquet.read_metadata(path)
        groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    except (pa.ArrowException, OSError, ValueError) as error:
        raise RunLimitError(f"the table {name} cannot be read") from error
    rows = footer.num_rows
    limit = MAX_ROWS_OF.get(name, MAX_ROWS)
    if rows > limit:
        raise RunLimitError(f"the table {name} has more than {limit:,} rows")
    if footer.num_columns > MAX_COLUMNS or len(groups) > MAX_ROW_GROUPS:
        raise RunLimitError(f"the table {name} has more than {MAX_COLUMNS:,} columns or groups")
    if sum(group.num_rows for group in groups) != rows:
        raise RunLimitError(f"the footer of the table {name} contradicts itself")
    size = 0
    for group in groups:
        chunks = [group.column(index) for index in range(group.num_columns)]
        if any(min(c.num_values, c.total_uncompressed_size) < 0 for c in chunks):
            raise RunLimitError(f"the footer of the table {name} contradicts itself")
        size += sum(
            max(c.num_values * _WIDTHS.get(c.physical_type, _TEXT_BYTES), c.total_uncompressed_size)
            for c in chunks
        )
        if size > max_bytes:
            raise _too_large()
    return int(rows)


def _check_schema(found: Mapping[str, pl.DataType], name: str, columns: Iterable[Column]) -> None:
    """Raise RunLimitError where a table is not as ``columns`` say; it may have more of them."""
    known = {column.name: column for column in columns}
    has_parameters = known.pop(ANY_PARAM, None) is not None
    for column in known.values():
        if column.name not in found and not column.optional:
            raise RunLimitError(f"the table {name} lacks the column {column.name}")
    for label, dtype in found.items():
        if label in known:
            is_fine = dtype == known[label].dtype
        else:
            is_parameter = has_parameters and label.startswith(PARAM_PREFIX)
            is_named = is_parameter or _EXTRA_COLUMN.fullmatch(label) is not None
            is_fine = _is_allowed(dtype) and is_named
        if not is_fine:
            raise RunLimitError(f"the table {name} has a column {label[:40]!r} of another type")


def _is_allowed(dtype: Any) -> bool:
    """Whether a category's own column may have this type; messages are structs."""
    if isinstance(dtype, pl.List):
        return _is_allowed(dtype.inner)
    if isinstance(dtype, pl.Struct):
        return all(_is_allowed(field.dtype) for field in dtype.fields)
    return dtype in _DTYPES or dtype.is_integer() or dtype.is_float()


def memory_bytes(column: pl.Series, table: str) -> int:
    """The bytes of a column in memory, equal texts counted each; RunLimitError for NaN and such."""
    if isinstance(column.dtype, pl.List):
        inner = column.explode(empty_as_null=False, keep_nulls=False)
        return 8 * len(column) + memory_bytes(inner, table)
    if isinstance(column.dtype, pl.Struct):
        return sum(memory_bytes(field, table) for field in column.struct.unnest())
    if column.dtype == TEXT:
        return _TEXT_BYTES * len(column) + int(column.str.len_bytes().cast(INTEGER).sum())
    if column.dtype.is_float():
        extremes = (column.min(), column.max(), column.is_nan().any())
        low, high, has_nan = extremes
        numbers = [value for value in (low, high) if isinstance(value, float)]
        if has_nan or any(not isfinite(v) or abs(v) > MAX_NUMBER for v in numbers):
            raise RunLimitError(f"the table {table} has a number that is none, or too large")
    return 8 * len(column)
