"""Extensions in runs and on the command line: what is stored, reported and cleaned up."""

import json
from pathlib import Path

import pytest

from jarvis import cli
from jarvis.extensions import load_extensions
from jarvis.perf_models import find_model, op_category
from jarvis.pipeline import analyze
from jarvis.reports.gaps import gaps_of
from jarvis.reports.reading import read_report
from jarvis.run import Run
from jarvis.server.submission import Submission, submit
from jarvis.tracelens.report import TraceLensReport
from tests.extensions.conftest import SCAN, Write, scans


def test_two_analyses_in_one_process_do_not_see_each_other(write: Write) -> None:
    read = scans().read()
    file = write(SCAN)
    before = TraceLensReport(read, None, registry=load_extensions().registry)
    with_file = TraceLensReport(read, None, registry=load_extensions(file).registry)
    again = TraceLensReport(read, None, registry=load_extensions(file).registry)
    after = TraceLensReport(read, None, registry=load_extensions().registry)
    assert ["Scan_fwd" in r.roofline_sheets for r in (before, with_file, again, after)] == [
        False,
        True,
        True,
        False,
    ]
    assert after.operations.equals(before.operations)
    assert find_model("mylib::scan") is None
    assert op_category("mylib::scan") is None


def test_a_run_keeps_what_its_extension_changed_and_could_not(write: Write, tmp_path: Path) -> None:
    text = (
        SCAN
        + """
        registry.categorize("reduce", "mylib::peek")
        registry.perf_model("aten::mm", category="GEMM")(lambda op: 1 / 0)

    perf_model_extension = 5
    """
    )
    source = scans().write(tmp_path / "trace.json")
    run = analyze(source, output_dir=tmp_path / "run", extension_file=write(text))
    manifest = Run.load(tmp_path / "run").manifest
    assert manifest.options.extension_file == "mine.py"
    assert manifest.extension_notes == ("mine.py overrides the built-in models of `aten::mm`.",)
    loading_failure, fault = manifest.extension_failures
    assert loading_failure == "perf_model_extension of mine.py is int, not a dict."
    assert fault.startswith("The perf model of `aten::mm` failed: mine.py, line ")
    categories = dict(run.table("operations").select("name", "category").rows())
    assert categories["mylib::peek"] == "reduce"
    texts = [gap.text for gap in gaps_of(run)]
    assert [texts.count(text) for text in (*manifest.extension_notes, loading_failure, fault)] == [
        1,
        1,
        1,
    ]
    rough = (tmp_path / "run" / "standalone_analysis_rough.md").read_text(encoding="utf-8")
    assert "--extension_file mine.py" in rough
    assert "--extension-file mine.py" in rough


def test_another_content_of_the_file_is_another_analysis(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    source = scans().write(tmp_path / "trace.json")
    plain = submit(Submission(source))
    first = submit(Submission(source, extension_file=write(SCAN)))
    again = submit(Submission(source, extension_file=write(SCAN)))
    other = submit(Submission(source, extension_file=write(SCAN.replace("3 * size", "9 * size"))))
    assert len({plain.id, first.id, other.id}) == 3
    assert (again.id, again.is_reused, other.is_reused) == (first.id, True, False)


@pytest.mark.parametrize("flag", ["--extension_file", "--extension-file"])
def test_report_takes_an_extension_file(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    source = scans().write(tmp_path / "trace.json")
    broken = SCAN + "\n        registry.perf_model('mylib::peek', category='Peek')(5)\n"
    folder = tmp_path / "csvs"
    options = [flag, str(write(broken)), "--output_csvs_dir", str(folder)]
    assert cli.main(["report", str(source), *options]) == 0
    assert read_report(folder)["Scan_fwd"]["name"].to_list() == ["mylib::scan"]
    assert capsys.readouterr().err.splitlines()[-1] == (
        "warning: The perf model of `mylib::peek` failed: mine.py: "
        "TypeError: 'int' object is not callable."
    )


def test_report_refuses_a_file_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = scans().write(tmp_path / "trace.json")
    assert cli.main(["report", str(source), "--extension_file", str(tmp_path / "none.py")]) == 1
    assert capsys.readouterr().err.startswith("jarvis: The extension file ")
    assert not list(tmp_path.glob("*.xlsx"))


def test_analyze_says_what_its_extension_changed(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = scans().write(tmp_path / "trace.json")
    file = write("op_category_extension = {'aten::mm': 'MyGEMM', 'x': 1}")
    assert cli.main(["analyze", str(source), "--extension-file", str(file)]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert "note: mine.py overrides the built-in models of `aten::mm`." in lines
    assert sum(line.startswith("warning: op_category_extension of mine.py") for line in lines) == 1
    manifest = json.loads((tmp_path / "analysis_output" / "manifest.json").read_text())
    assert len(manifest["extension_failures"]) == 1
