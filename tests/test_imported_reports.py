"""Reports in place of a trace: the same numbers, and notes on missing data."""

import csv
import shutil
import zipfile
from functools import cache
from pathlib import Path

import pandas
import polars as pl
import pytest

from jarvis.analyses import load_registry
from jarvis.analyses.runner import ReportTables, run_analyses, split_operations
from jarvis.core.errors import NotAReportError, UnreadableReportError
from jarvis.findings import AnalysisResult, Status
from jarvis.hardware import load_hardware
from jarvis.perf_models import BUILTIN
from jarvis.perf_report.unavailable import ABSENT
from jarvis.pipeline import analyze, compare, reproject
from jarvis.reports.csv import write_csvs
from jarvis.reports.reading import content_sha256, is_report, read_report
from jarvis.reports.xlsx import write_workbook
from jarvis.run import Run
from jarvis.schemas.names import C
from jarvis.trace import read_trace
from jarvis.tracelens.imported import ImportedReport, typed_sheets
from jarvis.tracelens.options import ReportOptions
from jarvis.tracelens.report import TraceLensReport
from jarvis.tracelens.sheets import sheets
from jarvis.validation import is_valid, validate
from tests.builders import trace
from tests.recorded_runs import RECORDED

MI300X = load_hardware().get("MI300X")
OPTIONS = {"default": ReportOptions(), "kernels_short": ReportOptions(enable_kernel_summary=True)}
NUMBERS = (
    "gpu_time_ms",
    "percent_of_compute",
    "efficiency_pct",
    "mean_efficiency_pct",
    "efficiency_coverage_pct",
    "row_count",
    "invocation_count",
)
"""Numbers of an analysis of operators."""

MIXED_KERNELS = ("sglang-qwen3-8b-decode", "elementwise")
"""A row of two calls, of which one is a copy to the host: the sheet names the kernels of the first,
so the imported report takes both for copies, and the row has no efficiency. Kernels of this trace
overlap, so the shares of all operations are parts of a sum that lacks this row."""

MIXED_KERNELS_SHARE = 1e-3
"""The share of that row in compute, and a margin."""


def variant_of(name: str) -> str:
    """Return the most detailed reference report of a trace: kernels if it has no operators."""
    return "kernels_short" if name == "mi210-gpu-only" else "default"


@cache
def trace_report(path: Path, variant: str) -> TraceLensReport:
    return TraceLensReport(read_trace(path), MI300X, options=OPTIONS[variant])


def imported(place: Path) -> ImportedReport:
    return ImportedReport(typed_sheets(read_report(place), place), MI300X, BUILTIN)


def results(report: ReportTables) -> dict[str, AnalysisResult]:
    analyses = load_registry().analyses
    outcomes = run_analyses(report, analyses, split_operations(report, analyses))
    return {key: outcome.result for key, outcome in outcomes.items()}


def assert_same_numbers(name: str, ours: ReportTables, read: ReportTables, rel: float) -> None:
    of_trace, of_report = results(ours), results(read)
    compared = 0
    for key, result in of_trace.items():
        if result.tier != "compute" or (name, key) == MIXED_KERNELS:
            continue
        for number in NUMBERS:
            expected = getattr(result, number)
            found = getattr(of_report[key], number)
            is_mixed = name == MIXED_KERNELS[0] and number == "percent_of_compute"
            within = MIXED_KERNELS_SHARE if is_mixed else rel
            assert found == (None if expected is None else pytest.approx(expected, rel=within)), (
                key,
                number,
            )
            compared += bool(expected)
    assert compared > 5


@pytest.mark.parametrize("name", RECORDED)
def test_a_report_of_tracelens_gives_the_categories_of_its_trace(
    reference_root: Path, name: str
) -> None:
    variant = variant_of(name)
    ours = trace_report(reference_root / "traces" / f"{name}.json.gz", variant)
    place = reference_root / "reference" / name / variant
    assert_same_numbers(name, ours, imported(place), rel=4e-4)


NOT_IN_A_WORKBOOK = ("linked_pct", "step")
"""Totals that only events tell."""


@pytest.mark.parametrize("name", ["h100-bert-small", "mi300-bert-small"])
def test_rooflines_of_a_report_without_a_platform_remain(reference_root: Path, name: str) -> None:
    place = reference_root / "reference" / name / "arch_MI300X"
    typed = typed_sheets(read_report(place), place)
    read = sheets(ImportedReport(typed, None, BUILTIN).sheets)
    cells = 0
    for path in place.glob("*.csv"):
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        for column in [c for c in rows[0] if "Roofline" in c]:
            values = [row[column] for row in rows]
            shown = ["" if cell is None else str(cell) for cell in read[path.stem][column]]
            assert shown == values, (path.stem, column)
            cells += len(values)
    assert cells > 100
    other = ImportedReport(typed, load_hardware().get("H100 SXM"), BUILTIN).sheets
    gemm, time = other["GEMM"], C.roofline_time_us
    assert gemm[time].to_list() != typed["GEMM"][time].to_list()


@pytest.mark.parametrize("name", RECORDED)
def test_our_workbook_gives_the_categories_of_its_trace(
    reference_root: Path, tmp_path: Path, name: str
) -> None:
    ours = trace_report(reference_root / "traces" / f"{name}.json.gz", variant_of(name))
    place = write_workbook(ours.sheets(), tmp_path / "perf_report.xlsx")
    read = imported(place)
    assert_same_numbers(name, ours, read, rel=1e-9)
    parts = {
        f: getattr(ours.totals, f) for f in ours.totals.__slots__ if f not in NOT_IN_A_WORKBOOK
    }
    assert {f: getattr(read.totals, f) for f in parts} == pytest.approx(parts, rel=1e-9)


def test_a_workbook_as_tracelens_writes_it_is_read(reference_root: Path, tmp_path: Path) -> None:
    name = "h100-bert-small"
    folder, place = reference_root / "reference" / name / "default", tmp_path / "r.xlsx"
    with pandas.ExcelWriter(place) as writer:
        for sheet in sorted(folder.glob("*.csv")):
            frame = pandas.read_csv(sheet)
            frame.to_excel(writer, sheet_name=sheet.stem, index=False)
    ours = trace_report(reference_root / "traces" / f"{name}.json.gz", "default")
    assert_same_numbers(name, ours, imported(place), rel=4e-4)


def test_a_workbook_that_is_read_has_its_sheets_and_rooflines(
    reference_root: Path, tmp_path: Path
) -> None:
    ours = trace_report(
        reference_root / "traces" / "mi300-resnet-ddp-checkpoint.json.gz", "default"
    )
    other = load_hardware().get("H100 SXM")
    written = TraceLensReport(ours.trace, other).sheets()  # with rooflines of another GPU
    read = sheets(imported(write_workbook(written, tmp_path / "r.xlsx")).sheets)
    for name, frame in ours.sheets().items():
        assert read[name].columns == frame.columns
        for column in frame.columns:
            for expected, found in zip(frame[column], read[name][column], strict=True):
                known = (
                    pytest.approx(expected, rel=1e-9) if isinstance(expected, float) else expected
                )
                assert found == known or (expected == "" and found is None), (name, column)


def test_operations_without_a_model_use_the_costs_of_the_report(tmp_path: Path) -> None:
    row = {
        "name": "mylib::scan",
        "op category": "Scan_fwd",
        "operation_count": 2,
        "ex_UID": 7,
        "GFLOPS": 3.0,
        "Data Moved (MB)": 4.0,
        "Compute Spec": "matrix_bf16",
        "Kernel Time (µs)_sum": 20.0,
        "Kernel Time (µs)_mean": 10.0,
        "has_perf_model": True,
        "perf_params": "{'M': 8, 'flag': False}",
        "kernel_details_summary": "[{'name': 'k', 'stream': 0, 'count': 2, "
        "'total_duration_us': np.float64(20.0), 'min_duration_us': nan}]",
    }
    read = imported(write_report(tmp_path, [row]))
    operation = read.operations.row(0, named=True)
    assert (operation["flops"], operation["bytes"]) == (3e9, 4 * 2**20)
    assert operation["model_origin"] == "report"
    assert operation["params"] == '{"M":8,"flag":false}'
    assert operation["tflops_per_s"] == pytest.approx(2 * 3e9 / 20e-6 / 1e12)
    assert operation["kernels"][0] | {"name": "k", "count": 2} == operation["kernels"][0]
    roofline_us = max(3e9 / MI300X.max_achievable_tflops["matrix_bf16"], 4 * 2**20 / 5.3) / 1e6
    assert operation["pct_roofline"] == pytest.approx(100 * 2 * roofline_us / 20)


def test_cut_or_missing_cells_are_reported_as_unknown(tmp_path: Path) -> None:
    cut = {
        "name": "aten::add",
        "operation_count": 1,
        "Kernel Time (µs)_sum": 5.0,
        "Input Dims": "((8, 4), (8",
        "kernel_details_summary": "[{'name': 'k', 'str",
    }
    run = analyze(
        write_report(tmp_path / "in", [cut]), platform="MI300X", output_dir=tmp_path / "out"
    )
    operation = run.table("operations").row(0, named=True)
    assert (operation["flops"], operation["kernels"], operation["input_dims"]) == (None, None, None)
    summaries = " ".join(run.table("trace_health")["summary"])
    assert "1 row of operations without readable kernels" in summaries


def write_report(place: Path, rows: list[dict[str, object]]) -> Path:
    """Write a CSV folder with a timeline of 1 ms and these rows of ``unified_perf_summary``."""
    parts = {"computation_time": 0.8, "exposed_comm_time": 0.0, "exposed_memcpy_time": 0.0}
    parts |= {"busy_time": 0.8, "idle_time": 0.2, "total_time": 1.0}
    timeline = pl.DataFrame({"type": list(parts), "time ms": list(parts.values())})
    write_csvs({"gpu_timeline": timeline, "unified_perf_summary": pl.DataFrame(rows)}, place)
    return place


@pytest.fixture(scope="module")
def resnet(reference_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return the run of a TraceLens report."""
    place = reference_root / "reference" / "mi300-resnet-ddp-checkpoint" / "default"
    return analyze(place, platform="MI300X", output_dir=tmp_path_factory.mktemp("run") / "r")


def test_analyses_name_the_tables_that_a_report_lacks(resnet: Run) -> None:
    absent = {key: r.error for key, r in resnet.results.items() if r.status is Status.NO_DATA}
    for key, thing in (
        ("cpu_idle", "idle gaps"),
        ("multi_kernel", "single collectives"),
        ("kernel_fusion", "the order of operators"),
    ):
        assert thing in (absent[key] or "")
        assert (absent[key] or "").startswith("Not in a TraceLens report: ")
    assert resnet.results["sdpa_fwd"].status is Status.NO_DATA  # there is no attention
    assert resnet.results["gemm"].status is Status.OK
    assert resnet.manifest.absent_tables == ABSENT
    assert all(resnet.table(name).is_empty() for name in ABSENT)


def test_the_reports_of_a_run_name_missing_input(resnet: Run) -> None:
    assert resnet.root is not None
    texts = {
        kind: (resnet.root / f"standalone_analysis_{kind}.md").read_text(encoding="utf-8")
        for kind in ("fair", "rough")
    }
    for text in texts.values():
        assert "performance report" in text
        assert "idle gaps" in text
    assert "Not in a TraceLens report: " in texts["rough"]
    warnings = resnet.table("trace_health").filter(severity="warning")
    assert warnings["key"].to_list()[0] == "report_input"
    assert "idle gaps" in warnings["affects"][0]


def test_a_report_without_operators_has_operations_by_kernel(
    reference_root: Path, tmp_path: Path
) -> None:
    place = reference_root / "reference" / "mi210-gpu-only" / "kernels_short"
    run = analyze(place, platform="MI210", output_dir=tmp_path / "run")
    rows = run.table("operations")
    with (place / "kernel_summary.csv").open(encoding="utf-8") as lines:
        kernels = list(csv.DictReader(lines))
    times_us = [float(kernel["Kernel duration (µs)_sum"]) for kernel in kernels]
    assert rows.height == len(kernels) > 0
    assert rows["kernel_time_us"].sum() == pytest.approx(sum(times_us))
    assert rows["flops"].null_count() == rows.height
    assert "unified_perf_summary" not in run.manifest.sheets
    reprojected = reproject(
        tmp_path / "run", platform="MI300X", output_dir=tmp_path / "reprojected"
    )
    assert reprojected.table("operations")["kernel_time_us"].equals(rows["kernel_time_us"])


def test_launchers_are_identified_by_their_kernels(resnet: Run) -> None:
    rows = resnet.table("operations").filter(name="aten::convolution")
    assert set(rows["launcher_names"].explode()) == {"aten::miopen_convolution"}
    tops = {top.name: top.category for top in resnet.manifest.top_operations}
    assert tops["aten::miopen_convolution"] == "convolution"


def test_reprojecting_a_report_equals_analyzing_it(resnet: Run, tmp_path: Path) -> None:
    assert resnet.root is not None
    reprojected = reproject(resnet.root, platform="H100 SXM", output_dir=tmp_path / "reprojected")
    trace = resnet.manifest.trace
    again = analyze(trace.path, platform="H100 SXM", output_dir=tmp_path / "again")
    assert reprojected.manifest.analysis_id == again.manifest.analysis_id
    for name in again.manifest.tables:
        assert reprojected.table(name).equals(again.table(name)), name
    assert reprojected.results == again.results


def test_a_report_can_be_compared_with_a_trace(
    resnet: Run, reference_root: Path, tmp_path: Path
) -> None:
    path = reference_root / "traces" / "mi300-resnet-ddp-checkpoint.json.gz"
    of_trace = analyze(path, platform="MI300X", output_dir=tmp_path / "r")
    rows = compare(resnet, of_trace).operations
    assert rows.height > 0
    ratios = rows["time_ratio"].drop_nulls()
    assert ratios.len() > 90
    assert ratios.to_list() == pytest.approx([1.0] * ratios.len(), rel=1e-3)


def test_folder_and_zip_hold_the_same_report(reference_root: Path, tmp_path: Path) -> None:
    folder = reference_root / "reference" / "h100-bert-small" / "default"
    packed = tmp_path / "report.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("__MACOSX/perf/._GEMM.csv", b"\x00\x05")
        for sheet in folder.glob("*.csv"):
            archive.write(sheet, f"perf/{sheet.name}")
    assert is_report(packed)
    assert is_report(folder)
    from_zip, from_folder = read_report(packed), read_report(folder)
    assert from_zip.keys() == from_folder.keys()
    assert all(from_zip[name].equals(from_folder[name]) for name in from_folder)


def test_traces_are_no_reports(reference_root: Path, tmp_path: Path) -> None:
    packed = tmp_path / "trace.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("trace.json", "{}")
    trace = reference_root / "traces" / "h100-bert-small.json.gz"
    assert [is_report(path) for path in (packed, trace, tmp_path)] == [False, False, False]


def test_the_digest_of_a_folder_is_of_names_and_contents(
    reference_root: Path, tmp_path: Path
) -> None:
    folder = reference_root / "reference" / "h100-bert-small" / "default"
    copy = Path(shutil.copytree(folder, tmp_path / "copy", copy_function=shutil.copyfile))
    assert content_sha256(copy) == content_sha256(folder)
    (copy / "GEMM.csv").rename(copy / "MMEG.csv")
    assert content_sha256(copy) != content_sha256(folder)


@pytest.mark.parametrize(
    ("sheet", "text", "sentence"),
    [
        ("sales", "name,price\na,1\n", "it has no sheet gpu_timeline"),
        ("gpu_timeline", "type,seconds\nbusy_time,1\n", "has no column time ms"),
        ("gpu_timeline", "type,time ms\n", "it has no sheet gpu_timeline with rows"),
    ],
)
def test_a_foreign_table_is_rejected_with_a_message(
    tmp_path: Path, sheet: str, text: str, sentence: str
) -> None:
    (tmp_path / f"{sheet}.csv").write_text(text)
    with pytest.raises(NotAReportError, match=sentence):
        analyze(tmp_path, output_dir=tmp_path.parent / "out")
    assert not (tmp_path.parent / "out").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 damaged", b"hello"])
def test_a_damaged_workbook_is_rejected_with_a_message(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "perf_report.xlsx"
    path.write_bytes(content)
    with pytest.raises(UnreadableReportError, match=r"perf_report\.xlsx is not a readable report"):
        analyze(path, output_dir=tmp_path / "out")


def timeline(**times: str) -> pl.DataFrame:
    """Return a timeline with a total of 10 ms and the given parts."""
    whole = {"busy_time": "4", "idle_time": "6", "total_time": "10"}
    parts = {"computation_time": "4", "exposed_comm_time": "0", "exposed_memcpy_time": "0"}
    rows = parts | whole | times
    return pl.DataFrame(
        {"type": list(rows), "time ms": list(rows.values()), "percent": [None] * len(rows)}
    )


@pytest.mark.parametrize(
    "times",
    [
        {"computation_time": "-1"},
        {"computation_time": "11"},
        {"total_time": "0"},
        {"total_time": "1e-9"},
    ],
)
def test_a_timeline_with_inconsistent_parts_is_rejected(times: dict[str, str]) -> None:
    with pytest.raises(NotAReportError, match=r"gpu_timeline.* ms of "):
        typed_sheets({"gpu_timeline": timeline(**times)}, Path("r"))


def test_a_timeline_with_wrong_shares_is_rejected() -> None:
    table = timeline().with_columns(percent=pl.Series(["40", "0", "0", "40", "60", "100"]))
    assert typed_sheets({"gpu_timeline": table}, Path("r"))
    wrong = table.with_columns(percent=pl.Series(["12", "0", "0", "40", "60", "100"]))
    with pytest.raises(NotAReportError, match=r"'computation_time' takes 4 ms of 10 ms.*12"):
        typed_sheets({"gpu_timeline": wrong}, Path("r"))


def test_a_timeline_with_wrong_idle_time_is_rejected() -> None:
    with pytest.raises(NotAReportError, match=r"busy and idle time add up to 5 ms.* 10 ms"):
        typed_sheets({"gpu_timeline": timeline(idle_time="1")}, Path("r"))


def test_a_timeline_that_repeats_a_row_is_rejected() -> None:
    twice = pl.concat([timeline(), timeline().filter(type="busy_time")])
    with pytest.raises(NotAReportError, match="has busy_time more often than computation_time"):
        typed_sheets({"gpu_timeline": twice}, Path("r"))


@pytest.mark.parametrize("row", ["computation_time", "exposed_comm_time", "idle_time"])
def test_a_timeline_without_a_part_is_rejected(row: str) -> None:
    table = timeline().filter(pl.col("type") != row)
    with pytest.raises(NotAReportError, match=f"has no row {row}"):
        typed_sheets({"gpu_timeline": table}, Path("r"))


@pytest.fixture(scope="module")
def two_operators() -> dict[str, pl.DataFrame]:
    """The sheets of a product and an addition."""
    built = trace()
    built.op("aten::mm", [[64, 64], [64, 64]]).launches("gemm", us=20)
    built.op("aten::add", [[64, 64], [64, 64]]).launches("add", us=5)
    return TraceLensReport(built.read(), MI300X).sheets()


@pytest.mark.parametrize(
    "cell",
    [
        *("1", "[1]", "[(1, 2)]", "[{}]", "{'name': 1}", "[{'name': 1}]", "[None]", "x", "1j"),
        *("[{'name': 'k', 'stream': 'x'}, 3]", "[{'name': '\\ud800'}]", "9" * 5_000, "b'x'"),
        *("[" * 300 + "]" * 300, "(((1,),),)", "((2, -3), 'x')", "{1, 2}", "...", "-1e999"),
    ],
)
@pytest.mark.parametrize(
    "label",
    [
        *("kernel_details_summary", "Input Dims", "Input type", "Input Strides", "Concrete Inputs"),
        *("perf_params", "UID", "operation_count", "GFLOPS", "has_perf_model", "op category"),
    ],
)
def test_invalid_cells_give_no_traceback(
    two_operators: dict[str, pl.DataFrame], tmp_path: Path, label: str, cell: str
) -> None:
    made = dict(two_operators)
    table = made["unified_perf_summary"]
    if label in table.columns:
        cells = (
            [cell, *table[label].cast(pl.String, strict=False).to_list()[1:]]
            if not isinstance(table[label].dtype, pl.List)
            else [cell] * table.height
        )
        made["unified_perf_summary"] = table.with_columns(pl.Series(label, cells, pl.String))
    write_csvs(made, tmp_path)
    report = imported(tmp_path)
    assert report.operations.height == 2 - (label == "operation_count" and cell != "1")
    assert report.table("perf_model_failures").width


def report_with(cells: str, columns: str | tuple[str, ...], sheet: str, place: Path) -> Path:
    """A CSV folder with a timeline and one sheet, whose ``columns`` hold ``cells`` in every row."""
    built = trace()
    for _ in range(2):
        built.op("mylib::gemm", [[64, 64], [64, 64]]).launches("gemm_0", us=20_000)
    options = ReportOptions(enable_kernel_summary=True)
    made = TraceLensReport(built.read(), MI300X, options=options).sheets()
    damaged = [name for name in made[sheet].columns if name.endswith(columns)]
    assert damaged
    rows = made[sheet].with_columns(pl.lit(cells).alias(name) for name in damaged)
    write_csvs({"gpu_timeline": made["gpu_timeline"], sheet: rows}, place)
    return place


@pytest.mark.parametrize("statistic", ["_mean", "_min", "_max"])
@pytest.mark.parametrize("sheet", ["kernel_summary", "unified_perf_summary"])
def test_a_missing_statistic_fails_no_analysis(tmp_path: Path, sheet: str, statistic: str) -> None:
    place = report_with("[[]]", statistic, sheet, tmp_path / "report")
    run = analyze(place, platform="MI300X", output_dir=tmp_path / "run")
    errors = {result.error for result in run.results.values() if result.error}
    assert not [error for error in errors if not error.startswith("Not in a TraceLens report")]
    assert run.table("operations")["kernel_time_us_mean"].to_list() == [20_000.0]


@pytest.mark.parametrize("count", ["0", "-3"])
@pytest.mark.parametrize("sheet", ["kernel_summary", "unified_perf_summary"])
def test_rows_of_no_calls_are_left_out(tmp_path: Path, sheet: str, count: str) -> None:
    place = report_with(count, ("operation_count", "_count"), sheet, tmp_path / "report")
    assert imported(place).operations.is_empty()


@pytest.mark.parametrize("option", ["detect_recompute", "micro_idle_thresh_us"])
def test_a_report_with_a_timeline_of_other_rows_gives_a_valid_run(
    tmp_path: Path, option: str
) -> None:
    built = trace().op("aten::mm", [[64, 64], [64, 64]]).launches("gemm", us=2_000).waits(50)
    built.op("aten::add", [[64, 64], [64, 64]]).launches("add", us=500)
    chosen = ReportOptions(**{option: True if option == "detect_recompute" else 5.0})
    made = TraceLensReport(built.read(), MI300X, options=chosen).sheets()
    if option == "detect_recompute":
        first = made["gpu_timeline"]
        again = first.with_columns(pl.lit("True").alias("is_recompute"))
        made["gpu_timeline"] = pl.concat([first, again])
    write_csvs(made, tmp_path / "report")
    analyze(tmp_path / "report", output_dir=tmp_path / "run")
    assert is_valid(validate(tmp_path / "run"))
