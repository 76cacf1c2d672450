"""``jarvis compare``: files, text and JSON of a comparison, and rules that fail a build."""

import csv
import json
import math
from pathlib import Path

import openpyxl
import polars as pl
import pytest

from jarvis.cli import main
from jarvis.cli.output import ExitCode
from jarvis.comparison.rules import Rule, metrics
from jarvis.core.errors import RuleError
from jarvis.pipeline import analyze, compare
from jarvis.reports.reading import read_report
from jarvis.run import Run


@pytest.fixture(scope="module")
def reports(reference_root: Path) -> dict[str, Path]:
    """Folders of TraceLens's CSV files by GPU."""
    root = reference_root / "reference"
    return {gpu: root / f"{gpu}-bert-small" / "kernels_short" for gpu in ("h100", "mi300")}


@pytest.fixture(scope="module")
def runs(reports: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Runs of these reports."""
    folder = tmp_path_factory.mktemp("runs")
    platforms = {"h100": "H100 SXM", "mi300": "MI300X"}
    return {
        gpu: analyze(reports[gpu], platform=platform, output_dir=folder / gpu)
        for gpu, platform in platforms.items()
    }


def compared(runs: dict[str, Run], *options: object) -> list[str]:
    """The arguments that compare the MI300X with the H100."""
    return ["compare", str(runs["h100"].root), str(runs["mi300"].root), *map(str, options)]


def time_ms(folder: Path, kind: str) -> float:
    """A part of the GPU timeline as in the CSV file."""
    with (folder / "gpu_timeline.csv").open() as lines:
        return next(float(row["time ms"]) for row in csv.DictReader(lines) if row["type"] == kind)


def operator_ms(folder: Path, name: str) -> float:
    """The time of an operator by the rows of the unified sheet."""
    with (folder / "unified_perf_summary.csv").open() as lines:
        rows = [row for row in csv.DictReader(lines) if row["name"] == name]
    return sum(float(row["Kernel Time (µs)_sum"]) for row in rows) / 1000


def test_json_has_the_numbers_of_the_sheets(
    reports: dict[str, Path],
    runs: dict[str, Run],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rules = ["--fail-if", "op:aten::addmm > 0%", "--fail-if", "idle_time<-1 ms"]
    code = main(compared(runs, "--json", "-o", tmp_path / "c.xlsx", *rules))
    reported = json.loads(capsys.readouterr().out)
    for row in reported["totals"]:
        before, after = (time_ms(reports[gpu], row["type"]) for gpu in ("h100", "mi300"))
        assert row["reference_ms"] == pytest.approx(before)
        assert row["target_ms"] == pytest.approx(after)
        assert row["difference_ms"] == pytest.approx(after - before)
        if before:
            assert row["difference_pct"] == pytest.approx(100 * (after - before) / before)
    addmm, idle = reported["rules"]
    before, after = (operator_ms(reports[gpu], "aten::addmm") for gpu in ("h100", "mi300"))
    assert addmm["change"] == pytest.approx(100 * (after - before) / before)
    assert addmm["applies"] is (after > before)
    before, after = (time_ms(reports[gpu], "idle_time") for gpu in ("h100", "mi300"))
    assert idle["change"] == pytest.approx(after - before)
    assert idle["applies"] is (after - before < -1)
    assert code == (3 if addmm["applies"] or idle["applies"] else 0)
    assert reported["files"] == [str(tmp_path / "c.xlsx")]
    assert reported["sides"]["target"]["label"] == "MI300X"


def test_the_output_folder_has_workbook_and_both_reports(
    reports: dict[str, Path], runs: dict[str, Run], tmp_path: Path
) -> None:
    out = tmp_path / "new" / "out"
    assert main(compared(runs, "--output_dir", out, "--names", "h100", "mi300")) == ExitCode.OK
    tabs = openpyxl.load_workbook(out / "comparison.xlsx").sheetnames
    assert {"gpu_timeline", "kernel_summary", "GEMM_intersect_mi300"} <= set(tabs)
    for role, gpu in (("reference", "h100"), ("target", "mi300")):
        written = read_report(out / f"{role}_perf_report.xlsx")["gpu_timeline"]
        busy = written.filter(type="busy_time")["time ms"].item()
        assert busy == pytest.approx(time_ms(reports[gpu], "busy_time"))
    assert main(compared(runs, "--output_dir", out)) == ExitCode.OK  # again, in its place


def test_a_folder_with_other_files_is_rejected(
    runs: dict[str, Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    assert main(compared(runs, "--output-dir", tmp_path)) == ExitCode.FAILED
    assert "already contains other files (mine.txt)" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_traces_and_reports_are_analyzed_on_the_way(
    reference_root: Path,
    reports: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    trace = reference_root / "traces" / "mi300-bert-small.json.gz"
    command = ["compare", str(reports["h100"]), str(trace), "--reference-platform", "H100 SXM"]
    assert main([*command, "--sheets", "kernel_summary"]) == ExitCode.OK
    assert [path.name for path in tmp_path.iterdir()] == ["comparison.xlsx"]
    sheets = read_report(tmp_path / "comparison.xlsx")
    assert set(sheets) == {"kernel_summary"}
    assert "mi300-bert-small::Kernel duration (µs)_sum" in sheets["kernel_summary"].columns
    assert "Compute time: " in capsys.readouterr().out


def test_a_run_can_be_reprojected_onto_another_gpu(
    runs: dict[str, Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(compared(runs, "--platform", "MI325X", "--json", "-o", tmp_path / "c.xlsx")) == 0
    assert json.loads(capsys.readouterr().out)["sides"]["target"]["label"] == "MI325X"


def test_a_side_compared_with_itself_has_no_change(
    runs: dict[str, Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(runs["mi300"].root)
    rules = [word for m in ("gpu_time", "gemm") for word in ("--fail-if", f"{m} > 0%")]
    files = ["-o", str(tmp_path / "c.xlsx")]
    assert main(["compare", root, root, "--json", *files, *rules]) == ExitCode.OK
    reported = json.loads(capsys.readouterr().out)
    assert {row["difference_ms"] for row in reported["totals"]} == {0}
    assert reported["findings"] == []
    assert [side["name"] for side in reported["sides"].values()] == ["reference", "target"]


def test_several_reports_are_in_one_workbook(
    reports: dict[str, Path], runs: dict[str, Run], tmp_path: Path
) -> None:
    csvs = tmp_path / "csvs"
    names = ["--names", "a", "b", "c", "--output_csvs_dir", csvs, "-o", tmp_path / "c.xlsx"]
    arguments = ["compare", *(str(runs[g].root) for g in ("h100", "mi300", "mi300"))]
    assert main([*arguments, *map(str, names)]) == ExitCode.OK
    timeline = pl.read_csv(csvs / "gpu_timeline.csv")
    assert timeline["time ms__b_diff"].equals(timeline["time ms__c_diff"].rename("time ms__b_diff"))
    assert "c::time ms" in timeline.columns


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--names", "a"], "--names needs 2 names"),
        (["--sheets", "nonsense"], "invalid choice"),
        (["--tolerance", "0.5"], "not a finite number of at least 1"),
    ],
)
def test_misused_options_are_usage_errors(
    runs: dict[str, Run], options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(compared(runs, *options))
    assert end.value.code == ExitCode.USAGE
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("gpu_time", "write a metric"),
        ("gpu_time > 5", "write a metric"),
        ("gpu_time = 5%", "write a metric"),
        ("> 5%", "write a metric"),
        ("speed > 5%", "there is no metric 'speed'; there are gpu_time, "),
        ("op:aten::nothing > 5%", "op:aten::addmm"),
    ],
)
def test_an_invalid_rule_is_rejected_with_a_message(
    runs: dict[str, Run],
    tmp_path: Path,
    rule: str,
    sentence: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = compared(runs, "-o", tmp_path / "c.xlsx", "--fail-if", rule)
    assert main(command) == ExitCode.FAILED
    error = capsys.readouterr().err
    assert error.count("cannot be applied") == 1
    assert sentence in error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "before", "after", "change", "applies"),
    [
        ("gpu_time > +5%", 100.0, 105.0, 5.0, False),
        ("gpu_time >= 5 %", 100.0, 105.0, 5.0, True),
        ("gpu_time<- 5%", 100.0, 94.0, -6.0, True),
        ("gpu_time <= -1.5ms", 100.0, 98.5, -1.5, True),
        ("gpu_time > 1ms", 0.0, 0.5, 0.5, False),
        ("gpu_time > 1000%", 0.0, 0.5, math.inf, True),
        ("gpu_time > 0%", 0.0, 0.0, 0.0, False),
    ],
)
def test_rules_are_about_the_change(
    text: str, before: float, after: float, change: float, applies: bool
) -> None:
    verdict = Rule.parse(text).applied({"gpu_time": (before, after)})
    assert verdict.change == pytest.approx(change)
    assert verdict.is_met is applies
    assert ("does not apply" in str(verdict)) is not applies


def test_names_of_operators_may_contain_rule_syntax() -> None:
    name = "op:hipLaunchKernel->void k<4, 2> > (int) (Synthetic Op)"
    assert Rule.parse(f"{name} > +5%").metric == name
    with pytest.raises(RuleError, match="write a metric"):
        Rule.parse("op:a > b")


def test_gpu_time_of_a_rule_is_that_of_the_pages(runs: dict[str, Run]) -> None:
    times = metrics(compare(runs["mi300"], runs["h100"]))
    totals = [runs[gpu].manifest.totals.total_time_ms for gpu in ("h100", "mi300")]
    assert times["gpu_time"] == pytest.approx(tuple(totals))
    assert times["gpu_time"] != times["busy_time"]


def test_every_category_and_operator_is_a_metric(runs: dict[str, Run]) -> None:
    times = metrics(compare(runs["mi300"], runs["h100"]))
    for key, result in runs["mi300"].results.items():
        if result.tier == "compute" and result.gpu_time_ms:
            assert times[key][1] == pytest.approx(result.gpu_time_ms)
    names = set(runs["h100"].table("operations")["name"])
    assert {f"op:{name}" for name in names} <= set(times)
