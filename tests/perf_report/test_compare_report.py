"""Compared reports: every row once, consistent differences, all requested sheets."""

from collections.abc import Mapping
from pathlib import Path

import openpyxl
import polars as pl
import pytest

from jarvis.core.errors import NotComparableError
from jarvis.reports.reading import read_report
from jarvis.reports.xlsx import MAX_TAB_NAME, write_workbook
from jarvis.tracelens.compare_report import NamedReport, compare_reports, hidden_columns
from jarvis.tracelens.options import GROUPS

KERNEL_TIME = "Kernel duration (µs)_sum"
ROOFLINE_TIME = "Kernel Time (µs)_sum"


def kernels(*rows: tuple[str, str, int, float]) -> dict[str, pl.DataFrame]:
    """``kernel_summary`` with rows of name, operator, stream and time."""
    names = ["Kernel name", "Parent cpu_op", "Kernel stream", KERNEL_TIME]
    frame = pl.DataFrame(rows, schema=names, orient="row")
    return {"kernel_summary": frame.with_columns(pl.lit(1).alias("Kernel duration (µs)_count"))}


def products(*rows: tuple[object, str, float]) -> dict[str, pl.DataFrame]:
    """``GEMM`` with rows of M, transpose and time."""
    columns = {
        "param: M": [m for m, _, _ in rows],
        "param: transpose": [transpose for _, transpose, _ in rows],
        ROOFLINE_TIME: [time for _, _, time in rows],
    }
    return {"GEMM": pl.DataFrame({"name": ["aten::mm"] * len(rows), **columns, "name_count": 1})}


def pair(a: Mapping[str, pl.DataFrame], b: Mapping[str, pl.DataFrame]) -> list[NamedReport]:
    return [NamedReport("a", a), NamedReport("b", b)]


def cells(frame: pl.DataFrame, *names: str) -> list[tuple[object, ...]]:
    return frame.select(names).rows()


def test_rows_with_one_kernel_name_are_paired_not_multiplied() -> None:
    ours = kernels(("k", "mul", 0, 5.0), ("k", "add", 0, 3.0), ("k", "neg", 0, 2.0))
    theirs = kernels(("k", "add", 7, 4.0), ("k", "div", 7, 1.0))
    sheet = compare_reports(pair(ours, theirs), ["kernel_summary"])["kernel_summary"]
    assert cells(sheet, "a::Parent cpu_op", "b::Parent cpu_op", f"{KERNEL_TIME}__b_diff") == [
        ("mul", "div", -4.0),
        ("add", "add", 1.0),
        ("neg", None, None),
    ]


@pytest.mark.parametrize("name", ["mi300-resnet-ddp-checkpoint", "mi300-qwen1.5-0.5b"])
def test_a_report_compared_with_itself_has_no_difference(reference_root: Path, name: str) -> None:
    report = read_report(reference_root / "reference" / name / "kernels_short")
    sheets = compare_reports(pair(report, report))
    assert sheets["kernel_summary"].height == report["kernel_summary"].height
    for sheet in ("ops_unique_args", "unified_perf_summary"):
        assert sheets[f"{sheet}_intersect_b"].height == report[sheet].height
    for sheet, frame in sheets.items():
        assert "_only_" not in sheet or frame.width == 0, sheet
        for column in frame.select(pl.col("^.*__b_(diff|pct)$")).iter_columns():
            assert set(column.fill_null(0)) <= {0}, (sheet, column.name)


def test_every_row_of_recorded_reports_occurs_once(reference_root: Path) -> None:
    reports = [
        NamedReport(name, read_report(reference_root / "reference" / folder / "kernels_short"))
        for name, folder in (("h", "h100-qwen1.5-0.5b"), ("m", "mi300-qwen1.5-0.5b"))
    ]
    sheet = compare_reports(reports)["kernel_summary"]
    for report in reports:
        whole = report.sheets["kernel_summary"]
        shown = sheet[f"{report.label}::{KERNEL_TIME}"]
        assert shown.count() == whole.height
        assert shown.sum() == pytest.approx(whole[KERNEL_TIME].sum())


def test_swapped_reports_give_the_differences_with_the_other_sign(reference_root: Path) -> None:
    a, b = (
        read_report(reference_root / "reference" / f"{gpu}-bert-small" / "kernels_short")
        for gpu in ("h100", "mi300")
    )
    one = compare_reports([NamedReport("x", a), NamedReport("y", b)])
    other = compare_reports([NamedReport("y", b), NamedReport("x", a)])
    assert one["ops_unique_args_only_variant_y"].equals(other["ops_unique_args_only_baseline_x"])
    for sheet, key in (("gpu_timeline", "type"), ("ops_summary", "name")):
        column = "time ms" if key == "type" else "total_direct_kernel_time_ms"
        there = dict(one[sheet].select(key, f"{column}__y_diff").iter_rows())
        back = dict(other[sheet].select(key, -pl.col(f"{column}__x_diff")).iter_rows())
        assert there == pytest.approx(back)


def test_all_means_what_every_report_has(reference_root: Path) -> None:
    folder = reference_root / "reference" / "h100-bert-small"
    default, full = read_report(folder / "default"), read_report(folder / "kernels_short")
    assert "kernel_summary" not in compare_reports(pair(full, default))
    assert "kernel_summary" in compare_reports(pair(full, full))
    with pytest.raises(NotComparableError, match=r"no sheet kernel_summary in b; omit"):
        compare_reports(pair(full, default), ["kernel_summary"])


def test_a_family_that_one_report_lacks_is_listed_without_comparison() -> None:
    ours = products((8, "NN", 2.0), (16, "NT", 5.0))
    for reports, part in ((pair(ours, {}), "only_baseline"), (pair({}, ours), "only_variant")):
        sheets = compare_reports(reports, ["roofline"])
        label = "a" if part == "only_baseline" else "b"
        assert sheets[f"GEMM_{part}_b"][f"{label}::{ROOFLINE_TIME}"].to_list() == [5.0, 2.0]
        assert sheets["GEMM_intersect_b"].width == 0


def test_parameters_match_however_they_are_spelled_and_only_common_ones_count() -> None:
    theirs = products(("8", "TN", 3.0))
    theirs["GEMM"] = theirs["GEMM"].drop("param: transpose")
    sheets = compare_reports(pair(products((8, "NN", 2.0)), theirs), ["roofline"])
    both = sheets["GEMM_intersect_b"]
    assert cells(both, "param: M", f"{ROOFLINE_TIME}__b_pct") == [("8", 50.0)]
    assert both["a::param: transpose"].to_list() == ["NN"]


def test_lists_and_tuples_are_the_same_arguments() -> None:
    def calls(dims: str) -> dict[str, pl.DataFrame]:
        arguments = ("Input type", "Input Strides", "Concrete Inputs")
        call = {"name": "aten::mm", "Input Dims": dims} | dict.fromkeys(arguments)
        time = {"total_direct_kernel_time_sum": 1.0, "operation_count": 1}
        return {"ops_unique_args": pl.DataFrame([call | time])}

    sheets = compare_reports(pair(calls("((8, 4), ())"), calls("[[8, 4], []]")), ["ops_all"])
    assert sheets["ops_unique_args_intersect_b"]["Input Dims"].to_list() == ["((8, 4), ())"]
    assert sheets["ops_all_intersect_b"].equals(sheets["ops_unique_args_intersect_b"])


def test_each_of_several_reports_is_compared_with_the_first() -> None:
    reports = [NamedReport(n, products((8, "NN", t))) for n, t in (("a", 2.0), ("b", 3.0))]
    reports.append(NamedReport("c", products((8, "NN", 1.0), (16, "NN", 9.0))))
    sheets = compare_reports(reports, ["roofline"])
    assert sheets["GEMM_intersect_c"][f"{ROOFLINE_TIME}__c_pct"].to_list() == [-50.0]
    assert f"{ROOFLINE_TIME}__b_pct" not in sheets["GEMM_intersect_c"].columns
    assert sheets["GEMM_only_variant_c"]["c::" + ROOFLINE_TIME].to_list() == [9.0]
    assert sheets["GEMM_only_variant_b"].width == 0


@pytest.mark.parametrize(
    ("labels", "groups", "sentence"),
    [
        (["a"], ["all"], "at least two"),
        (["a", "a"], ["all"], "a unique name"),
        (["a", "a::b"], ["all"], "a unique name"),
        (["a", "b"], ["ops"], f"choose from {', '.join(GROUPS)}"),
    ],
)
def test_uncomparable_inputs_are_reported(
    labels: list[str], groups: list[str], sentence: str
) -> None:
    reports = [NamedReport(label, products((8, "NN", 2.0))) for label in labels]
    with pytest.raises(NotComparableError, match=sentence):
        compare_reports(reports, groups)


def test_a_workbook_keeps_spreads_out_of_sight(reference_root: Path, tmp_path: Path) -> None:
    report = read_report(reference_root / "reference" / "h100-bert-small" / "default")
    sheets = compare_reports(pair(report, report))
    place = write_workbook(sheets, tmp_path / "comparison.xlsx", hidden_columns)
    book = openpyxl.load_workbook(place)
    assert all(len(name) <= MAX_TAB_NAME for name in book.sheetnames)
    tab = book["GEMM_intersect_b"]
    hidden = {cell.value for cell in tab[1] if tab.column_dimensions[cell.column_letter].hidden}
    assert {"a::TB/s_median", "b::Kernel Time (µs)_std", "a::Input Dims_first"} <= hidden
    assert not {"name", "param: M", "a::Kernel Time (µs)_sum"} & hidden
    assert {"a::ex_UID", "a::Kernel Time (µs)_max"} <= {
        *hidden_columns(sheets["unified_perf_summary_intersect_b"].columns)
    }
