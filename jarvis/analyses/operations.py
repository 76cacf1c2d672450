"""The rows of one category: the columns that every category has, and groups of like rows."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from jarvis import impact
from jarvis.analyses import kernel_names
from jarvis.findings import OpRef
from jarvis.impact import KERNEL_FLOOR_US as KERNEL_FLOOR_US
from jarvis.impact import SHORT_CALL_US as SHORT_CALL_US
from jarvis.schemas import FLAG, NUMBER, TEXT, Column
from jarvis.text.format import arguments as arguments
from jarvis.text.format import short_dtype as short_dtype

DETAILS = (
    Column("percent_of_category", "% of category", NUMBER, "%", ",.2f", "share of GPU time here"),
    Column("arguments", "Arguments", TEXT, meaning="shape and dtype of each tensor argument"),
    Column("main_kernel", "Main kernel", TEXT, meaning="GPU kernel with most time"),
    Column("library", "Library", TEXT, meaning="library that the main kernel's name points to"),
    Column("called_from", "Called from", TEXT, meaning="modules around the example call"),
    Column("is_top_operation", "Top operation", FLAG, meaning="among the trace's top operations"),
    Column(
        "is_launch_bound",
        "Launch bound",
        FLAG,
        meaning="calls so short that launching decides their time, not the roofline",
    ),
)
"""The columns that ``describe`` adds to every category's rows."""

PATTERN = "pattern"
"""The column by which an analysis tells kinds of rows apart; picks the advice."""

HYPOTHESIS = "hypothesis"
"""The column in which an analysis states the likely cause of a row's time; empty without one."""

LAUNCH_BOUND = "launch bound"
"""The kind of rows without a pattern whose calls are too short for their roofline."""

MIN_COMPUTE_PCT = 0.5
"""Groups below this share of compute make no finding: nothing there can be felt."""

MODULES_SHOWN = 3

LIKELY_COMPUTE = 100.0
LIKELY_MEMORY = 50.0
"""FLOPs/byte above and below which arithmetic or memory most likely decides on any GPU; the ridge
of the hardware is better where it is known."""

LAUNCH_BOUND_RULE = (
    f"calls below {SHORT_CALL_US:.0f} µs whose roofline time is below {KERNEL_FLOOR_US:.0f} µs, "
    "no pattern"
)
"""When ``LAUNCH_BOUND`` applies, for the documentation."""


def describe(rows: pl.DataFrame, top_uids: frozenset[int]) -> pl.DataFrame:
    """Claimed rows with the columns of ``DETAILS``, most time first, ``pattern`` and ``hypothesis``
    still empty."""
    time = pl.col("kernel_time_us")
    texts = rows[["input_dims", "input_types"]].rows()
    modules = pl.col("module_path").list.eval(pl.element().str.replace(r"_\d+$", ""))
    return rows.with_columns(
        percent_of_category=pl.when(time.sum() > 0).then(100 * time / time.sum()).otherwise(0.0),
        arguments=pl.Series([arguments(*pair) for pair in texts], dtype=pl.String),
        main_kernel=kernel_names.main_kernel(),
        called_from=pl.when(modules.list.len() > 0)
        .then(modules.list.tail(MODULES_SHOWN).list.join(" / "))
        .otherwise(pl.col("entry_point")),
        is_top_operation=pl.col("uid").is_in(list(top_uids)),
        is_launch_bound=(pl.col("kernel_time_us_mean") < SHORT_CALL_US)
        & (pl.col("roofline_time_us") < KERNEL_FLOOR_US).fill_null(value=False),
        **{column: pl.lit(None, dtype=pl.String) for column in (PATTERN, HYPOTHESIS)},
    ).with_columns(library=kernel_names.library(pl.col("main_kernel")))


def likely_bound() -> pl.Expr:
    """``compute``, ``memory`` or ``mixed``: the bound, or what FLOPs/byte alone suggest where no
    hardware is known; null without either."""
    intensity = pl.col("flops_per_byte")
    by_intensity = (
        pl.when(intensity >= LIKELY_COMPUTE)
        .then(pl.lit("compute"))
        .when(intensity >= LIKELY_MEMORY)
        .then(pl.lit("mixed"))
        .when(intensity.is_not_null())
        .then(pl.lit("memory"))
    )
    return pl.coalesce("bound", by_intensity)


def parameter(name: str) -> pl.Expr:
    """An integer parameter of the perf model; null where the row has none."""
    return pl.col("params").str.json_path_match(f"$.{name}").cast(pl.Int64, strict=False)


def parameters(rows: pl.DataFrame) -> list[dict[str, Any]]:
    """The perf model's parameters of each row, ``{}`` where there are none."""
    return [json.loads(text) if text else {} for text in rows["params"]]


@dataclass(frozen=True)
class OperationGroup:
    """Rows of one operator with one pattern or bound: what a finding speaks of.

    An operator's time is spread over a row for each shape; thresholds on single rows would miss
    it. ``rows`` are sorted, most time first. Times in ms, shares and efficiencies in percent.
    """

    rows: pl.DataFrame

    @property
    def name(self) -> str:
        """The operator."""
        return str(self.rows["name"][0])

    @property
    def pattern(self) -> str | None:
        """The pattern that the analysis gave these rows."""
        value: str | None = self.rows[PATTERN][0]
        return value

    @property
    def bound(self) -> str | None:
        """``compute``, ``memory`` or None."""
        value: str | None = self.rows["bound"][0]
        return value

    @cached_property
    def heaviest(self) -> dict[str, Any]:
        """The row with most time."""
        return self.rows.row(0, named=True)

    @property
    def time_ms(self) -> float:
        """GPU time of all calls."""
        return self._sum("kernel_time_us") / 1000

    @property
    def category_pct(self) -> float:
        """Share of the category's GPU time."""
        return self._sum("percent_of_category")

    @property
    def compute_pct(self) -> float:
        """Share of the trace's compute time."""
        return self._sum("percent_of_compute")

    @property
    def calls(self) -> int:
        """Calls of the operator."""
        return int(self._sum("operation_count"))

    @property
    def launches(self) -> int:
        """GPU events of all calls."""
        return int(self._sum("kernel_count"))

    @cached_property
    def efficiency_pct(self) -> float | None:
        """Time-weighted share of the roofline; None where no row has one."""
        return weighted_efficiency(self.rows)

    @property
    def compute_peak_pct(self) -> float | None:
        """Achieved FLOPs/s as a share of the compute peak, whatever bounds the rows; None where
        either is not known."""
        known = self.rows.drop_nulls(["flops", "peak_tflops"])
        time_us = float(known["kernel_time_us"].sum())
        if time_us <= 0:
            return None
        at_peak = known["flops"] * known["operation_count"] / known["peak_tflops"] / 1e6
        return 100 * float(at_peak.sum()) / time_us

    @cached_property
    def is_launch_bound(self) -> bool:
        """Whether launching decides most of the time, not the roofline."""
        launching_us = self.rows["kernel_time_us"].filter(self.rows["is_launch_bound"]).sum()
        return float(launching_us) > self._sum("kernel_time_us") / 2

    @property
    def is_top(self) -> bool:
        """Whether one of the trace's top operations is among the rows."""
        return bool(self.rows["is_top_operation"].any())

    @property
    def operations(self) -> tuple[OpRef, ...]:
        """References to the rows."""
        columns = ["uid", "name", "input_dims", "operation_count"]
        return tuple(OpRef(**row) for row in self.rows[columns].iter_rows(named=True))

    @property
    def rate(self) -> tuple[float, float, str] | None:
        """Achieved rate, peak and unit on the side that bounds the rows; None without a peak."""
        work, peak_column, unit = (
            ("flops", "peak_tflops", "TFLOPS/s")
            if self.bound == "compute"
            else ("bytes", "peak_tb_per_s", "TB/s")
        )
        done = (self.rows[work] * self.rows["operation_count"]).sum()
        seconds = self._sum("kernel_time_us") / 1e6
        peak = self.rows[peak_column][0]
        if not done or peak is None or seconds <= 0:
            return None
        return float(done) / 1e12 / seconds, float(peak), unit

    def _sum(self, column: str) -> float:
        return float(self.rows[column].sum())


def weighted_efficiency(rows: pl.DataFrame) -> float | None:
    """Time-weighted ``pct_roofline`` of the rows that are judged by one; None without any."""
    known = rows.filter(impact.is_judged())
    time_us = float(known["kernel_time_us"].sum())
    if time_us <= 0:
        return None
    return float((known["pct_roofline"] * known["kernel_time_us"]).sum()) / time_us


def groups(rows: pl.DataFrame) -> Iterator[OperationGroup]:
    """The rows by operator, pattern (or launch bound), bound and peak; most time first."""
    if rows.is_empty():
        return
    keys = {
        "kind": pl.coalesce(PATTERN, pl.when("is_launch_bound").then(pl.lit(LAUNCH_BOUND))),
        "peak": pl.when(pl.col("bound") == "compute").then("compute"),
    }
    parts = (
        rows.sort("kernel_time_us", "uid", descending=[True, False])
        .with_columns(**keys)
        .partition_by("name", "kind", "bound", "peak", maintain_order=True)
    )
    yield from sorted((OperationGroup(part) for part in parts), key=lambda g: -g.time_ms)
