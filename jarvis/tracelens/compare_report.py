"""Compare reports sheet by sheet, with the names of TraceLens's compare report.

The first report is the baseline. Rows match by the key columns of their sheet, and each row is in
the result exactly once: rows with equal keys are matched by additional columns, then by order.
"""

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from jarvis.core.errors import NotComparableError
from jarvis.tracelens.options import ALL, GROUPS
from jarvis.tracelens.overlap import OVERLAP_SUFFIX

BASELINE, VARIANT, INTERSECT = "only_baseline", "only_variant", "intersect"
_PARAMETER = "param: "
_ROOFLINE_MARK = "name_count"
"""A column that only roofline sheets have."""

SHORT_NAMES = {"UnaryElementwise": "un_eltwise", "BinaryElementwise": "bin_eltwise"}
"""Shorter names of compared roofline sheets."""

OPS_ALL_ALIAS = "ops_all_intersect_{}"
"""Former name of the sheet of operations in both reports, which tools still read."""

_PLACE = "#"
"""Name, unused by sheets, of the column that numbers rows with equal keys."""


@dataclass(frozen=True, slots=True)
class NamedReport:
    """A report to compare: the ``label`` of its columns, and its sheets by name."""

    label: str
    sheets: Mapping[str, pl.DataFrame]


@dataclass(frozen=True, slots=True)
class _Layout:
    """Comparison settings of a sheet.

    Rows match by ``keys``, rows with equal keys by ``finer``, most significant column first.
    ``compared`` columns get differences; the first of them shows whether a report has the row.
    """

    keys: tuple[str, ...]
    compared: tuple[str, ...]
    finer: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    dropped_beside_baseline: tuple[str, ...] = ()
    sort: str | None = None


_CALL = ("name", "Input type", "Input Dims", "Input Strides", "Concrete Inputs")
_FINER_CALL = ("op category", "thread_name", "process_name", "is_recompute")
_LAUNCHER_TIME, _KERNEL_TIME = "total_direct_kernel_time", "Kernel Time (µs)"
_KERNEL_DURATION = "Kernel duration (µs)"
_OPS = _Layout(
    _CALL,
    (f"{_LAUNCHER_TIME}_sum", f"{_LAUNCHER_TIME}_mean", "operation_count"),
    _FINER_CALL,
)
_LAYOUTS = {
    "gpu_timeline": _Layout(("type",), ("time ms",), ("is_recompute",)),
    "ops_summary": _Layout(
        ("name",),
        (f"{_LAUNCHER_TIME}_ms", "Count"),
        ("is_recompute",),
        dropped=(f"{_LAUNCHER_TIME}_sum",),
        dropped_beside_baseline=("Cumulative Percentage (%)",),
        sort=f"{_LAUNCHER_TIME}_ms",
    ),
    "kernel_summary": _Layout(
        ("Kernel name",),
        tuple(f"{_KERNEL_DURATION}_{statistic}" for statistic in ("sum", "mean", "count")),
        ("Parent cpu_op", "Kernel stream"),
        dropped=(f"{_KERNEL_DURATION}_min", f"{_KERNEL_DURATION}_max", "Parent op category"),
        sort=f"{_KERNEL_DURATION}_sum",
    ),
    "ops_all": _OPS,
    "ops_unique_args": _OPS,
    "unified_perf_summary": _Layout(
        _CALL,
        (f"{_KERNEL_TIME}_sum", f"{_KERNEL_TIME}_mean", "operation_count"),
        _FINER_CALL,
    ),
}
_OPS_ALL = ("ops_all", "ops_unique_args", "unified_perf_summary")
_ARGUMENTS_FIRST = (
    "Input type_first",
    "Input Dims_first",
    "Input Strides_first",
    "Concrete Inputs_first",
)
_ROOFLINE_DROPPED = (
    "GFLOPS_first",
    "Data Moved (MB)_first",
    "FLOPS/Byte_first",
    *_ARGUMENTS_FIRST,
)
_ROOFLINE_COMPARED = (
    f"{_KERNEL_TIME}_sum",
    f"{_KERNEL_TIME}_mean",
    _ROOFLINE_MARK,
    "TFLOPS/s_mean",
    "TB/s_mean",
)
_HIDDEN_ENDINGS = (
    *("kernel_names", "kernel_names_first", "median", "std", "min", "max", "UID"),
    *_ARGUMENTS_FIRST,
)


def compare_reports(
    reports: Sequence[NamedReport], groups: Sequence[str] = (ALL,)
) -> dict[str, pl.DataFrame]:
    """Return the sheets of a compare report by name; columns have the prefix ``<label>::``.

    For each compared column of each report there is the difference to the baseline, and that in
    percent of the baseline, null if it is 0 or missing.

    Args:
        groups: Names from GROUPS, or ALL for those that every report has.

    Raises:
        NotComparableError: There are fewer than two reports, labels are not unique, or a group does
            not exist or is missing in a report.
    """
    labels = [report.label for report in reports]
    if len(reports) < 2:
        raise NotComparableError("there must be at least two reports")
    if len(set(labels)) < len(labels) or any("::" in label for label in labels):
        raise NotComparableError(
            f"each report needs a unique name without '::', but these are {', '.join(labels)}"
        )
    if unknown := [group for group in groups if group not in (*GROUPS, ALL)]:
        known = ", ".join((*GROUPS, ALL))
        raise NotComparableError(f"there are no sheets {unknown[0]!r}; choose from {known}")
    sheets: dict[str, pl.DataFrame] = {}
    for group in GROUPS:
        if group in groups or (ALL in groups and not reports_without(reports, group)):
            sheets |= _group(reports, group)
    return sheets


def reports_without(reports: Sequence[NamedReport], group: str) -> list[str]:
    """Return the labels of the reports without a sheet of a group."""
    return [report.label for report in reports if not _sheets_of(report, group)]


def hidden_columns(columns: Collection[str]) -> list[str]:
    """Return the columns that a workbook hides: spreads, positions, examples."""
    return [c for c in columns if "::" in c and c.endswith(_HIDDEN_ENDINGS)]


def _sheets_of(report: NamedReport, group: str) -> list[str]:
    """Return the sheets of a report that belong to a group, in its order."""
    if group == "roofline":
        return [
            name
            for name, frame in report.sheets.items()
            if _ROOFLINE_MARK in frame.columns and not name.endswith(OVERLAP_SUFFIX)
        ]
    wanted = _OPS_ALL if group == "ops_all" else (group,)
    return [
        name
        for name in wanted
        if name in report.sheets and {*_LAYOUTS[name].keys} <= {*report.sheets[name].columns}
    ]


def _group(reports: Sequence[NamedReport], group: str) -> dict[str, pl.DataFrame]:
    if group == "roofline":
        return _roofline(reports)
    if without := reports_without(reports, group):
        raise NotComparableError(
            f"there is no sheet {group} in {' and '.join(without)}; omit {group} from the sheets, "
            "or create the report with it"
        )
    if group != "ops_all":
        joined = _difference([_table(r, group, _LAYOUTS[group]) for r in reports], reports)
        return {group: _sorted(joined, _LAYOUTS[group].sort, reports[0].label)}
    sheets: dict[str, pl.DataFrame] = {}
    for name in (n for n in _OPS_ALL if all(n in _sheets_of(r, group) for r in reports)):
        joined = _difference([_table(r, name, _LAYOUTS[name]) for r in reports], reports)
        sheets |= _split(joined, name, _LAYOUTS[name], reports)
    for report in reports[1:]:
        source, alias = f"ops_unique_args_{INTERSECT}_{report.label}", OPS_ALL_ALIAS
        if source in sheets:
            sheets.setdefault(alias.format(report.label), sheets[source])
    return sheets


def _roofline(reports: Sequence[NamedReport]) -> dict[str, pl.DataFrame]:
    """Compare every roofline sheet that any report has."""
    sheets: dict[str, pl.DataFrame] = {}
    for name in dict.fromkeys(n for report in reports for n in _sheets_of(report, "roofline")):
        having = [report.sheets[name] for report in reports if name in report.sheets]
        common = set.intersection(*({*frame.columns} for frame in having))
        layout = _Layout(
            ("name", *sorted(c for c in common if c.startswith(_PARAMETER))),
            _ROOFLINE_COMPARED,
            ("is_recompute",),
            dropped_beside_baseline=_ROOFLINE_DROPPED,
        )
        joined = _difference([_table(r, name, layout) for r in reports], reports)
        sheets |= _split(joined, SHORT_NAMES.get(name, name), layout, reports)
    return sheets


@dataclass(frozen=True, slots=True)
class _Table:
    """A sheet of one report without dropped columns, with its layout and keys."""

    frame: pl.DataFrame
    layout: _Layout
    keys: list[tuple[str, ...]]
    finer: list[tuple[str, ...]]


def _table(report: NamedReport, name: str, layout: _Layout) -> _Table:
    empty = pl.DataFrame(schema=dict.fromkeys((*layout.keys, *layout.compared), pl.String))
    frame = report.sheets.get(name, empty).drop(layout.dropped, strict=False)
    finer = [c for c in layout.finer if c in frame.columns]
    return _Table(frame, layout, _texts(frame, layout.keys), _texts(frame, finer))


def _texts(frame: pl.DataFrame, names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the cells of some columns of each row as normalized texts."""
    columns = [[_text(cell) for cell in frame[name].to_list()] for name in names]
    return list(zip(*columns, strict=True)) if columns else [()] * frame.height


def _text(cell: object) -> str:
    """Normalize a cell: numbers with 15 significant digits, nested values with tuples."""
    if isinstance(cell, bool) or cell is None:
        return "" if cell is None else str(cell)
    if isinstance(cell, int | float):
        return f"{float(cell):.15g}"
    text = str(cell)
    try:
        value = ast.literal_eval(text) if text[:1] in ("[", "(") else float(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return f"{value:.15g}" if isinstance(value, float) else repr(_tuples(value))


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


def _places(tables: Sequence[_Table]) -> Iterator[list[int]]:
    """Yield for each table the number of each row among the rows with its key.

    Rows of two tables with equal key and number match.
    """
    known: dict[tuple[str, ...], list[tuple[str, ...]]] = defaultdict(list)
    for table in tables:
        rows_by_key: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for row, key in enumerate(table.keys):
            rows_by_key[key].append(row)
        places = [0] * len(table.keys)
        for key, rows in rows_by_key.items():
            taken = _matched(known[key], [table.finer[row] for row in rows])
            for row, place in zip(rows, taken, strict=True):
                places[row] = place
        yield places


def _matched(known: list[tuple[str, ...]], rows: Sequence[tuple[str, ...]]) -> list[int]:
    """Return for each of ``rows`` the index of the ``known`` row with the longest equal prefix of
    cells; rows without a match are appended to ``known``."""
    free, taken = list(range(len(known))), dict[int, int]()
    for length in range(max(map(len, (*rows, *known)), default=0), -1, -1):
        for number, cells in enumerate(rows):
            equal = (place for place in free if known[place][:length] == cells[:length])
            place = None if number in taken else next(equal, None)
            if place is not None:
                taken[number] = place
                free.remove(place)
    for number, cells in enumerate(rows):
        if number not in taken:
            taken[number] = len(known)
            known.append(cells)
    return [taken[number] for number in range(len(rows))]


def _difference(tables: Sequence[_Table], reports: Sequence[NamedReport]) -> pl.DataFrame:
    """Join all rows of the tables: keys, differences, then each report's columns."""
    layout, baseline = tables[0].layout, reports[0].label
    keys = [f"{_PLACE}{key}" for key in layout.keys]
    joined: pl.DataFrame | None = None
    for table, places, report in zip(tables, _places(tables), reports, strict=True):
        dropped = () if report.label == baseline else layout.dropped_beside_baseline
        rows = table.frame.drop(dropped, strict=False)
        shown = [c for c in rows.columns if c not in layout.keys]
        rows = rows.select(
            *(
                pl.Series(k, cells, dtype=pl.String)
                for k, cells in zip(keys, _columns(table), strict=True)
            ),
            pl.Series(_PLACE, places, dtype=pl.Int64),
            *(pl.col(k).alias(f"{report.label}{_PLACE}{k}") for k in layout.keys),
            *(pl.col(c).alias(f"{report.label}::{c}") for c in shown),
        )
        on = [*keys, _PLACE]
        joined = rows if joined is None else joined.join(rows, on=on, how="full", coalesce=True)
    assert joined is not None
    return joined.sort(*keys, _PLACE).select(
        *(_key(k, reports, joined) for k in layout.keys),
        *(d for c in layout.compared for d in _differences(c, reports, joined.columns)),
        *(pl.col(c) for report in reports for c in _columns_of(joined, report.label)),
    )


def _columns(table: _Table) -> list[list[str]]:
    """Return the key texts of a table by column."""
    return [list(cells) for cells in zip(*table.keys, strict=True)] or [
        [] for _ in table.layout.keys
    ]


def _columns_of(joined: pl.DataFrame, label: str) -> list[str]:
    return [c for c in joined.columns if c.startswith(f"{label}::")]


def _key(name: str, reports: Sequence[NamedReport], joined: pl.DataFrame) -> pl.Expr:
    """Return a key with the spelling of the first report that has the row."""
    columns = [f"{report.label}{_PLACE}{name}" for report in reports]
    if len({joined.schema[c] for c in columns}) > 1:
        return pl.coalesce(pl.col(c).cast(pl.String) for c in columns).alias(name)
    return pl.coalesce(columns).alias(name)


def _differences(
    column: str, reports: Sequence[NamedReport], having: Sequence[str]
) -> Iterator[pl.Expr]:
    """Yield ``<column>__<label>_diff`` and ``_pct`` of every report but the baseline."""
    base_name = f"{reports[0].label}::{column}"
    base = pl.col(base_name).cast(pl.Float64)
    for report in reports[1:]:
        name = f"{report.label}::{column}"
        if name in having and base_name in having:
            difference = pl.col(name).cast(pl.Float64) - base
            percent = pl.when(base != 0).then(100 * difference / base)
            yield difference.alias(f"{column}__{report.label}_diff")
            yield percent.alias(f"{column}__{report.label}_pct")


def _sorted(rows: pl.DataFrame, column: str | None, label: str) -> pl.DataFrame:
    if column is None:
        return rows
    return rows.sort(f"{label}::{column}", descending=True, nulls_last=True, maintain_order=True)


def _split(
    joined: pl.DataFrame, name: str, layout: _Layout, reports: Sequence[NamedReport]
) -> dict[str, pl.DataFrame]:
    """Split rows for each report but the baseline: in both, only in the baseline, only in it."""
    time, baseline = layout.compared[0], reports[0].label
    in_baseline = pl.col(f"{baseline}::{time}").is_not_null()
    sheets = {}
    for report in reports[1:]:
        in_variant = pl.col(f"{report.label}::{time}").is_not_null()
        parts = {
            INTERSECT: (in_baseline & in_variant, (baseline, report.label)),
            BASELINE: (in_baseline & ~in_variant, (baseline,)),
            VARIANT: (~in_baseline & in_variant, (report.label,)),
        }
        for part, (condition, labels) in parts.items():
            rows = _sorted(joined.filter(condition), time, labels[0])
            sheets[f"{name}_{part}_{report.label}"] = _with_values(rows, layout, baseline, labels)
    return sheets


def _with_values(
    rows: pl.DataFrame, layout: _Layout, baseline: str, labels: tuple[str, ...]
) -> pl.DataFrame:
    """Return the keys, and the columns and differences of some reports that have any value."""
    differences = tuple(
        f"{column}__{label}_{kind}"
        for column in layout.compared
        for label in labels
        if label != baseline
        for kind in ("diff", "pct")
    )
    shown = [
        c
        for c in rows.columns
        if c in layout.keys or c in differences or c.startswith(tuple(f"{la}::" for la in labels))
    ]
    return rows.select(c for c in shown if rows[c].null_count() < rows.height)
