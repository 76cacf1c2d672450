"""The files of a run directory as plain Python values, read with the standard library."""

import ast
import csv
import json
import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from tests.arithmetic.trace_events import TraceEvents, read_events

csv.field_size_limit(sys.maxsize)

COMPUTE_PEAKS = "max_achievable_tflops"


@dataclass(frozen=True)
class Row:
    """One line of a category's CSV: one operator with one set of arguments.

    Only what was measured or modelled for one call is read (times, counts, FLOPs, bytes); rates,
    efficiencies and shares are worked out here.
    """

    cells: dict[str, str]
    category: str
    hardware: dict[str, Any] | None

    @property
    def uid(self) -> int:
        return int(self.cells["ex_UID"])

    @property
    def name(self) -> str:
        return self.cells["name"]

    @property
    def calls(self) -> int:
        return int(self.cells["operation_count"])

    @property
    def launches(self) -> int:
        return int(self.cells["kernel_count"])

    @property
    def direction(self) -> str:
        return self.cells["direction"]

    @cached_property
    def kernels(self) -> list[dict[str, Any]]:
        """Name, count and total time of each kernel."""
        text = self.cells["kernel_details_summary"]
        return ast.literal_eval(text) if text else []

    @cached_property
    def time_us(self) -> float:
        """GPU time of all calls, added up over the kernels."""
        return math.fsum(kernel["total_duration_us"] for kernel in self.kernels)

    def kernel_time_us(self, is_meant: Any) -> float:
        """GPU time of the kernels whose lower-case name is meant."""
        return math.fsum(
            k["total_duration_us"] for k in self.kernels if is_meant(k["name"].lower())
        )

    @property
    def flops(self) -> float | None:
        return _number(self.cells["flops"])

    @property
    def bytes(self) -> float | None:
        return _number(self.cells["bytes"])

    @property
    def peak_tflops(self) -> float | None:
        """The compute peak of the dtype, from the hardware figures."""
        if self.hardware is None:
            return None
        return self.hardware[COMPUTE_PEAKS].get(self.cells["compute"] or "")

    @property
    def peak_tb_per_s(self) -> float | None:
        return None if self.hardware is None else self.hardware["mem_bw_gbps"] / 1000

    @cached_property
    def roofline_us(self) -> float | None:
        """The longer of the two times that one call needs at the peaks; None without a peak."""
        if self.peak_tb_per_s is None or self.bytes is None:
            return None
        memory_us = self.bytes / self.peak_tb_per_s / 1e6
        arithmetic_us = (self.flops or 0.0) / self.peak_tflops / 1e6 if self.peak_tflops else 0.0
        return max(memory_us, arithmetic_us) or None

    @property
    def bound(self) -> str:
        return self.cells["bound"]

    @cached_property
    def roofline_pct(self) -> float | None:
        """Roofline time in percent of measured time."""
        if self.roofline_us is None or not self.time_us:
            return None
        return 100 * self.roofline_us * self.calls / self.time_us

    @property
    def efficiency_pct(self) -> float | None:
        """``roofline_pct`` where it is no mere lower limit for want of a compute peak."""
        return self.roofline_pct if self.bound in ("memory", "compute") else None

    @property
    def flops_per_byte(self) -> float | None:
        return self.flops / self.bytes if self.flops is not None and self.bytes else None

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """Those of the perf model."""
        text = self.cells["perf_params"]
        return ast.literal_eval(text) if text else {}

    @cached_property
    def shapes(self) -> tuple[Any, ...]:
        return _literal(self.cells["Input Dims"])

    @cached_property
    def strides(self) -> tuple[Any, ...]:
        return _literal(self.cells["Input Strides"])

    @cached_property
    def types(self) -> tuple[str, ...]:
        return _literal(self.cells["Input type"])

    @cached_property
    def dims(self) -> frozenset[tuple[int, ...]]:
        """Shapes and strides of all its tensors."""
        return frozenset(dims for value in (*self.shapes, *self.strides) for dims in _flat(value))

    @cached_property
    def concrete(self) -> tuple[Any, ...]:
        return _literal(self.cells["Concrete Inputs"])

    @property
    def module_path(self) -> str:
        return self.cells["module_path"]


@dataclass(frozen=True)
class RunDirectory:
    """A run directory and the trace that it was made from."""

    root: Path
    trace: Path

    def text(self, name: str) -> str:
        return (self.root / name).read_text(encoding="utf-8")

    def json(self, name: str) -> Any:
        return json.loads(self.text(name))

    @cached_property
    def events(self) -> TraceEvents:
        return read_events(self.trace)

    @cached_property
    def manifest(self) -> dict[str, Any]:
        return self.json("manifest.json")

    @property
    def hardware(self) -> dict[str, Any] | None:
        return self.manifest["hardware"]

    @property
    def compute_units(self) -> int | None:
        recorded = self.manifest["trace"]["compute_units"]
        return recorded or (self.hardware or {}).get("compute_units")

    @cached_property
    def results(self) -> dict[str, dict[str, Any]]:
        """Those of ``results.json``."""
        return self.json("results.json")["analyses"]

    @property
    def findings(self) -> list[dict[str, Any]]:
        """All findings, by analysis."""
        return [finding for result in self.results.values() for finding in result["findings"]]

    @cached_property
    def timeline_ms(self) -> dict[str, float]:
        rows = _read_csv(self.root / "perf_report_csvs/gpu_timeline.csv")
        return {row["type"]: float(row["time ms"]) for row in rows}

    @property
    def compute_ms(self) -> float:
        return self.timeline_ms["computation_time"]

    @property
    def total_ms(self) -> float:
        return self.timeline_ms["total_time"]

    @cached_property
    def launchers(self) -> dict[str, dict[str, str]]:
        """Lines of the summary by launching operator; none where no operators are recorded."""
        path = self.root / "perf_report_csvs/ops_summary.csv"
        return {row["name"]: row for row in _read_csv(path)} if path.exists() else {}

    @cached_property
    def rows(self) -> dict[int, Row]:
        """The rows of all categories by uid."""
        found = (
            Row(cells, path.stem.removesuffix("_ops"), self.hardware)
            for path in sorted((self.root / "category_data").glob("*_ops.csv"))
            for cells in _read_csv(path)
        )
        return {row.uid: row for row in found}

    def category(self, key: str) -> list[Row]:
        """The rows of one category, most time first."""
        return by_time(row for row in self.rows.values() if row.category == key)

    def table(self, name: str) -> list[dict[str, Any]]:
        """A table of the run directory that has no CSV."""
        return _table(self.root / "tables" / f"{name}.parquet")

    @cached_property
    def event_names(self) -> dict[int, str]:
        """The name of each recorded event by its uid."""
        tables = ("host_slices", "sim_spans", "gpu_work")
        return {row["uid"]: row["name"] for table in tables for row in self.table(table)}

    @cached_property
    def kernels_of(self) -> dict[int, list[dict[str, Any]]]:
        """Each row's kernels by name; the CSV joins those that stand at one place in a call."""
        return {row["uid"]: row["kernels"] or [] for row in self.table("operations")}

    @cached_property
    def call_groups_of(self) -> dict[int, list[dict[str, Any]]]:
        """Each row's groups of calls whose times lie apart."""
        return {row["uid"]: row["populations"] or [] for row in self.table("operations")}

    @cached_property
    def fusion_chains(self) -> list[dict[str, Any]]:
        return self.table("fusion_chains")

    @cached_property
    def fusion_steps(self) -> list[dict[str, Any]]:
        return self.table("fusion_steps")

    @cached_property
    def gaps(self) -> list[dict[str, Any]]:
        return self.table("idle_gaps")


def by_time(rows: Iterable[Row]) -> list[Row]:
    """Rows with most GPU time first."""
    return sorted(rows, key=lambda row: (-row.time_us, row.uid))


def _flat(value: Any) -> Iterator[tuple[int, ...]]:
    """The tuples of numbers in a value that may hold tuples of them."""
    if isinstance(value, tuple) and value:
        if isinstance(value[0], tuple):
            for inner in value:
                yield from _flat(inner)
        else:
            yield value


@lru_cache(maxsize=16)
def _table(path: Path) -> list[dict[str, Any]]:
    import polars as pl  # only to decode the file

    return pl.read_parquet(path).to_dicts()


def _read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _number(text: str) -> float | None:
    return float(text) if text else None


def _literal(text: str) -> tuple[Any, ...]:
    value = ast.literal_eval(text) if text else ()
    return value if isinstance(value, tuple) else ()
