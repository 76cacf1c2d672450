"""Reports that are written and read back."""

import math
from pathlib import Path

import polars as pl
import pytest

from jarvis.core.errors import UnreadableReportError
from jarvis.hardware import load_hardware
from jarvis.reports.csv import write_csvs
from jarvis.reports.reading import read_report
from jarvis.reports.xlsx import MAX_CELL, write_workbook
from jarvis.tracelens.options import ReportOptions
from jarvis.tracelens.report import TraceLensReport
from tests.builders import trace

OPTIONS = ReportOptions(enable_kernel_summary=True, include_call_stack=True)


@pytest.fixture(scope="module")
def sheets() -> dict[str, pl.DataFrame]:
    builder = trace().process("python").python("model.py(3): forward")
    builder.child("aten::mm", [[8, 4], [4, 2]]).launches("gemm", us=12).launches("split", us=7)
    builder.op("c10d::allreduce_").launches("ncclDevKernel", us=3.2)
    builder.op("aten::add", [[3], [3]]).launches("k", us=1 / 3)
    return TraceLensReport(builder.read(), load_hardware().get("H200"), options=OPTIONS).sheets()


def agree(ours: object, read: object) -> bool:
    if isinstance(ours, float) and isinstance(read, float | int):
        return math.isclose(ours, read, rel_tol=1e-14)
    return read == (None if ours == "" else ours)


@pytest.mark.parametrize("form", ["xlsx", "csv"])
def test_a_report_is_read_as_it_was_written(
    sheets: dict[str, pl.DataFrame], tmp_path: Path, form: str
) -> None:
    place = tmp_path / "report.xlsx"
    if form == "xlsx":
        write_workbook(sheets, place)
    else:
        place = tmp_path
        write_csvs(sheets, place)
    read = read_report(place)
    assert set(read) == set(sheets)
    for name, frame in sheets.items():
        assert read[name].columns == frame.columns
        assert read[name].height == frame.height
        for column in frame.columns:
            pairs = zip(frame[column], read[name][column], strict=True)
            assert all(agree(*pair) for pair in pairs), (name, column)


@pytest.mark.parametrize("form", ["xlsx", "csv"])
def test_types_are_those_of_the_schema_not_of_the_cells(tmp_path: Path, form: str) -> None:
    coll = pl.DataFrame(
        {"Process Group Name": ["0"], "Group size": [8], "dur_mean": [2.0], "dur_std": [None]}
    )
    roofline = pl.DataFrame({"name": ["aten::mm"], "param: M": [8], "param: bias": ["False"]})
    written = {"coll_analysis": coll, "GEMM": roofline}
    place = tmp_path / "report.xlsx" if form == "xlsx" else tmp_path
    if form == "xlsx":
        write_workbook(written, place)
    else:
        write_csvs(written, place)
    read = read_report(place)
    assert read["coll_analysis"].schema == {
        "Process Group Name": pl.String,
        "Group size": pl.Int64,
        "dur_mean": pl.Float64,
        "dur_std": pl.Float64,
    }
    assert read["coll_analysis"].rows() == [("0", 8, 2.0, None)]
    assert read["GEMM"].rows() == [("aten::mm", 8, "False")]
    assert read["GEMM"].schema["param: M"] == pl.Int64


def test_a_cell_that_is_too_long_comes_back_cut(tmp_path: Path) -> None:
    place = tmp_path / "report.xlsx"
    write_workbook({"ops_summary": pl.DataFrame({"name": ["x" * 40_000]})}, place)
    assert read_report(place)["ops_summary"]["name"].to_list() == ["x" * MAX_CELL]


def test_a_file_without_columns_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "short_kernels_summary.csv").write_text("\n")
    (tmp_path / "ops_summary.csv").write_text("name,Count\naten::mm,3\n")
    assert {name: frame.rows() for name, frame in read_report(tmp_path).items()} == {
        "ops_summary": [("aten::mm", 3)]
    }


@pytest.mark.parametrize("kind", ["missing", "text", "empty folder", "ragged"])
def test_what_is_no_report_is_reported(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "report.xlsx"
    if kind == "text":
        place.write_text("hello")
    elif kind == "empty folder":
        place.mkdir()
    elif kind == "ragged":
        place.mkdir()
        (place / "ops_summary.csv").write_text("name\na,b\n")
    with pytest.raises(UnreadableReportError, match=r"report\.xlsx is not a readable report"):
        read_report(place)


def test_reports_of_tracelens_are_read(reference_root: Path) -> None:
    report = read_report(reference_root / "reference" / "torch-compile-triton" / "kernels_short")
    assert "short_kernels_summary" not in report  # a table without columns
    timeline = dict(report["gpu_timeline"].select("type", "percent").iter_rows())
    assert timeline["total_time"] == 100.0
    unified = report["unified_perf_summary"]
    assert unified.schema["operation_count"] == pl.Int64
    assert unified.schema["kernel_details_summary"] == pl.String
    assert unified["Percentage (%)"].sum() == pytest.approx(100.0)
