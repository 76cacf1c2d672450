"""The rows of one category: the columns that every category has, and groups of like rows."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from sys import intern
from typing import Any

import numpy as np
import polars as pl

from jarvis import impact
from jarvis.analyses import call_times, kernel_names
from jarvis.core.expressions import first_of, rows_where
from jarvis.findings import OpRef
from jarvis.hardware import HardwareSpec
from jarvis.impact import KERNEL_FLOOR_US as KERNEL_FLOOR_US
from jarvis.impact import SHORT_CALL_US as SHORT_CALL_US
from jarvis.perf_report.call_tree.stacks import INSTANCE_NUMBER
from jarvis.perf_report.calls import ARGUMENTS
from jarvis.perf_report.communication_names import stages
from jarvis.perf_report.work import COMPUTE
from jarvis.schemas import POPULATIONS
from jarvis.schemas.columns import flag, number, text
from jarvis.schemas.names import C
from jarvis.text.format import arguments as arguments
from jarvis.text.format import short_dtype as short_dtype
from jarvis.text.messages import Message, MessageTable


def message_column(table: MessageTable, key: pl.Expr, *columns: str) -> pl.Expr:
    """Return a column of messages with the values of these columns.

    ``key`` gives the key in the table; its template need not use all of the values. Each cell is
    input for ``Message``.
    """
    identifier = pl.concat_str(pl.lit(f"{table.name}."), key).alias("id")
    values = [pl.struct(columns).alias("values")] if columns else []
    return pl.struct(identifier, *values)


DETAILS = (
    number(C.percent_of_category, "% of category", "%", "share of the category's GPU time", ",.2f"),
    text("arguments", "Arguments", "shape and dtype of each tensor argument"),
    text(
        "call_times",
        "Times of calls (µs)",
        "calls and mean kernel time of groups of calls whose times lie apart; empty if all "
        "calls are one group",
    ),
    text(C.main_kernel, "Main kernel", "GPU kernel with most time"),
    text("library", "Library", "library, from the main kernel's name"),
    text(C.called_from, "Called from", "enclosing modules of the example call"),
    flag(C.is_top_operation, "Top operation", "among the trace's top operations"),
    flag(
        C.is_launch_bound,
        "Launch bound",
        "calls so short that launch overhead dominates, not the roofline",
    ),
)
"""The columns that ``describe`` adds to the rows of every category."""

PATTERN = "pattern"
"""The column by which an analysis classifies rows; selects the advice."""

HYPOTHESIS = "hypothesis"
"""The column with the likely cause of a row's time; empty without one."""

LAUNCH_BOUND = "launch bound"
"""The kind of rows without a pattern whose calls are too short to reach their roofline."""

MIN_COMPUTE_PCT = 0.5
"""Groups below this share of compute are too small for a finding."""

MODULES_SHOWN = 3

REFERENCED = (C.uid, C.name, C.input_dims, C.operation_count)
"""The columns of a reference to a row."""

_TIMED = (C.populations, C.operation_count, C.kernel_time_us)
"""The columns of the kernel times of calls."""

_FEW_ROWS = 16

LIKELY_COMPUTE = 100.0
LIKELY_MEMORY = 50.0
"""FLOPs/byte above LIKELY_COMPUTE most likely mean compute bound on any GPU, below LIKELY_MEMORY
memory bound; a known hardware ridge is more accurate."""

LAUNCH_BOUND_RULE = (
    f"calls below {SHORT_CALL_US:.0f} µs whose roofline time is below {KERNEL_FLOOR_US:.0f} µs, "
    "no pattern"
)
"""When ``LAUNCH_BOUND`` applies, for the documentation."""


def module_classes() -> pl.Expr:
    """Return the classes of the modules around the example call of a row, outermost first."""
    return pl.col(C.module_path).list.eval(pl.element().str.replace(INSTANCE_NUMBER, ""))


def describe(
    rows: pl.DataFrame, top_uids: frozenset[int], hardware: HardwareSpec | None = None
) -> pl.DataFrame:
    """Return claimed rows with the columns of ``DETAILS``, most time first, and the architecture of
    the GPU; ``pattern`` and ``hypothesis`` are empty."""
    time = pl.col(C.kernel_time_us)
    texts = rows[[C.input_dims, C.input_types]].rows()
    modules = module_classes()
    if C.populations not in rows.columns:  # of runs of earlier versions and imported reports
        rows = rows.with_columns(pl.lit(None, dtype=POPULATIONS).alias(C.populations))
    return rows.with_columns(
        **{
            C.percent_of_category: pl.when(time.sum() > 0)
            .then(100 * time / time.sum())
            .otherwise(0.0),
            "arguments": pl.lit(pl.Series([arguments(*pair) for pair in texts], dtype=pl.String)),
            "call_times": pl.lit(
                pl.Series(map(call_times.summary, rows[C.populations].to_list()), dtype=pl.String)
            ),
            C.main_kernel: kernel_names.main_kernel(),
            C.called_from: pl.when(modules.list.len() > 0)
            .then(modules.list.tail(MODULES_SHOWN).list.join(" / "))
            .otherwise(pl.col(C.entry_point)),
            C.architecture: pl.lit(hardware and hardware.architecture, dtype=pl.String),
            C.is_top_operation: pl.col(C.uid).is_in(list(top_uids)),
            C.is_launch_bound: (pl.col(C.kernel_time_us_mean) < SHORT_CALL_US)
            & (pl.col(C.roofline_time_us) < KERNEL_FLOOR_US).fill_null(value=False),
        },
        **{column: pl.lit(None, dtype=pl.String) for column in (PATTERN, HYPOTHESIS)},
    ).with_columns(library=kernel_names.library(pl.col(C.main_kernel)))


def likely_bound() -> pl.Expr:
    """Return ``compute``, ``memory`` or ``mixed``: the bound, or an estimate from FLOPs/byte
    without known hardware; null without either."""
    intensity = pl.col(C.flops_per_byte)
    by_intensity = first_of(
        {
            "compute": intensity >= LIKELY_COMPUTE,
            "mixed": intensity >= LIKELY_MEMORY,
            "memory": intensity.is_not_null(),
        }
    )
    return pl.coalesce(C.bound, by_intensity)


def parameter(name: str) -> pl.Expr:
    """Return an integer parameter of the perf model; null if the row has none."""
    return pl.col(C.params).str.json_path_match(f"$.{name}").cast(pl.Int64, strict=False)


def parameters(rows: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the perf model's parameters of each row, ``{}`` if there are none."""
    return [json.loads(text) if text else {} for text in rows[C.params]]


@dataclass(frozen=True)
class OperationGroup:
    """Rows of one operator with one pattern or bound: the subject of a finding.

    An operator's time is spread over one row per shape; thresholds on single rows would miss it.
    ``places`` are those of its rows in ``every``, most time first; None if it has them all.
    ``grouped`` are all rows by group, if findings at several targets share them. Times in ms,
    shares and efficiencies in percent.
    """

    every: pl.DataFrame
    places: pl.Series | None = None
    grouped: "Grouped | None" = None

    @property
    def rows(self) -> pl.DataFrame:
        """Return the rows with all columns: a copy, as there are many."""
        return self.select(*self.every.columns)

    def select(self, *columns: str) -> pl.DataFrame:
        """Return these columns of the rows."""
        return pl.DataFrame([self._values(column) for column in columns])

    def each_row(self, *columns: str) -> Iterator[dict[str, Any]]:
        """Yield these columns of the rows; they are copied a few at a time, as often the first ones
        are enough."""
        every = self.every[[*columns]]
        for first in range(0, every.height, _FEW_ROWS):
            if self.places is None:
                part = every.slice(first, _FEW_ROWS)
            else:
                part = every[self.places.slice(first, _FEW_ROWS)]
            yield from part.iter_rows(named=True)

    @property
    def name(self) -> str:
        """Return the operator."""
        return str(self.heaviest[C.name])

    @property
    def pattern(self) -> str | None:
        """Return the pattern of these rows."""
        value: str | None = self.heaviest[PATTERN]
        return value

    @property
    def bound(self) -> str | None:
        """Return ``compute``, ``memory`` or None."""
        value: str | None = self.heaviest[C.bound]
        return value

    @cached_property
    def heaviest(self) -> dict[str, Any]:
        """Return the row with most time."""
        return self.every.row(0 if self.places is None else self.places[0], named=True)

    @cached_property
    def time_ms(self) -> float:
        """Return the GPU time of all calls in ms."""
        return self._sum(C.kernel_time_us) / 1000

    @cached_property
    def category_pct(self) -> float:
        """Return the share of the category's GPU time."""
        return self._sum(C.percent_of_category)

    @cached_property
    def compute_pct(self) -> float:
        """Return the share of the trace's compute time."""
        return self._sum(C.percent_of_compute)

    @cached_property
    def calls(self) -> int:
        """Return the calls of the operator."""
        return int(self._sum(C.operation_count))

    @cached_property
    def signatures(self) -> int:
        """Return the number of distinct arguments, and of rows without recorded ones."""
        return int(self._signatures.n_unique())

    @property
    def heaviest_calls(self) -> int:
        """Return the calls with the arguments of the heaviest row."""
        is_same = self._signatures == self._signatures[0]
        return int(self._values(C.operation_count).filter(is_same).sum())

    @cached_property
    def _signatures(self) -> pl.Series:
        if self.grouped is None or self.places is None:
            return signature_numbers(self.select(*ARGUMENTS))
        return self.grouped.signatures[self.places]

    @cached_property
    def time_per_call(self) -> float | Message:
        """Return the mean kernel time of a call in ms, or the groups of times that lie apart."""
        return call_times.time_per_call(self._calls)

    @property
    def _calls(self) -> pl.DataFrame:
        if self.grouped is None or self.places is None:
            return call_times.calls_of(self.select(*_TIMED))
        is_own = np.zeros(self.every.height, np.bool_)
        is_own[self.places] = True
        calls = self.grouped.call_times
        return rows_where(calls, pl.Series(is_own[calls["row"]]))

    @cached_property
    def launches(self) -> int:
        """Return the number of GPU events of all calls."""
        return int(self._sum(C.kernel_count))

    @cached_property
    def efficiency_pct(self) -> float | None:
        """Return the time-weighted share of the roofline; None if no row has one."""
        return weighted_efficiency(self.select(C.pct_roofline, C.bound, C.kernel_time_us))

    @cached_property
    def compute_peak_pct(self) -> float | None:
        """Return the achieved FLOPs/s as a share of the compute peak, regardless of the bound; None
        if either is not known."""
        columns = (C.flops, C.operation_count, C.peak_tflops, C.kernel_time_us)
        known = self.select(*columns).drop_nulls([C.flops, C.peak_tflops])
        time_us = float(known[C.kernel_time_us].sum())
        if time_us <= 0:
            return None
        at_peak = known[C.flops] * known[C.operation_count] / known[C.peak_tflops] / 1e6
        return 100 * float(at_peak.sum()) / time_us

    @cached_property
    def is_launch_bound(self) -> bool:
        """Return whether launch overhead, not the roofline, dominates most of the time."""
        rows = self.select(C.kernel_time_us, C.is_launch_bound)
        launching_us = rows[C.kernel_time_us].filter(rows[C.is_launch_bound]).sum()
        return float(launching_us) > self._sum(C.kernel_time_us) / 2

    @property
    def is_top(self) -> bool:
        """Return whether the rows include one of the trace's top operations."""
        return bool(self._values(C.is_top_operation).any())

    @cached_property
    def operations(self) -> tuple[OpRef, ...]:
        """Return references to the rows."""
        if self.grouped is None or self.places is None:
            return references(self.select(*REFERENCED))
        every = self.grouped.references
        return tuple(map(every.__getitem__, self.places.to_list()))

    @cached_property
    def rate(self) -> tuple[float, float, str] | None:
        """Return achieved rate, peak and unit of the resource that bounds the rows; None without a
        peak."""
        work, peak_column, unit = (
            (C.flops, C.peak_tflops, "TFLOP/s")
            if self.bound == "compute"
            else (C.bytes, C.peak_tb_per_s, "TB/s")
        )
        done = (self._values(work) * self._values(C.operation_count)).sum()
        seconds = self._sum(C.kernel_time_us) / 1e6
        peak = self.heaviest[peak_column]
        if not done or peak is None or seconds <= 0:
            return None
        return float(done) / 1e12 / seconds, float(peak), unit

    def _sum(self, column: str) -> float:
        return float(self._values(column).sum())

    def _values(self, column: str) -> pl.Series:
        values = self.every[column]
        return values if self.places is None else values[self.places]


def references(rows: pl.DataFrame) -> tuple[OpRef, ...]:
    """Return references to rows, with equal names in memory once."""
    return tuple(
        OpRef(uid=uid, name=intern(name), input_dims=input_dims, operation_count=count)
        for uid, name, input_dims, count in rows.select(REFERENCED).iter_rows()
    )


def weighted_efficiency(rows: pl.DataFrame) -> float | None:
    """Return the time-weighted ``pct_roofline`` of the rows with a reliable one; None without
    any."""
    found: float | None = rows.select(mean_efficiency(impact.has_efficiency())).item()
    return found


def mean_efficiency(is_counted: pl.Expr) -> pl.Expr:
    """Return the time-weighted ``pct_roofline`` of some rows; null if they take no time."""
    time_us = pl.col(C.kernel_time_us)
    whole_us = time_us.filter(is_counted).sum()
    weighted = (pl.col(C.pct_roofline) * time_us).filter(is_counted).sum()
    return pl.when(whole_us > 0).then(weighted / whole_us)


@dataclass(frozen=True)
class Grouped:
    """Rows by group, which are the same at every target: those of one operator, pattern (or launch
    bound), bound and peak."""

    rows: pl.DataFrame

    @cached_property
    def ordered(self) -> pl.DataFrame:
        """The rows most time first: their index ``row``, the number of their ``group``, and the
        columns that groups add up."""
        rows = self.rows
        kind = pl.coalesce(PATTERN, pl.when(C.is_launch_bound).then(pl.lit(LAUNCH_BOUND)))
        peak = pl.when(pl.col(C.bound) == "compute").then(C.compute)
        keys = rows.select(C.name, C.bound, kind.alias(C.kind), peak.alias("peak"))
        return (
            rows.select(C.uid, C.kernel_time_us, C.percent_of_compute, group=_numbers(keys))
            .with_row_index("row")
            .sort(C.kernel_time_us, C.uid, descending=[True, False])
            .drop(C.uid)
        )

    @cached_property
    def signatures(self) -> pl.Series:
        """The ``signature_numbers`` of the rows."""
        return signature_numbers(self.rows)

    @cached_property
    def call_times(self) -> pl.DataFrame:
        """The ``call_times.calls_of`` the rows."""
        return call_times.calls_of(self.rows.select(*_TIMED))

    @cached_property
    def references(self) -> tuple[OpRef, ...]:
        """The ``references`` to the rows, the same objects for findings at several targets."""
        return references(self.rows)


def signature_numbers(rows: pl.DataFrame) -> pl.Series:
    """Return a number for the arguments of each row, its own for rows without recorded ones.

    Rows differ in what is recorded beside arguments, too, such as the thread.
    """
    number = pl.when(pl.col(C.input_dims).is_null()).then(pl.int_range(pl.len()))
    return _numbers(rows.select(*ARGUMENTS, number=number))


def _numbers(rows: pl.DataFrame) -> pl.Series:
    """Return a number for each row, equal for equal rows."""
    numbers: dict[tuple[Any, ...], int] = {}
    found = [numbers.setdefault(row, len(numbers)) for row in rows.iter_rows()]
    return pl.Series(found, dtype=pl.UInt32)


def groups(
    rows: pl.DataFrame, wanted: pl.Expr | None = None, min_compute_pct: float = 0.0
) -> Iterator[OperationGroup]:
    """Yield the rows (those that are ``wanted``) by group, if they have at least
    ``min_compute_pct`` of compute; most time first."""
    is_wanted = None
    if wanted is not None:
        is_wanted = rows.select(wanted.fill_null(value=False)).to_series()
    for group in groups_of(Grouped(rows), is_wanted, min_compute_pct):
        yield OperationGroup(rows, group.places)


def groups_of(
    grouped: Grouped, is_wanted: pl.Series | None = None, min_compute_pct: float = 0.0
) -> Iterator[OperationGroup]:
    """Yield ``groups`` of rows whose groups are known; ``is_wanted`` says it of each row."""
    if is_wanted is not None and not is_wanted.any():
        return
    ordered = grouped.ordered
    if is_wanted is not None:
        ordered = rows_where(ordered, is_wanted[ordered["row"]])
    found = ordered.group_by("group", maintain_order=True).agg(
        "row", pl.col(C.kernel_time_us, C.percent_of_compute).sum()
    )
    sums = zip(found[C.kernel_time_us], found[C.percent_of_compute], found["row"], strict=True)
    large = [(time_us, places) for time_us, pct, places in sums if pct >= min_compute_pct]
    for _, places in sorted(large, key=lambda group: -group[0]):
        yield OperationGroup(grouped.rows, places, grouped)


def timeline_window(gpu_work: pl.DataFrame) -> pl.DataFrame:
    """Return the linked GPU events, or all if none is linked, like ``gpu_timeline``."""
    linked = gpu_work.filter(C.linked)
    return gpu_work if linked.is_empty() else linked


def staging_ms(gpu_work: pl.DataFrame, operations: pl.DataFrame | None) -> float:
    """Return the time in ms of the copies into and out of the buffers of collectives.

    ``operations`` show which copies FSDP launches.
    """
    uids = pl.Series(dtype=pl.Int64)
    if operations is not None and C.is_in_fsdp in operations.columns:
        uids = operations.filter(C.is_in_fsdp)[C.uid]
    in_fsdp = pl.col(C.operation_uid).is_in(uids.implode())
    is_staging = (pl.col(C.kind) == COMPUTE) & stages(pl.col(C.name), in_fsdp)
    return int(timeline_window(gpu_work).filter(is_staging)[C.dur_ns].sum()) / 1e6
