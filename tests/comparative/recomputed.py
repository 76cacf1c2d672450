"""What the comparative reports of two recorded traces must say, from the sheets of both runs.

Every value is in ms, %, TB/s or TFLOP/s, or a plain number, as ``tests.arithmetic.printed`` reads
them. Nothing here uses the comparison engine.
"""

import ast
import csv
import gzip
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.arithmetic.replayed import replayed_savings, without_kernels_ms
from tests.arithmetic.run_directory import RunDirectory
from tests.arithmetic.steps import PARTS

csv.field_size_limit(10**9)

TOLERANCE = 1.2
FIGURES = {
    "h100": {"memory": 3.35, "matrix_bf16": 990, "vector_bf16": 133.8, "vector_fp32": 66.9},
    "mi300": {
        "memory": 5.3,
        "matrix_bf16": 708,
        "matrix_fp32": 163,
        "vector_bf16": 163,
        "vector_fp32": 81,
    },
}
LEAST, MOST = 3350 / 5300, 1979 / 1273
"""The ratios of bandwidths and of fp8 peaks: the ends of what any figure of both explains."""

DTYPES = {"c10::BFloat16": "bf16", "float": "fp32", "long int": "int64", "bool": "bool"}
KEY = ("name", "Input Dims", "Input type")
SLOWER, FASTER = ("slower", "much slower"), ("faster", "much faster")
Row = dict[str, str]


@dataclass(frozen=True, eq=False)
class Call:
    """One operation on one GPU, from its rows in the unified sheet."""

    gpu: str
    rows: tuple[Row, ...]

    @cached_property
    def count(self) -> int:
        return sum(int(row["operation_count"]) for row in self.rows)

    @cached_property
    def ms(self) -> float:
        return sum(float(row["Kernel Time (µs)_sum"]) for row in self.rows) / 1e3

    @property
    def per_call_ms(self) -> float:
        return self.ms / self.count

    @cached_property
    def rooflines(self) -> dict[str, float] | None:
        """The roofline time of a call in ms by what would bound it; None without a model."""
        row = self.rows[0]
        if row["Data Moved (MB)"] == "":
            return None
        moved = float(row["Data Moved (MB)"]) * 2**20
        found = {"memory": moved / FIGURES[self.gpu]["memory"] / 1e9}
        if (peak := FIGURES[self.gpu].get(row["Compute Spec"])) is not None:
            found["compute"] = float(row["GFLOPS"]) / peak
        return found

    @property
    def bound(self) -> str | None:
        found = self.rooflines
        return None if found is None else max(found, key=lambda kind: found[kind])

    @property
    def roofline_ms(self) -> float | None:
        return None if self.rooflines is None else max(self.rooflines.values())

    @property
    def efficiency(self) -> float | None:
        return None if self.roofline_ms is None else 100 * self.roofline_ms / self.per_call_ms

    @property
    def figure(self) -> float:
        """The figure of the GPU that bounds it."""
        key = "memory" if self.bound == "memory" else self.rows[0]["Compute Spec"]
        return FIGURES[self.gpu][key]

    @property
    def is_short(self) -> bool:
        """Whether starting the call decides."""
        roofline = self.roofline_ms
        return self.per_call_ms < 0.01 and (roofline is None or roofline < 0.002)


@dataclass(frozen=True, eq=False)
class Operation:
    """One operation on both GPUs, and what the hardware explains of it."""

    target: Call
    reference: Call

    @property
    def name(self) -> str:
        return self.target.rows[0]["name"]

    @property
    def arguments(self) -> str:
        """``[8,4] bf16, [4,2] bf16``: shapes and types of its tensors."""
        shapes = ast.literal_eval(self.target.rows[0]["Input Dims"])
        types = ast.literal_eval(self.target.rows[0]["Input type"])
        named = ((shape, DTYPES.get(dtype)) for shape, dtype in zip(shapes, types, strict=True))
        return ", ".join(
            f"[{','.join(map(str, shape))}] {dtype}" for shape, dtype in named if dtype
        )

    @property
    def ratio(self) -> float:
        return self.target.per_call_ms / self.reference.per_call_ms

    @property
    def change(self) -> float:
        return 100 * (self.target.ms / self.reference.ms - 1)

    @cached_property
    def hardware(self) -> tuple[float, tuple[float, ...]] | None:
        """The ratio that the figures of both GPUs give, and the figures; None without a bound."""
        target, reference = self.target, self.reference
        if target.roofline_ms is None or reference.roofline_ms is None:
            return None
        if target.bound != reference.bound:
            figures = (target.roofline_ms, reference.roofline_ms)
            return figures[0] / figures[1], figures
        figures = (reference.figure, target.figure)
        return figures[0] / figures[1], figures

    @cached_property
    def expected(self) -> tuple[float, float]:
        """The least and the most ratio."""
        if self.is_tiny:
            return 1.0, 1.0
        least, most = (self.hardware[0],) * 2 if self.hardware else (LEAST, MOST)
        if self.target.is_short or self.reference.is_short:
            return min(least, 1.0), max(most, 1.0)
        return least, most

    @property
    def is_tiny(self) -> bool:
        """Whether a roofline is below a microsecond, so that it explains nothing."""
        rooflines = (self.target.roofline_ms, self.reference.roofline_ms)
        return any(ms is not None and ms < 0.001 for ms in rooflines)

    @property
    def is_range(self) -> bool:
        return self.expected[0] != self.expected[1]

    @property
    def attainable_ms(self) -> float:
        per_call = self.reference.per_call_ms * self.expected[1]
        return self.target.count * max(per_call, self.target.roofline_ms or 0.0)

    @property
    def off(self) -> float:
        """The ratio over the end of the expected range that it is beyond."""
        least, most = self.expected
        return (
            self.ratio / min(max(self.ratio, least), most) if self.is_range else self.ratio / most
        )

    @property
    def outcome(self) -> str:
        if self.target.is_short and self.reference.is_short:
            return "too short"
        if self.off > TOLERANCE:
            return "much slower" if self.off > 2 else "slower"
        if self.off < 1 / TOLERANCE:
            return "much faster" if self.off < 1 / 2 else "faster"
        return "as expected"

    @property
    def gap_ms(self) -> float:
        return self.target.ms - self.attainable_ms if self.outcome in SLOWER else 0.0

    @property
    def sure_ms(self) -> float:
        """What the tolerance would not let pass."""
        return max(0.0, self.target.ms - TOLERANCE * self.attainable_ms)

    def told_expected(self) -> list[float]:
        """The numbers of what is expected and why, as they stand in a sentence."""
        least, most = self.expected
        if self.is_tiny:
            return [most]
        if self.hardware is None:
            return [least, most]
        figures = list(self.hardware[1])
        return [least, most, 1, *figures] if self.is_range else [most, *figures]

    def told_attainable(self) -> list[float]:
        calls, per_call = self.target.count, self.reference.per_call_ms
        if (self.target.roofline_ms or 0.0) > per_call * self.expected[1]:
            return [calls, self.target.roofline_ms or 0.0, self.attainable_ms]
        return [calls, per_call, self.expected[1], self.attainable_ms]

    def told_actual(self) -> list[float]:
        return [self.target.per_call_ms, self.reference.per_call_ms, self.ratio]

    def told_whole(self) -> list[float]:
        """The numbers of the sentences that work it out."""
        begin = [*self.told_actual(), *self.told_expected(), self.off, TOLERANCE]
        if self.outcome not in SLOWER:
            return begin
        end = [self.target.ms, self.attainable_ms, self.gap_ms]
        return [*begin, *self.told_attainable(), *end]


@dataclass(frozen=True, eq=False)
class Gap:
    """The operations of one name that are slower than explained: what a finding is about."""

    operations: tuple[Operation, ...]
    compute_ms: float
    step_ms: tuple[float, float, float]
    """What shorter kernels save of the steps, and the span of these."""
    span_ms: float

    @property
    def target_ms(self) -> float:
        return sum(each.target.ms for each in self.operations)

    @property
    def reference_ms(self) -> float:
        return sum(each.target.ms / each.ratio for each in self.operations)

    @property
    def attainable_ms(self) -> float:
        return sum(each.attainable_ms for each in self.operations)

    @property
    def saved_ms(self) -> tuple[float, float, float]:
        return saved_ms(self.operations)

    @property
    def is_relevant(self) -> bool:
        least_ms = max(0.005 * self.compute_ms, 0.01)
        return self.target_ms >= 0.01 * self.compute_ms and self.saved_ms[2] >= least_ms

    def told_gap(self) -> list[float]:
        """How much slower or faster it is and should be; nothing where it should be no slower."""
        actual = 100 * (self.target_ms / self.reference_ms - 1)
        expected = 100 * (self.attainable_ms / self.reference_ms - 1)
        return [abs(actual), *([abs(expected)] if abs(expected) > 1e-9 else [])]

    def told_impact(self) -> list[float]:
        low, _, high = self.saved_ms
        mid = self.step_ms[1]
        return [mid, 100 * mid / self.span_ms, low, high] if self.step_ms[2] else []


def saved_ms(operations: Iterable[Operation]) -> tuple[float, float, float]:
    """GPU time between the sides: what surely is, the middle, and all that is not explained."""
    pairs = [(each.sure_ms, each.gap_ms) for each in operations]
    low, high = (sum(ends) for ends in zip(*pairs, strict=True)) if pairs else (0.0, 0.0)
    return low, (low + high) / 2, high


class Recomputed:
    """Two run directories compared, from their CSV files."""

    def __init__(self, target: Path, reference: Path, traces: dict[str, Path]) -> None:
        self.roots = {"mi300": target, "h100": reference}
        self.traces = traces

    def unlinked(self, gpu: str) -> list[float]:
        """Time of GPU events whose launch is not in the trace, in ms and percent of all."""
        events = json.loads(gzip.decompress(self.traces[gpu].read_bytes()))["traceEvents"]
        launched = {
            event["args"].get("correlation")
            for event in events
            if event.get("cat") in ("cuda_runtime", "cuda_driver") and "args" in event
        }
        work = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
        left = sum(e["dur"] for e in work if e["args"].get("correlation") not in launched)
        return [left / 1e3, 100 * left / sum(event["dur"] for event in work)]

    def sheet(self, gpu: str, name: str) -> list[Row]:
        path = self.roots[gpu] / "perf_report_csvs" / f"{name}.csv"
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    @cached_property
    def timelines(self) -> dict[str, dict[str, float]]:
        """Time of each part of the timeline by GPU."""
        return {
            gpu: {row["type"]: float(row["time ms"]) for row in self.sheet(gpu, "gpu_timeline")}
            for gpu in self.roots
        }

    @cached_property
    def step_parts_ms(self) -> dict[str, list[float]]:
        """The parts of one step by GPU, the mean of the steps, and their sum."""
        import polars as pl  # only to decode the file

        found = {}
        for gpu, root in self.roots.items():
            rows = pl.read_parquet(root / "tables/steps.parquet").to_dicts()
            parts = [sum(row[part] for row in rows) / 1e6 / len(rows) for part in PARTS]
            found[gpu] = [*parts, sum(parts)]
        return found

    @cached_property
    def operations(self) -> list[Operation]:
        """What both have, most time of the target first."""
        calls: dict[str, dict[tuple[str, ...], list[Row]]] = {gpu: {} for gpu in self.roots}
        for gpu, grouped in calls.items():
            for row in self.sheet(gpu, "unified_perf_summary"):
                if float(row["Kernel Time (µs)_sum"] or 0) > 0:
                    grouped.setdefault(tuple(row[key] for key in KEY), []).append(row)
        assert calls["mi300"].keys() == calls["h100"].keys()
        pairs = [
            Operation(Call("mi300", tuple(rows)), Call("h100", tuple(calls["h100"][key])))
            for key, rows in calls["mi300"].items()
        ]
        return sorted(pairs, key=lambda pair: -pair.target.ms)

    def gap(self, name: str) -> Gap:
        """The operations of this name that are slower than explained."""
        manifest = json.loads((self.roots["mi300"] / "manifest.json").read_text())
        step = manifest["totals"]["step"]
        compute_ms = self.timelines["mi300"]["computation_time"]
        rows = [op for op in self.operations if op.name == name and op.outcome in SLOWER]
        return Gap(tuple(rows), compute_ms, self._step_ms(rows), step["step_ms"])

    def _step_ms(self, rows: list[Operation]) -> tuple[float, float, float]:
        """The step time that the operations save if they take less GPU time."""
        run = RunDirectory(self.roots["mi300"], self.traces["mi300"])
        uids = {int(row["ex_UID"]) for operation in rows for row in operation.target.rows}
        own = [event for event in run.table("gpu_work") if event["operation_uid"] in uids]
        saving = saved_ms(rows)
        slower = {"time_pool": None, "check": "slower", "impact": {"method": "upper bound"}}
        replays = replayed_savings(run, slower, own, saving)
        assert replays is not None
        limit = without_kernels_ms(run)
        low, mid, high = (min(max(each, 0.0), limit) for each in replays)
        low, high = min(low, mid), max(mid, high)
        return min(low, saving[0]), min(mid, saving[1]), min(high, saving[2])

    @cached_property
    def gaps(self) -> set[str]:
        """The names that findings are about."""
        return {op.name for op in self.operations if self.gap(op.name).is_relevant}

    def of(self, *outcomes: str) -> list[Operation]:
        return [op for op in self.operations if op.outcome in outcomes]


def finding_names(root: Path) -> list[str]:
    """The operators of the findings in the order of their numbers."""
    facts = json.loads((root / "comparison_data" / "comparison.json").read_text())
    return [finding["operations"][0]["name"] for finding in facts["findings"]]


def finding_priorities(root: Path) -> list[str]:
    """The priorities of the findings in the order of their numbers."""
    facts = json.loads((root / "comparison_data" / "comparison.json").read_text())
    return [finding["priority"] for finding in facts["findings"]]
