"""What all commands have in common: JSON, exit codes, pipes, Ctrl-C, completion, their page."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jarvis import cli
from jarvis.cli import options, output
from jarvis.cli.atomic_output import atomic_output
from jarvis.cli.completion import SETUP
from jarvis.cli.output import ExitCode
from jarvis.cli.reference import command_line_markdown
from jarvis.core.product import product_version
from jarvis.pipeline import STEPS, Step
from jarvis.pipeline.steps import step_of_line
from jarvis.run import SCHEMA_VERSION
from tests.builders import trace

ROOT = Path(__file__).parent.parent
Capture = pytest.CaptureFixture[str]
ARCH = {"name": "X1", "mem_bw_gbps": 1000, "memory_gb": 8, "max_achievable_tflops": {}}

AS_JSON = {
    "analyze": ["analyze", "{trace}", "--output-dir", "{new}"],
    "report": ["report", "{trace}", "--output_csvs_dir", "{new}"],
    "tree": ["tree", "{trace}", "--name", "*"],
    "validate": ["validate", "{run}"],
    "export": ["export", "{run}", "--output", "{new}"],
    "config": ["config", "--check"],
    "sample": ["sample", "--scale", "tiny", "--steps", "1", "--output", "{new}"],
    "hardware": ["hardware"],
    "hardware list": ["hardware", "list"],
    "hardware show": ["hardware", "show", "MI300X"],
    "hardware check": ["hardware", "check", "{arch}"],
    "hardware add": ["hardware", "add", "{arch}"],
    "reproject": ["reproject", "{run}", "--platform", "H100 SXM", "--output-dir", "{new}"],
    "what-if": ["what-if", "{run}", "--change", "scale=compute:0.5"],
}
"""A call of each command that prints results."""

WITHOUT_JSON = {"serve", "worker", "completion"}
"""Commands that run until stopped, and a shell script."""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A trace, a run of it and a description of a GPU."""
    folder = tmp_path_factory.mktemp("places")
    built = trace(device="AMD Instinct MI300X")
    built.op("aten::mm", [[512, 512], [512, 512]]).launches("gemm", us=90)
    source = built.write(folder / "trace.json")
    assert cli.main(["analyze", str(source), "--output-dir", str(folder / "run")]) == 0
    arch = folder / "arch.json"
    arch.write_text(json.dumps(ARCH))
    return {"trace": source, "run": folder / "run", "arch": arch}


def takes_json(command: argparse.ArgumentParser) -> bool:
    """Whether a command, or each one below it, has ``--json``."""
    below = [a for a in command._actions if isinstance(a, argparse._SubParsersAction)]
    if below:
        return all(takes_json(part) for part in below[0].choices.values())
    return "--json" in command._option_string_actions


def commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """All commands by name."""
    kinds = (action for action in parser._actions if action.choices)
    (found,) = (kind.choices for kind in kinds if isinstance(kind, argparse._SubParsersAction))
    return dict(found)


def started(*arguments: object, **options: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from jarvis.cli import run; run()", *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=ROOT, **options)


@pytest.mark.parametrize("name", AS_JSON)
def test_json_is_one_document_and_all_of_stdout(
    places: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
    name: str,
) -> None:
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    words = [word.format(**places, new=tmp_path / "new") for word in AS_JSON[name]]
    assert cli.main([*words, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert isinstance(result, dict)
    assert result
    written = [result.get(key) for key in ("run", "output", "manifest")]
    written += [*result.get("files", []), *result.get("traces", []), *result.get("reports", [])]
    assert [path for path in written if path and not Path(path).exists()] == []


def test_a_program_can_follow_the_steps(
    places: dict[str, Path], tmp_path: Path, capsys: Capture
) -> None:
    words = ["analyze", str(places["trace"]), "--output-dir", str(tmp_path / "run")]
    assert cli.main([*words, "--progress", "json"]) == 0
    output = [step for step in map(step_of_line, capsys.readouterr().err.splitlines()) if step]
    assert [step.name for step in output if step.state == "done"] == list(STEPS)
    assert all(step.elapsed_s is not None for step in output if step.state == "done")


def test_the_version_names_the_layout_too(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"jarvis {product_version()}, layout {SCHEMA_VERSION}\n"


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["analyze", "--help"], ["tree"]])
def test_version_help_and_usage_errors_import_no_heavy_module(words: list[str]) -> None:
    code = (
        "import sys, jarvis.cli\n"
        "try:\n    jarvis.cli.main(sys.argv[1:])\n"
        "except SystemExit:\n    print('imported:', *sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True, cwd=ROOT
    )
    imported = set(done.stdout.rpartition("imported: ")[2].split())
    assert "jarvis.cli" in imported
    heavy = {"polars", "numpy", "numba", "pandas", "pydantic", "sqlalchemy", "streamlit", "fastapi"}
    assert imported & heavy == set()


def test_every_command_that_prints_results_takes_json() -> None:
    without = {name for name, command in commands(cli.parser()).items() if not takes_json(command)}
    assert without == WITHOUT_JSON


def test_json_of_an_analysis_contains_its_warnings(
    places: dict[str, Path], tmp_path: Path, capsys: Capture
) -> None:
    words = ["analyze", str(places["trace"]), "--output-dir", str(tmp_path / "run"), "--json"]
    assert cli.main([*words, "--platform", "H100 SXM"]) == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert result["hardware"] == "H100 SXM"
    assert any("but the analysis uses the peaks of" in warning for warning in result["warnings"])
    assert all(f"warning: {warning}" in captured.err for warning in result["warnings"])


UNREADABLE = {
    "trace": ["analyze", "{bad}"],
    "trace of a report": ["report", "{bad}"],
    "trace of a tree": ["tree", "{bad}", "--uid", "1"],
    "extension": ["analyze", "{trace}", "--extension-file", "{bad}"],
    "description of a GPU": ["analyze", "{trace}", "--gpu-arch-json-path", "{bad}"],
    "new GPU": ["hardware", "add", "{bad}"],
    "run": ["validate", "{bad}"],
    "run to export": ["export", "{bad}", "--output", "{bad}/x"],
    "run to reproject": ["reproject", "{bad}", "--output-dir", "{bad}/x"],
    "compared trace": ["report", "{trace}", "--comparison_json_path", "{bad}"],
}


@pytest.mark.parametrize("kind", ["missing", "folder"])
@pytest.mark.parametrize("what", UNREADABLE)
def test_unreadable_inputs_give_one_message(
    places: dict[str, Path], tmp_path: Path, capsys: Capture, what: str, kind: str
) -> None:
    bad = tmp_path / "bad.json"
    if kind == "folder":
        bad.mkdir()
    words = [word.format(**places, bad=bad) for word in UNREADABLE[what]]
    assert cli.main(words) == ExitCode.FAILED
    out, err = capsys.readouterr()
    (sentence,) = [line for line in err.splitlines() if not line.startswith("[")]
    assert sentence.startswith("jarvis: ")
    assert "bad" in sentence
    assert sentence.endswith(".")
    assert out == ""


def test_unknown_ids_give_one_message(capsys: Capture) -> None:
    for words in (["validate"], ["export", "--output", "x"], ["tree", "--uid", "1"]):
        assert cli.main([words[0], "nobody", *words[1:]]) == ExitCode.FAILED
        assert "There is no analysis 'nobody'" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["hardware"], ["tree", "{trace}", "--name", "*"]])
def test_a_closed_output_pipe_is_no_error(places: dict[str, Path], arguments: list[str]) -> None:
    with started(*(argument.format(**places) for argument in arguments)) as process:
        process.stdout.close()
        assert process.wait(60) == ExitCode.OK
        assert process.stderr.read() == ""


def test_a_closed_progress_pipe_is_no_error(places: dict[str, Path], tmp_path: Path) -> None:
    with started("report", places["trace"], "--output_csvs_dir", tmp_path / "csvs") as process:
        process.stderr.close()
        assert process.wait(60) == ExitCode.OK


def test_ctrl_c_exits_with_130_without_output(places: dict[str, Path], tmp_path: Path) -> None:
    extension = tmp_path / "slow.py"
    begun = tmp_path / "begun"
    extension.write_text(
        "import pathlib, time\n"
        "def register(registry):\n"
        "    @registry.perf_model('aten::mm', category='GEMM')\n"
        "    def mm(op):\n"
        f"        pathlib.Path({str(begun)!r}).touch()\n"
        "        while True:\n"
        "            time.sleep(0.1)  # a signal just before a sleep does not end it\n"
    )
    options = ["--extension-file", extension, "--output-dir", tmp_path / "out"]
    with started("analyze", places["trace"], *options) as process:
        deadline = time.monotonic() + 60
        while not begun.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == ExitCode.INTERRUPTED
        assert process.stderr.read().splitlines()[-1] == "jarvis: stopped."
    assert sorted(path.name for path in tmp_path.iterdir()) == ["begun", "slow.py"]


def test_ctrl_c_during_a_run_leaves_no_output(
    places: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def stop(step: Step) -> None:
        if step.name == "Save":
            assert list(tmp_path.iterdir())  # the run is being written beside its place
            raise KeyboardInterrupt

    monkeypatch.setattr(output, "print_step", stop)
    words = ["analyze", str(places["trace"]), "--output-dir", str(tmp_path / "out")]
    assert cli.main(words) == ExitCode.INTERRUPTED
    assert capsys.readouterr().err == "jarvis: stopped.\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("writer", "flag"),
    [("csv.write_csvs", "--output_csvs_dir"), ("xlsx.write_workbook", "--output_xlsx_path")],
)
def test_ctrl_c_during_a_report_leaves_the_old_file(
    places: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    writer: str,
    flag: str,
) -> None:
    def stop(_: object, place: Path) -> None:
        place.mkdir()
        (place / "half.csv").write_text("a,b\n1")
        raise KeyboardInterrupt

    monkeypatch.setattr(f"jarvis.reports.{writer}", stop)
    words = ["report", str(places["trace"]), flag, str(tmp_path / "out")]
    assert cli.main(words) == ExitCode.INTERRUPTED
    assert list(tmp_path.iterdir()) == []


def test_a_folder_gets_its_files_beside_those_it_has(tmp_path: Path) -> None:
    folder = tmp_path / "csvs"
    folder.mkdir()
    for name in ("kept", "replaced"):
        (folder / name).write_text("old")
    with atomic_output(folder) as place:
        place.mkdir()
        for name in ("replaced", "new"):
            (place / name).write_text("new")
        assert (folder / "replaced").read_text() == "old"
    found = {path.name: path.read_text() for path in folder.iterdir()}
    assert found == {"kept": "old", "replaced": "new", "new": "new"}
    assert list(tmp_path.iterdir()) == [folder]


def test_steps_are_lines_where_no_terminal_reads_them(
    places: dict[str, Path], tmp_path: Path, capsys: Capture
) -> None:
    assert cli.main(["report", str(places["trace"]), "--output_csvs_dir", str(tmp_path)]) == 0
    err = capsys.readouterr().err
    assert err == "[1/2] Read the trace\n[2/2] Match the hardware\n"


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("jarvis rep", {"report", "reproject"}),
        ("jarvis tree --na", {"--name"}),
        ("jarvis analyze --platform MI3", {"MI300X", "MI325X", "MI355X"}),
        ("jarvis tree kept", {"kept-one"}),
        ("jarvis completion ", set(SETUP)),
    ],
)
def test_a_shell_completes(tmp_path: Path, typed: str, expected: set[str]) -> None:
    home = tmp_path / "home"
    (home / "analyses" / "kept-one").mkdir(parents=True)
    answers = tmp_path / "answers"
    environment = {
        **os.environ,
        "JARVIS_HOME": str(home),
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answers),
        "COMP_LINE": typed,
        "COMP_POINT": str(len(typed)),
    }
    with started(env=environment) as process:
        assert process.wait(60) == 0
    found = {word.strip().replace("\\", "") for word in answers.read_text().splitlines()}
    assert expected <= found
    assert all(word.startswith(typed.split(" ")[-1]) for word in found)


@pytest.mark.parametrize("shell", SETUP)
def test_the_completion_of_a_shell_is_printed(shell: str, capsys: Capture) -> None:
    assert cli.main(["completion", shell]) == 0
    assert "jarvis" in capsys.readouterr().out
    assert f"jarvis completion {shell}" in SETUP[shell]


def test_bash_accepts_its_completion(capsys: Capture) -> None:
    cli.main(["completion", "bash"])
    script = capsys.readouterr().out + "\ncomplete -p jarvis"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert "_python_argcomplete" in done.stdout


def test_completion_imports_no_heavy_module() -> None:
    code = (
        "import sys, jarvis.cli, jarvis.cli.completion\n"
        "jarvis.cli.parser()\n"
        "heavy = ('argcomplete', 'polars', 'pydantic', 'numpy', 'importlib.metadata')\n"
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_ids_are_completed_without_stored_analyses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    assert list(options.complete_run("x")) == []


def test_the_page_has_every_command_option_and_exit_code() -> None:
    page = command_line_markdown()
    for code in ExitCode:
        assert f"| {code:d} | {code.meaning} |" in page
    for name in commands(cli.parser()):
        assert f"## `jarvis {name}`" in page
    for option in ("--extension-file FILE", "--uid N", "--json", "--gpu-arch-json-path FILE"):
        assert f"`{option}`" in page


def test_commands_return_exit_codes_alone() -> None:
    """Numbers without a name would be codes that the page does not have."""
    for module in (ROOT / "jarvis" / "cli").glob("*.py"):
        lines = module.read_text(encoding="utf-8").splitlines()
        bare = [line for line in lines if line.strip().removeprefix("return ").isdigit()]
        assert bare == [], module.name


def test_dashes_and_underscores_are_accepted() -> None:
    def options(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for command in action.choices.values():
                    yield from options(command)
            else:
                yield action

    for action in options(cli.parser()):
        for name in action.option_strings:
            inner = name.removeprefix("--")
            for other in (inner.replace("_", "-"), inner.replace("-", "_")):
                assert not name.startswith("--") or f"--{other}" in action.option_strings
