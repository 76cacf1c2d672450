"""Sheets of a report under their labels -> the same sheets under our column names and types."""

import ast
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from jarvis.core.errors import NotAReportError
from jarvis.core.workspace import is_file_name
from jarvis.schemas import ANY_PARAM, PARAM_PREFIX, Column, column, columns, conform, label
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
"""The sheets that are taken; roofline sheets, of whatever family, come on top."""

_ESSENTIAL = {
    TIMELINE: ("type", "time_ms"),
    UNIFIED: ("name", "operation_count", "kernel_time_us_sum"),
    OPS_SUMMARY: ("name", "direct_kernel_time_us", "count"),
    KERNEL_SUMMARY: ("kernel_name", "dur_us_sum", "dur_us_count"),
}
"""Columns without which a sheet says nothing."""

_ROOFLINE_MARK = label("roofline", "name_count")
_PARAMETER = label("roofline", ANY_PARAM).removesuffix("*")
MAX_NUMBER = 2.0**63
"""Counts and times of a report are below it."""

SHARE_PCT = 1.0
"""A share that a timeline gives is that of its times within so many points."""

_ROUNDING = 1e-3

IDLE = "idle_time"
"""End of the names of idle time, which may be split by length."""
_PARTS = (
    *(("computation_time",), ("exposed_comm_time",), ("exposed_memcpy_time",), ("busy_time",)),
    *(("idle_time", "micro_idle_time"), ("total_time",)),
)
"""Rows that every timeline has; with a threshold, idle time is in two."""

_NUMPY_NUMBER = re.compile(r"np\.\w+\(([^()]*)\)")
_NO_NUMBER = re.compile(r"\b(nan|inf)\b")


def typed_sheets(labeled: Mapping[str, pl.DataFrame], path: Path) -> dict[str, pl.DataFrame]:
    """The sheets that our schemas know, in report order; other sheets and columns are left out.

    ``path`` is what they were read from. A column that a sheet lacks is null, also a list that is
    no Python text (a workbook cuts long cells). Raises NotAReportError where the timeline is
    missing, or what every row needs, and where a sheet has a name that no file can have.
    """
    for name in labeled:
        if not is_file_name(name):
            raise NotAReportError(path, f"no file can be named like its sheet {name[:40]!r}")
    found = {
        name: _typed(frame, name, path) for name, frame in labeled.items() if _is_taken(name, frame)
    }
    if TIMELINE not in found or found[TIMELINE].is_empty():
        raise NotAReportError(path, f"it has no sheet {TIMELINE} with rows")
    _check_timeline(found[TIMELINE], path)
    return {name: found[name] for name in sorted(found, key=_place)}


def _check_timeline(rows: pl.DataFrame, path: Path) -> None:
    """Refuse a timeline that lacks or repeats a part, or whose parts do not fit its total."""
    given = set(rows["type"])
    if missing := [" or ".join(names) for names in _PARTS if given.isdisjoint(names)]:
        raise NotAReportError(path, f"its sheet {TIMELINE} has no row {', '.join(missing)}")
    for _, table in rows.with_columns(table=pl.int_range(pl.len()).over("type")).group_by("table"):
        if lacking := sorted(given.difference(table["type"])):
            once_more = ", ".join(table["type"].unique().sort())[:80]
            raise NotAReportError(
                path, f"its sheet {TIMELINE} has {once_more} once more than {', '.join(lacking)}"
            )
        total_ms = float(table.filter(type="total_time")["time_ms"].sum())
        share = 100 * pl.col("time_ms") / total_ms
        is_part = pl.col("time_ms").is_between(0, total_ms * (1 + _ROUNDING))
        is_share = pl.col("percent").is_null() | ((pl.col("percent") - share).abs() <= SHARE_PCT)
        wrong = table.filter(~is_part | ~is_share if total_ms > 0 else pl.col("time_ms") != 0)
        for row in wrong.iter_rows(named=True):
            raise NotAReportError(
                path,
                f"in its sheet {TIMELINE}, {row['type'][:40]!r} takes {row['time_ms']:g} ms of "
                f"{total_ms:g} ms, which the sheet gives as {row['percent']}%",
            )
        is_busy_or_idle = (pl.col("type") == "busy_time") | pl.col("type").str.ends_with(IDLE)
        together_ms = float(table.filter(is_busy_or_idle)["time_ms"].sum())
        if abs(together_ms - total_ms) > total_ms * _ROUNDING:
            raise NotAReportError(
                path,
                f"in its sheet {TIMELINE}, busy and idle time are {together_ms:g} ms together, "
                f"the total is {total_ms:g} ms",
            )


def _place(sheet: str) -> int:
    """Where a sheet stands among those of a report; roofline sheets follow the unified one."""
    return _SHEETS.index(sheet if sheet in _SHEETS else UNIFIED)


def _is_taken(name: str, frame: pl.DataFrame) -> bool:
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
    """Rows with what follows from the others, or only tells them apart."""
    if sheet == TIMELINE:
        total_ms = rows.filter(type="total_time")["time_ms"].max()
        if isinstance(total_ms, float) and total_ms > 0:
            share = 100 * pl.col("time_ms") / total_ms
            return rows.with_columns(percent=pl.coalesce("percent", share))
    uids = rows["ex_uid"] if sheet == UNIFIED else pl.Series([0])
    if uids.null_count() or uids.is_duplicated().any():
        return rows.with_columns(ex_uid=pl.int_range(pl.len(), dtype=pl.Int64))
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
    """Return a parsed value of a type; None where it, or an entry of a list, is of another one."""
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
    """A nested value that a cell spells as Python does, numpy's numbers as plain ones, what is no
    number as None; None where the cell is empty or not such a text."""
    if text is None:
        return None
    plain = _NUMPY_NUMBER.sub(r"\1", text)
    for spelled in (plain, _NO_NUMBER.sub("None", plain)):
        try:
            return ast.literal_eval(spelled)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
    return None
