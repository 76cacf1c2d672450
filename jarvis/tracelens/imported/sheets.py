"""Convert labeled sheets of a report to our column names and types."""

import ast
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from jarvis.core.errors import NotAReportError
from jarvis.core.workspace import is_file_name
from jarvis.schemas import ANY_PARAM, PARAM_PREFIX, Column, column, columns, conform, label
from jarvis.schemas.names import C
from jarvis.tracelens.overlap import OVERLAP_SUFFIX
from jarvis.tracelens.sheets import schema_of

TIMELINE, UNIFIED, OPS_SUMMARY = "gpu_timeline", "unified_perf_summary", "ops_summary"
OPS_UNIQUE_ARGS, KERNEL_SUMMARY = "ops_unique_args", "kernel_summary"
_SHEETS = (
    TIMELINE,
    "ops_summary_by_category",
    OPS_SUMMARY,
    OPS_UNIQUE_ARGS,
    UNIFIED,
    KERNEL_SUMMARY,
    "short_kernel_histogram",
    "short_kernels_summary",
    "coll_analysis",
)
"""The sheets that are read; roofline sheets of any family are added."""

_ESSENTIAL = {
    TIMELINE: (C.type, C.time_ms),
    UNIFIED: (C.name, C.operation_count, C.kernel_time_us_sum),
    OPS_SUMMARY: (C.name, C.direct_kernel_time_us, C.count),
    KERNEL_SUMMARY: (C.kernel_name, C.dur_us_sum, C.dur_us_count),
}
"""Required columns of sheets."""

_ROOFLINE_MARK = label("roofline", C.name_count)
_PARAMETER = label("roofline", ANY_PARAM).removesuffix("*")
MAX_NUMBER = 2.0**63
"""Exclusive limit of counts and times in a report."""

SHARE_PCT = 1.0
"""Tolerance of a percentage in a timeline, in percentage points."""

_ROUNDING = 1e-3

IDLE = "idle_time"
"""Suffix of the names of idle time, which may be split by length."""
_PARTS = (
    *(("computation_time",), ("exposed_comm_time",), ("exposed_memcpy_time",), ("busy_time",)),
    *(("idle_time", "micro_idle_time"), ("total_time",)),
)
"""Required rows of a timeline, each with alternatives: with a threshold, idle time is split."""

_NUMPY_NUMBER = re.compile(r"np\.\w+\(([^()]*)\)")
_NO_NUMBER = re.compile(r"\b(nan|inf)\b")


def typed_sheets(labeled: Mapping[str, pl.DataFrame], path: Path) -> dict[str, pl.DataFrame]:
    """Return the sheets that our schemas know, in report order; others and their columns are
    dropped.

    Missing columns are null, as are lists that are not Python text (workbooks truncate long cells).

    Args:
        labeled: Sheets by name, with labels as column names.
        path: Path of the report, for messages.

    Raises:
        NotAReportError: The timeline or a required column is missing, or the name of a sheet is not
            a valid file name.
    """
    for name in labeled:
        if not is_file_name(name):
            raise NotAReportError(path, f"the sheet name {name[:40]!r} is not a valid file name")
    sheets = {
        name: _typed(frame, name, path) for name, frame in labeled.items() if _is_read(name, frame)
    }
    if TIMELINE not in sheets or sheets[TIMELINE].is_empty():
        raise NotAReportError(path, f"it has no sheet {TIMELINE} with rows")
    _check_timeline(sheets[TIMELINE], path)
    return {name: sheets[name] for name in sorted(sheets, key=_place)}


def _check_timeline(rows: pl.DataFrame, path: Path) -> None:
    """Raise NotAReportError if parts are missing or repeated, or do not add up to the total."""
    given = set(rows[C.type])
    if missing := [" or ".join(names) for names in _PARTS if given.isdisjoint(names)]:
        raise NotAReportError(path, f"its sheet {TIMELINE} has no row {', '.join(missing)}")
    for _, table in rows.with_columns(table=pl.int_range(pl.len()).over(C.type)).group_by("table"):
        if missing := sorted(given.difference(table[C.type])):
            repeated = ", ".join(table[C.type].unique().sort())[:80]
            raise NotAReportError(
                path,
                f"its sheet {TIMELINE} has {repeated} more often than {', '.join(missing)}",
            )
        total_ms = float(table.filter(pl.col(C.type) == "total_time")[C.time_ms].sum())
        share = 100 * pl.col(C.time_ms) / total_ms
        is_part = pl.col(C.time_ms).is_between(0, total_ms * (1 + _ROUNDING))
        is_share = pl.col(C.percent).is_null() | ((pl.col(C.percent) - share).abs() <= SHARE_PCT)
        wrong = table.filter(~is_part | ~is_share if total_ms > 0 else pl.col(C.time_ms) != 0)
        for row in wrong.iter_rows(named=True):
            raise NotAReportError(
                path,
                f"in its sheet {TIMELINE}, {row[C.type][:40]!r} takes {row[C.time_ms]:g} ms of "
                f"{total_ms:g} ms, but its percentage is {row[C.percent]}%",
            )
        is_busy_or_idle = (pl.col(C.type) == "busy_time") | pl.col(C.type).str.ends_with(IDLE)
        sum_ms = float(table.filter(is_busy_or_idle)[C.time_ms].sum())
        if abs(sum_ms - total_ms) > total_ms * _ROUNDING:
            raise NotAReportError(
                path,
                f"in its sheet {TIMELINE}, busy and idle time add up to {sum_ms:g} ms, but the "
                f"total is {total_ms:g} ms",
            )


def _place(sheet: str) -> int:
    """Return the position of a sheet in a report; roofline sheets follow the unified one."""
    return _SHEETS.index(sheet if sheet in _SHEETS else UNIFIED)


def _is_read(name: str, frame: pl.DataFrame) -> bool:
    if name in _SHEETS:
        return True
    is_known = schema_of(name) != "roofline" or name.endswith(OVERLAP_SUFFIX)
    return _ROOFLINE_MARK in frame.columns and not is_known


def _typed(frame: pl.DataFrame, sheet: str, path: Path) -> pl.DataFrame:
    schema = schema_of(sheet)
    by_label = {c.label: c for c in columns(schema) if c.name != ANY_PARAM}
    by_label |= {c: _parameter(c) for c in frame.columns if c.startswith(_PARAMETER)}
    present = {name for name in frame.columns if name in by_label}
    essential = {label(schema, name) for name in _ESSENTIAL.get(sheet, ())}
    if missing := sorted(essential - present):
        raise NotAReportError(path, f"its sheet {sheet} has no column {' and '.join(missing)}")
    taken = [
        frame[name].alias(by_label[name].name)
        if name.startswith(_PARAMETER)
        else _cells(frame[name], by_label[name])
        for name in frame.columns
        if name in present
    ]
    absent = (c for c in by_label.values() if c.label not in present and not c.optional)
    nulls = [pl.lit(None, c.dtype).alias(c.name) for c in absent]
    rows = conform(pl.DataFrame(taken).with_columns(nulls), schema)
    needed = rows.select(_ESSENTIAL.get(sheet, ()))
    is_counted = [pl.col(name) > 0 for name, dtype in needed.schema.items() if dtype.is_integer()]
    return _completed(rows.drop_nulls(needed.columns).filter(True, *is_counted), sheet)


def _completed(rows: pl.DataFrame, sheet: str) -> pl.DataFrame:
    """Fill in percentages of a timeline and unique ids of unified rows."""
    if sheet == TIMELINE:
        total_ms = rows.filter(pl.col(C.type) == "total_time")[C.time_ms].max()
        if isinstance(total_ms, float) and total_ms > 0:
            share = 100 * pl.col(C.time_ms) / total_ms
            return rows.with_columns(pl.coalesce(C.percent, share).alias(C.percent))
    uids = rows[C.ex_uid] if sheet == UNIFIED else pl.Series([0])
    if uids.null_count() or uids.is_duplicated().any():
        return rows.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(C.ex_uid))
    return rows


def _parameter(label_of: str) -> Column:
    return column("roofline", PARAM_PREFIX + label_of.removeprefix(_PARAMETER))


def _cells(cells: pl.Series, to: Column) -> pl.Series:
    if isinstance(to.dtype, pl.List):
        values = [typed(literal(cell), to.dtype) for cell in cells.cast(pl.String)]
        return pl.Series(to.name, values, to.dtype)
    if to.dtype == pl.Boolean:
        truth = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}
        words = cells.cast(pl.String).str.to_lowercase()
        return words.replace_strict(truth, default=None, return_dtype=pl.Boolean).alias(to.name)
    if to.dtype.is_float():
        numbers = cells.cast(to.dtype, strict=False)
        return numbers.set(~numbers.is_finite(), None).alias(to.name)
    return cells.cast(to.dtype, strict=False).alias(to.name)


def typed(value: Any, dtype: Any) -> Any:
    """Return a parsed value if it has this type, including entries of a list, else None."""
    if isinstance(dtype, pl.List):
        if not isinstance(value, list | tuple):
            return None
        entries = [typed(entry, dtype.inner) for entry in value]
        return None if None in entries else entries
    if isinstance(dtype, pl.Struct):
        if not isinstance(value, dict):
            return None
        fields = {field.name: typed(value.get(field.name), field.dtype) for field in dtype.fields}
        return fields if isinstance(fields.get("name"), str) else None
    if dtype == pl.String:
        return value if isinstance(value, str) and _is_unicode(value) else None
    return _number(value, dtype)


def _number(value: Any, dtype: pl.DataType) -> int | float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not abs(value) < MAX_NUMBER:  # nor NaN
        return None
    return int(value) if dtype.is_integer() else float(value)


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def literal(text: str | None) -> Any:
    """Parse a cell with a Python literal; None if it is empty or not a literal.

    NumPy numbers become plain ones, nan and inf become None.
    """
    if text is None:
        return None
    plain = _NUMPY_NUMBER.sub(r"\1", text)
    for spelled in (plain, _NO_NUMBER.sub("None", plain)):
        try:
            return ast.literal_eval(spelled)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
    return None
