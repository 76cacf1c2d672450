"""Reports side by side, sheet by sheet, under the names of TraceLens's compare report.

The first report is the baseline. Rows match by the key columns of their sheet, and each row of a
report stands in the result exactly once: where several rows of a report have the same key, they
are paired by the columns that tell them apart, then in their order.
"""

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from jarvis.core.errors import NotComparableError
from jarvis.tracelens.overlap import OVERLAP_SUFFIX
from jarvis.tracelens.sheet_groups import ALL, GROUPS

BASELINE, VARIANT, INTERSECT = "only_baseline", "only_variant", "intersect"
_PARAMETER = "param: "
_ROOFLINE_MARK = "name_count"
"""A column that roofline sheets have and no others."""

SHORT_NAMES = {"UnaryElementwise": "un_eltwise", "BinaryElementwise": "bin_eltwise"}
"""Roofline sheets whose comparison has a shorter name."""

OPS_ALL_ALIAS = "ops_all_intersect_{}"
"""The name that the sheet of operations in both reports once had, and that tools still read."""

_PLACE = "#"
"""A column that no sheet has: which of the rows with one key it is."""


@dataclass(frozen=True, slots=True)
class NamedReport:
    """A report to compare: the ``label`` that its columns get, and its sheets by name."""

    label: str
    sheets: Mapping[str, pl.DataFrame]


@dataclass(frozen=True, slots=True)
class _Layout:
    """How a sheet is compared.

    Rows match by ``keys``, those with equal keys by ``finer``, the most telling column first.
    ``compared`` columns get differences; the first of them says whether a report has the row.
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
    """The sheets of a compare report by name; columns as in the sheets, under ``<label>::``.

    ``groups`` are among GROUPS, or ALL: those that every report has. For each compared column of
    each report there are a difference to the baseline and that in percent of the baseline, null
    where it is 0 or has no such row. Raises NotComparableError for fewer than two reports, labels
    that are not unlike, a group that does not exist, and one that a report lacks.
    """
    labels = [report.label for report in reports]
    if len(reports) < 2:
        raise NotComparableError("there must be at least two reports")
    if len(set(labels)) < len(labels) or any("::" in label for label in labels):
        raise NotComparableError(
            f"each report needs a name of its own, without '::', and these are {', '.join(labels)}"
        )
    if unknown := [group for group in groups if group not in (*GROUPS, ALL)]:
        known = ", ".join((*GROUPS, ALL))
        raise NotComparableError(f"there are no sheets {unknown[0]!r}; choose among {known}")
    sheets: dict[str, pl.DataFrame] = {}
    for group in GROUPS:
        if group in groups or (ALL in groups and not lacking(reports, group)):
            sheets |= _group(reports, group)
    return sheets


def lacking(reports: Sequence[NamedReport], group: str) -> list[str]:
    """The labels of the reports that have no sheet of a group."""
    return [report.label for report in reports if not _sheets_of(report, group)]


def hidden_columns(columns: Collection[str]) -> list[str]:
    """Columns that a workbook keeps but does not show: spreads, positions, examples."""
    return [c for c in columns if "::" in c and c.endswith(_HIDDEN_ENDINGS)]


def _sheets_of(report: NamedReport, group: str) -> list[str]:
    """The sheets of a report that belong to a group, in its order."""
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
    if without := lacking(reports, group):
        raise NotComparableError(
            f"there is no sheet {group} of {' and '.join(without)}; leave {group} out of the "
            "sheets, or make the report with it"
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
    """Every family of perf models that a report has; rows of the others stand alone."""
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
    """A sheet of one report without what the comparison drops, and how it is compared."""

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
    """The cells of some columns of each row, so that equal values are equal texts."""
    columns = [[_text(cell) for cell in frame[name].to_list()] for name in names]
    return list(zip(*columns, strict=True)) if columns else [()] * frame.height


def _text(cell: object) -> str:
    """A cell in one spelling: numbers without needless digits, nested values with tuples."""
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
    """For each table the place of its rows among those with their key.

    Rows of two tables with one key and one place belong together.
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
    """A place for each of ``rows``: of the ``known`` row that it shares most of its cells with,
    counted from the first, else a new one, which ``known`` then has."""
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
    """All rows of the tables side by side: keys, differences, then each report's columns."""
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
    """The key texts of a table by column."""
    return [list(cells) for cells in zip(*table.keys, strict=True)] or [
        [] for _ in table.layout.keys
    ]


def _columns_of(joined: pl.DataFrame, label: str) -> list[str]:
    return [c for c in joined.columns if c.startswith(f"{label}::")]


def _key(name: str, reports: Sequence[NamedReport], joined: pl.DataFrame) -> pl.Expr:
    """A key as the first report spells it that has the row."""
    columns = [f"{report.label}{_PLACE}{name}" for report in reports]
    if len({joined.schema[c] for c in columns}) > 1:
        return pl.coalesce(pl.col(c).cast(pl.String) for c in columns).alias(name)
    return pl.coalesce(columns).alias(name)


def _differences(
    column: str, reports: Sequence[NamedReport], having: Sequence[str]
) -> Iterator[pl.Expr]:
    """``<column>__<label>_diff`` and ``_pct`` of every report but the baseline."""
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
    """For each report but the baseline: rows in both, in the baseline only, in the report only."""
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
            sheets[f"{name}_{part}_{report.label}"] = _kept(rows, layout, baseline, labels)
    return sheets


def _kept(
    rows: pl.DataFrame, layout: _Layout, baseline: str, labels: tuple[str, ...]
) -> pl.DataFrame:
    """The keys, the columns of some reports and their differences, those with any value."""
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
