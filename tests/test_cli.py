"""Command line: files, output and exit codes."""

import gzip
import json
import os
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import openpyxl
import polars as pl
import pytest

from jarvis import cli
from jarvis.core.memory_tuning import without_server_arenas
from jarvis.core.workspace import resource
from jarvis.hardware import load_hardware
from jarvis.reports.perfetto.trace_file import FROM_RUN, FROM_TRACE
from jarvis.reports.ranking import recommendations
from jarvis.reports.reading import read_report
from jarvis.run import Run
from jarvis.sample import write_sample
from jarvis.text.format import milliseconds, percent
from jarvis.trace import read_trace
from jarvis.tracelens.options import INFERENCE, ReportOptions
from jarvis.tracelens.report import TraceLensReport
from tests.builders import trace


@pytest.fixture
def small(tmp_path: Path) -> Path:
    builder = trace(device="AMD Instinct MI300X")
    builder.op("aten::mm", [[4096, 4096], [4096, 4096]]).launches("gemm_kernel", us=900.0)
    return builder.write(tmp_path / "small.json")


def run(*arguments: str | Path) -> int:
    return cli.main([str(argument) for argument in arguments])


def test_report_writes_a_workbook_beside_the_trace(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("report", small) == 0
    out, steps = capsys.readouterr()
    assert out == f"{small.parent / 'small_perf_report.xlsx'}\n"
    assert "[1/2] Read the trace\n[2/2] Match the hardware\n" in steps
    assert "GEMM" in openpyxl.load_workbook(out.strip()).sheetnames


@pytest.mark.parametrize("dash", ["_", "-"])
def test_report_accepts_dashes_and_underscores(small: Path, tmp_path: Path, dash: str) -> None:
    csvs = f"--output{dash}csvs{dash}dir"
    named = f"--profile{dash}json{dash}path"
    platform = f"--gpu{dash}arch{dash}platform"
    assert run("report", named, small, csvs, tmp_path / "c", platform, "H100 SXM") == 0
    assert (tmp_path / "c" / "GEMM.csv").read_text().count("\n") == 2
    assert not list(tmp_path.glob("*.xlsx"))  # CSVs alone suppress the workbook


def test_report_writes_both(small: Path, tmp_path: Path) -> None:
    book = tmp_path / "deep" / "r.xlsx"
    assert (
        run("report", small, "--output_xlsx_path", book, "--output_csvs_dir", tmp_path / "c") == 0
    )
    assert book.is_file()
    assert (tmp_path / "c" / "gpu_timeline.csv").is_file()


def test_report_writes_tables_that_keep_types_and_lists(small: Path, tmp_path: Path) -> None:
    assert run("report", small, "--output_parquet_dir", tmp_path / "p") == 0
    table = pl.read_parquet(tmp_path / "p" / "ops_summary.parquet")
    assert table.select("name", "count", "categories").rows() == [("aten::mm", 1, ["GEMM"])]
    assert not list(tmp_path.glob("*.xlsx"))


def test_every_option_of_a_report_reaches_it(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[ReportOptions] = []

    def generate_report(*_: object, options: ReportOptions, **__: object) -> TraceLensReport:
        asked.append(options)
        return TraceLensReport(read_trace(small), None)

    monkeypatch.setattr("jarvis.pipeline.generate_report", generate_report)
    defaults = ReportOptions()
    for field in fields(ReportOptions):
        is_switch = isinstance(getattr(defaults, field.name), bool)
        assert run("report", small, f"--{field.name}", *([] if is_switch else ["3"])) == 0
        expected = dict.fromkeys(INFERENCE if field.name == "inference" else [field.name], 3)
        if is_switch:
            expected = dict.fromkeys(expected, True)
        assert asked.pop() == replace(defaults, **expected)
    run("report", small)
    assert asked.pop() == defaults


def test_two_traces_are_compared(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    builder = trace().op("aten::mm", [[4096, 4096], [4096, 4096]])
    other = builder.launches("other_gemm", us=450.0).write(tmp_path / "other.json")
    csvs = tmp_path / "c"
    assert run("report", small, "--comparison-json-path", other, "--output_csvs_dir", csvs) == 0
    assert "[3/3] Read the compared trace" in capsys.readouterr().err
    rows = pl.read_csv(csvs / "unified_perf_summary.csv")
    assert rows["speedup (trace2/trace1)"].to_list() == [0.5]
    assert rows["delta_us (trace2 - trace1)"].to_list() == [-450.0]
    found = pl.read_csv(csvs / "diff_stats.csv").select("source", "name", "kernel_time")
    assert found.rows() == [("trace1", "gemm_kernel", 900.0), ("trace2", "other_gemm", 450.0)]


def test_a_trace_that_cannot_be_compared_is_reported(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = trace().unlinked("gemm").write(tmp_path / "other.json")
    assert run("report", small, "--comparison_json_path", other) == 0
    sentence = "The compared trace has no host calls that launch its GPU work"
    assert sentence in capsys.readouterr().err
    assert run("report", small, "--comparison_json_path", tmp_path / "none.json") == 1


def test_options_add_sheets(small: Path, tmp_path: Path) -> None:
    options = ["--enable_kernel_summary", "--include-overlap-info", "--short_kernel_study"]
    csvs = tmp_path / "c"
    threshold = ["--short_kernel_threshold_us", "1000", "--short_kernel_histogram_bins", "4"]
    assert run("report", small, *options, *threshold, "--output_csvs_dir", csvs) == 0
    assert {path.stem for path in csvs.glob("*.csv")} == {
        "gpu_timeline",
        "ops_summary_by_category",
        "ops_summary",
        "ops_unique_args",
        "ops_unique_args_kl_overlap",
        "unified_perf_summary",
        "unified_perf_summary_kl_overlap",
        "GEMM",
        "GEMM_kl_overlap",
        "kernel_summary",
        "short_kernel_histogram",
        "short_kernels_summary",
    }
    assert len((csvs / "short_kernel_histogram.csv").read_text().splitlines()) == 5


def test_report_uses_a_gpu_described_in_a_file(small: Path, tmp_path: Path) -> None:
    peaks = {"matrix_bf16": 100.0}
    arch = {"name": "X1", "mem_bw_gbps": 1000, "memory_gb": 8, "max_achievable_tflops": peaks}
    file = tmp_path / "x1.json"
    file.write_text(json.dumps(arch))
    assert run("report", small, "--gpu_arch_json_path", file, "--output_csvs_dir", tmp_path) == 0
    gemm = read_report(tmp_path)["GEMM"].row(0, named=True)
    # 2 * 4096^3 FLOPs at 100 TFLOP/s
    assert gemm["Roofline Time (µs)_first"] == pytest.approx(1374.389534720)
    assert gemm["Roofline Bound_first"] == "COMPUTE_BOUND"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "x1.json: the file cannot be read"),
        ("[]", "x1.json: the file must contain one JSON object"),
        ('{"name": "X1", "memory_gb": 8, "max_achievable_tflops": {}}', "X1: mem_bw_gbps"),
        (
            '{"mem_bw_gbps": 9, "memory_gb": 8, "max_achievable_tflops": {"matrix_bf61": 1}}',
            "unknown compute peak matrix_bf61",
        ),
    ],
)
def test_an_invalid_gpu_description_is_reported(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, sentence: str
) -> None:
    file = tmp_path / "x1.json"
    file.write_text(text)
    assert run("report", small, "--gpu_arch_json_path", file) == 1
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    "option",
    [
        ["--enable-origami"],
        ["--python_path", "python3"],
        ["--inductor_cache_dir", "x"],
    ],
)
def test_unsupported_options_give_a_message(
    small: Path, capsys: pytest.CaptureFixture[str], option: list[str]
) -> None:
    assert run("report", small, *option) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("jarvis: ")
    assert captured.err.endswith(f"Remove {option[0]}.\n")
    assert captured.err.count("\n") == 1
    assert not list(small.parent.glob("*.xlsx"))


@pytest.mark.parametrize(
    "options",
    [
        ["--topk_ops", "0"],
        ["--short_kernel_histogram_bins", "many"],
        ["--micro_idle_thresh_us", "-1"],
        ["--gpu_arch_platform", "H100 SXM", "--gpu_arch_json_path", "x.json"],
        ["--gpu_arch_json_path", "x.json", "--preset", "reference"],
    ],
)
def test_invalid_report_options_exit_with_2(small: Path, options: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        run("report", small, *options)
    assert stopped.value.code == 2


def test_report_with_the_models_of_tracelens_alone(tmp_path: Path) -> None:
    builder = trace().op("aten::_softmax", [[64, 1024], [], []]).launches("softmax", us=50.0)
    path = builder.write(tmp_path / "softmax.json")
    has_model = {}
    for models in ("all", "tracelens"):
        folder = tmp_path / models
        assert run("report", path, "--models", models, "--output_csvs_dir", folder) == 0
        rows = (folder / "unified_perf_summary.csv").read_text().splitlines()
        column = rows[0].split(",").index("has_perf_model") - len(rows[0].split(","))
        has_model[models] = rows[1].split(",")[column]
    assert has_model == {"all": "True", "tracelens": "False"}


@pytest.mark.parametrize("arguments", [[], ["report"], ["report", "--models", "x"], ["fly"]])
def test_an_invalid_command_exits_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        run(*arguments)
    assert stopped.value.code == 2


def test_analyze_writes_beside_the_trace_and_prints_the_folder(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("analyze", small, "--model", "Llama") == 0
    captured = capsys.readouterr()
    root = small.parent / "analysis_output"
    assert captured.out.splitlines()[0] == str(root)
    assert all(Path(line).exists() for line in captured.out.splitlines())
    assert "[1/" in captured.err
    assert "Read the trace" in captured.err
    manifest = Run.load(root).manifest
    assert (manifest.model_name, manifest.hardware and manifest.hardware.name) == (
        "Llama",
        "MI300X",
    )


def test_analyze_prints_the_step_and_its_first_findings_before_the_paths(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    built = trace(device="AMD Instinct MI300X")
    for shape in (64, 96, 128):
        built.waits(900).op("aten::mm", [[shape, shape], [shape, shape]]).launches("gemm", us=40)
    path = built.write(tmp_path / "waiting.json")
    assert run("analyze", path, "--output-dir", tmp_path / "out") == 0
    printed = capsys.readouterr()
    stored = Run.load(tmp_path / "out")
    step, first, *_ = printed.err.splitlines()[-1 - min(3, len(recommendations(stored))) :]
    bounds = stored.manifest.totals.step
    assert bounds is not None
    assert step == f"The recording: {milliseconds(bounds.step_ms)}"
    gain = recommendations(stored)[0].finding.impact
    assert gain is not None
    assert first.startswith("P1 ")
    assert first.endswith(f"saves {milliseconds(gain.gain_ms)} ({percent(gain.gain_pct)})")
    assert printed.out.splitlines()[0] == str(tmp_path / "out")
    assert run("analyze", path, "--output-dir", tmp_path / "out", "--progress", "json") == 0
    assert "P1 " not in capsys.readouterr().err


def test_analyze_warns_if_platforms_differ(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("analyze", small, "--platform", "h200 sxm") == 0
    assert "warning: The trace was recorded on" in capsys.readouterr().err


def test_another_run_in_the_folder_is_rejected(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_sample(tmp_path / "other.json", scale="tiny", steps=1)
    out = tmp_path / "out"
    assert run("analyze", small, "--output-dir", out) == 0
    assert run("analyze", small, "--output-dir", out) == 0  # the same trace replaces its own run
    assert run("analyze", other, "--output-dir", out) == 1
    assert "--output-dir" in capsys.readouterr().err


def test_analyze_stores_under_an_id(
    small: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    assert run("analyze", small, "--id", "--output-dir", tmp_path / "copy") == 0
    first = capsys.readouterr().out.splitlines()
    identifier = first[0].split()[1]
    kept = Run.load(tmp_path / "home" / "analyses" / identifier)
    assert kept.manifest.analysis_id == identifier
    assert Run.load(tmp_path / "copy").manifest == kept.manifest
    assert run("analyze", small, "--id") == 0
    assert "already stored" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["analyze", "missing.json"], "cannot be read"),
        (["analyze", "{trace}", "--platform", "Abacus"], "Unknown GPU 'Abacus'"),
        (["report", "{trace}", "--output_xlsx_path", "{trace}/x.xlsx"], "small.json"),
        (["export", "missing", "--output", "x"], "There is no analysis 'missing'"),
        (["export", "missing", "--format", "pdf", "--output", "x"], "no format 'pdf'"),
        (["sample", "--scale", "vast"], "vast"),
    ],
)
def test_errors_give_one_message_and_exit_code_1(
    small: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(small.parent)
    assert run(*(argument.format(trace=small) for argument in arguments)) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("jarvis: ")
    assert sentence in error
    assert "Traceback" not in error


def test_export_writes_another_format(small: Path, tmp_path: Path) -> None:
    assert run("analyze", small, "--output-dir", tmp_path / "out") == 0
    assert run("export", tmp_path / "out", "--output", tmp_path / "run.json") == 0
    assert (tmp_path / "run.json").read_bytes().startswith(b'{"manifest":')


def test_export_writes_a_trace_for_perfetto(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, file = tmp_path / "out", tmp_path / "p.json.gz"
    assert run("analyze", small, "--output-dir", out) == 0
    options = ["--format", "perfetto", "--output", file]

    def notes_of_file() -> dict[str, object]:
        return json.loads(gzip.decompress(file.read_bytes()))["otherData"]

    assert run("export", out, *options) == 0
    assert notes_of_file()["source"] == FROM_TRACE
    unchanged = file.read_bytes()
    assert run("export", out, *options, "--change", "scale=compute:0.5") == 0
    assert file.read_bytes() != unchanged
    moved = small.rename(tmp_path / "moved.json")
    capsys.readouterr()
    assert run("export", out, *options) == 0
    assert "note: the trace was deleted or changed" in capsys.readouterr().err
    assert notes_of_file()["source"] == FROM_RUN
    assert run("export", out, *options, "--trace", moved) == 0
    assert file.read_bytes() == unchanged
    with pytest.raises(SystemExit):
        run("export", out, "--output", file, "--trace", moved)
    assert "apply to --format perfetto" in capsys.readouterr().err


def test_sample_writes_a_trace_for_each_rank(tmp_path: Path) -> None:
    out = tmp_path / "s.json.gz"
    options = ["--scale", "tiny", "--steps", "1", "--seed", "3"]
    assert run("sample", "--output", out, *options) == 0
    assert run("sample", "--output", out, *options, "--ranks", "2") == 0
    ranks = sorted(path.name for path in tmp_path.glob("rank*"))
    assert ranks == ["rank0_s.json.gz", "rank1_s.json.gz"]
    assert out.read_bytes() != (tmp_path / ranks[1]).read_bytes()


def test_hardware_lists_every_preset(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("hardware") == 0
    lines = capsys.readouterr().out.splitlines()
    for spec in load_hardware():
        assert any(line.startswith(spec.name) and spec.preset in line for line in lines)


def test_serve_runs_the_app_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(os, "execv", lambda program, command: started.append((program, command)))
    monkeypatch.setenv("JARVIS_HOME", "elsewhere")
    monkeypatch.setenv("JARVIS_TRACE_ROOTS", "restored afterwards")
    monkeypatch.delenv("JARVIS_TRACE_ROOTS")
    monkeypatch.setenv("MALLOC_ARENA_MAX", "16")
    monkeypatch.setenv("_RJEM_MALLOC_CONF", "restored afterwards")
    monkeypatch.delenv("_RJEM_MALLOC_CONF")
    monkeypatch.chdir(tmp_path)
    run("serve", "--port", "8600", "--home", "kept", "--with-sample")
    ((program, command),) = started
    assert program == sys.executable
    assert command[1:4] == ["-m", "uvicorn", "app:app"]
    assert command[command.index("--port") + 1] == "8600"
    assert Path.cwd() == resource("app.py").parent.resolve()
    assert os.environ["JARVIS_HOME"] == str(tmp_path / "kept")
    assert os.environ["_RJEM_MALLOC_CONF"] == "narenas:2,muzzy_decay_ms:0"
    assert os.environ["MALLOC_ARENA_MAX"] == "16", "what a user sets stays"
    assert {"_RJEM_MALLOC_CONF", "MALLOC_ARENA_MAX"} & without_server_arenas().keys() == {
        "MALLOC_ARENA_MAX"
    }
    assert os.environ["JARVIS_TRACE_ROOTS"].split(os.pathsep)[0] == str(tmp_path)
    (kept,) = (tmp_path / "kept" / "analyses").iterdir()
    assert f"?analysis={kept.name}" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["analyze", "report", "export", "serve", "sample", "hardware"])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        run(command, "--help")
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    assert f"usage: jarvis {command}" in text
    assert len(text.split()) > 15


def test_help_imports_no_heavy_module() -> None:
    code = (
        "import sys, contextlib, jarvis.cli\n"
        "with contextlib.suppress(SystemExit): jarvis.cli.main(['--help'])\n"
        "print([m for m in ('polars', 'pydantic', 'openpyxl', 'jinja2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_an_analysis_into_a_folder_needs_no_server(small: Path, tmp_path: Path) -> None:
    code = (
        "import sys, jarvis.cli\n"
        "jarvis.cli.main(['analyze', sys.argv[1], '--output-dir', sys.argv[2]])\n"
        "print([m for m in ('sqlalchemy', 'jarvis.server') if m in sys.modules])"
    )
    command = [sys.executable, "-c", code, str(small), str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (tmp_path / "run" / "manifest.json").is_file()
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_closed_pipe_is_no_error(small: Path) -> None:
    command = f"{sys.executable} -u -m jarvis.cli hardware | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "code", "output"),
    [(["hardware"], 0, "MI300X"), (["report", "nowhere.json"], 1, "No such file"), (["x"], 2, "x")],
)
def test_a_subprocess_prints_its_whole_output(
    arguments: list[str], code: int, output: str, usual_processes: None
) -> None:
    command = [sys.executable, "-m", "jarvis.cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert output in done.stdout + done.stderr


def test_an_early_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m jarvis.cli hardware | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
