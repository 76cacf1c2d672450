"""The runner: slices, sums, and the isolation of failures."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import polars as pl
import pytest

from jarvis.analyses import load_analyses
from jarvis.analyses.base import CategoryData
from jarvis.analyses.runner import NO_HARDWARE, run_analyses, split_operations
from jarvis.core.errors import MissingTableError
from jarvis.core.request import Targets
from jarvis.findings import Status
from jarvis.hardware import HardwareSpec
from jarvis.perf_models import BUILTIN, Registry
from jarvis.perf_report import Totals
from jarvis.perf_report.efficiency import NO_MODEL
from jarvis.text.messages import to_text
from tests.analyses.rows import MI300X, operation, operations, table, totals


@dataclass
class Report:
    """A report of hand-made tables."""

    tables: dict[str, pl.DataFrame]
    totals: Totals = field(default_factory=totals)
    hardware: HardwareSpec | None = MI300X
    registry: Registry = BUILTIN
    absent_tables: ClassVar[Mapping[str, str]] = {}

    def table(self, name: str) -> pl.DataFrame:
        try:
            return self.tables[name]
        except KeyError:
            raise MissingTableError(name, "not made") from None


def report(*rows, **options) -> Report:
    tables = {
        "operations": operations(*rows),
        "ops_summary": table("ops_summary"),
        "gpu_work": table("gpu_work"),
    }
    return Report(tables, **options)


GEMMS = (
    operation(
        "aten::mm", op_category="GEMM", time_us=3000.0, count=3, pct_roofline=20.0, bound="compute"
    ),
    operation("aten::mm", op_category="GEMM", time_us=1000.0, pct_roofline=60.0, bound="compute"),
    operation("aten::mm", op_category="GEMM", time_us=500.0, pct_roofline=150.0, bound="compute"),
    operation("aten::mm", op_category="GEMM", time_us=500.0),
)


def run(made: Report, analyses=None):
    analyses = analyses or load_analyses()
    return run_analyses(made, analyses, split_operations(made, analyses))


def test_sums_of_a_category() -> None:
    result = run(report(*GEMMS))["gemm"].result
    assert result.status is Status.OK
    assert result.gpu_time_ms == pytest.approx(5.0)
    assert result.percent_of_compute == pytest.approx(50.0)
    assert result.row_count == 4
    assert result.invocation_count == 6
    # weighted by time, without the anomaly and the unmodelled row
    assert result.efficiency_pct == pytest.approx((3 * 20 + 1 * 60) / 4)
    assert result.mean_efficiency_pct == pytest.approx(40.0)
    assert result.efficiency_coverage_pct == pytest.approx(80.0)


def test_rows_come_back_with_the_columns_of_their_category() -> None:
    outcomes = run(report(*GEMMS))
    rows = outcomes["gemm"].operations
    assert rows["kernel_time_us"].to_list() == [3000.0, 1000.0, 500.0, 500.0]
    assert {"m", "tile", "percent_of_category", "library"} <= set(rows.columns)
    assert outcomes["multi_kernel"].operations is None


def test_categories_without_rows_have_no_data_and_no_findings() -> None:
    result = run(report(*GEMMS))["convolution"].result
    assert result.status is Status.NO_DATA
    assert result.findings == ()
    assert result.efficiency_pct is None


def test_without_hardware_the_reason_is_in_the_notes() -> None:
    rows = [replaced(row, pct_roofline=None, bound=None) for row in GEMMS]
    result = run(report(*rows, hardware=None))["gemm"].result
    assert result.efficiency_pct is None
    assert to_text(result.notes) == NO_HARDWARE


def replaced(row: dict, **values) -> dict:
    return {**row, **values}


def test_notes_say_how_much_time_lacks_an_efficiency() -> None:
    row = replaced(GEMMS[3], roofline_note="No perf model covers this operator.")
    result = run(report(*GEMMS[:3], row))["gemm"].result
    assert to_text(result.notes) == (
        "1 row (`mm`, 0.500 ms) has no efficiency. No perf model covers this operator."
    )


def test_a_reason_agrees_with_the_number_of_rows() -> None:
    row = replaced(GEMMS[3], roofline_note=NO_MODEL)
    note = to_text(run(report(*GEMMS[:2], row, row))["gemm"].result.notes)
    assert note.startswith("2 rows (")
    assert note.endswith(" together) have no efficiency. No perf model covers these operators.")


def test_a_lower_limit_is_not_called_unknown() -> None:
    limit = "The efficiency considers only memory and is a lower limit."
    row = replaced(GEMMS[1], bound="memory only", roofline_note=limit)
    result = run(report(*GEMMS[:1], row))["gemm"].result
    assert to_text(result.notes) == f"{limit} This concerns 1 row (`mm`, 1.00 ms)."


def failing(data: CategoryData):
    raise ZeroDivisionError("as it happens")
    yield


def test_an_analysis_that_fails_leaves_the_others_alone() -> None:
    analyses = dict(load_analyses())
    analyses["gemm"] = replace(analyses["gemm"], checks=(failing,))
    outcomes = run(report(*GEMMS, operation("aten::cat", time_us=1000.0)), analyses)
    result = outcomes["gemm"].result
    assert result.status is Status.ERROR
    assert result.error == "ZeroDivisionError: as it happens"
    assert "in failing" in result.traceback
    assert result.findings == ()
    assert outcomes["other"].result.status is Status.OK


def test_a_missing_table_is_no_error_of_a_system_analysis() -> None:
    result = run(report(*GEMMS))["multi_kernel"].result
    assert result.status is Status.OK
    assert result.metrics["memcpy_summary"]["total_count"] is None


def test_findings_are_ranked() -> None:
    findings = run(report(*GEMMS))["gemm"].result.findings
    assert [f.priority.rank for f in findings] == sorted(f.priority.rank for f in findings)


def test_equal_input_gives_equal_bytes() -> None:
    first, second = (run(report(*GEMMS))["gemm"].result.model_dump_json() for _ in range(2))
    assert first == second


def test_only_checks_that_read_the_target_run_again_at_another_one() -> None:
    made, runs = report(*GEMMS), []

    def of_rows(data: CategoryData):
        runs.append("rows")
        yield from ()

    def of_target(data: CategoryData):
        runs.append(data.target_pct)
        yield from ()

    def of_target_inside(data: CategoryData):
        data.once("inside", lambda inner: runs.append(("inside", inner.target_pct)))
        yield from ()

    checks = (of_rows, of_target, of_target_inside)
    analyses = {"gemm": replace(load_analyses()["gemm"], checks=checks, specific=())}
    split, known = split_operations(made, analyses), {}
    for pct in (60.0, 90.0):
        run_analyses(made, analyses, split, targets=Targets(pct), known=known)
    assert runs == ["rows", 60.0, ("inside", 60.0), 90.0, ("inside", 90.0)]


def test_what_analyses_keep_changes_no_finding() -> None:
    made, known = report(*GEMMS), {}
    analyses = load_analyses()
    split = split_operations(made, analyses)
    for pct in (90.0, 30.0, 50.0, 90.0):
        reused, fresh = (
            run_analyses(made, analyses, split, targets=Targets(pct), known=each)
            for each in (known, {})
        )
        assert [o.result for o in reused.values()] == [o.result for o in fresh.values()]
