"""``jarvis tree``: of a trace, of a run with its trace, and of a run without."""

import json
from pathlib import Path
from typing import Any

import pytest

from jarvis import cli
from jarvis.pipeline import analyze
from jarvis.run import Run
from tests.builders import TraceBuilder, trace

Capture = pytest.CaptureFixture[str]


def products() -> TraceBuilder:
    built = trace(device="AMD Instinct MI300X")
    for us in (900, 300):
        built.python("train.py(3): step").python("nn.Module: Block_0")
        built.child("aten::linear", [[64, 64], [64, 64]])
        built.child("aten::mm", [[64, 64], [64, 64]]).launches("gemm", us=us).up(4)
    return built


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return products().write(tmp_path / "trace.json")


@pytest.fixture
def run(source: Path) -> Run:
    return analyze(source)


def tree(*arguments: object) -> int:
    return cli.main(["tree", *map(str, arguments)])


def as_json(capsys: Capture, *arguments: object) -> dict[str, Any]:
    assert tree(*arguments, "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def first_mm(source: Path, capsys: Capture) -> int:
    return int(as_json(capsys, source, "--name", "aten::mm")["calls"][0]["uid"])


def test_a_call_is_shown_with_its_callers_and_subtree(source: Path, capsys: Capture) -> None:
    uid = first_mm(source, capsys)
    assert tree(source, "--uid", uid) == 0
    out, err = capsys.readouterr()
    types = "('c10::BFloat16', 'c10::BFloat16')"
    arguments = f"((64, 64), (64, 64))  {types}  in Block_0"
    assert [line[27:] for line in out.splitlines()] == [
        "call",
        "train.py(3): step",
        "  nn.Module: Block_0",
        f"    aten::linear  {arguments}",
        f"      aten::mm  {arguments}",
        "        cudaLaunchKernel",
        "          gemm  on stream 7",
    ]
    (chosen,) = [line for line in out.splitlines() if line.startswith(">")]
    assert chosen.split()[:3] == [">", str(uid), "900.000"]
    assert err == ""


def test_calls_are_listed_by_kernel_time(source: Path, capsys: Capture) -> None:
    assert tree(source, "--name", "aten::*", "--limit", 2) == 0
    _, first, second, more = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in (first, second)] == ["900.000", "900.000"]
    assert more == "2 of 4 calls, those with most kernel time; --limit 0 lists all."
    found = as_json(capsys, source, "--name", "aten::*", "--limit", 0)
    assert [call["kernel_time_us"] for call in found["calls"]] == [900.0, 900.0, 300.0, 300.0]
    assert tree(source, "--name", "mm") == 0
    assert capsys.readouterr().out == "No call is named mm. * matches any text, as in *mm*.\n"


def test_json_is_the_table_of_the_api(source: Path, capsys: Capture) -> None:
    import jarvis

    uid = first_mm(source, capsys)
    found = as_json(capsys, source, "--uid", uid, "--depth", 1)
    read = jarvis.read_trace(source)
    assert found == {
        "source": "trace",
        "uid": uid,
        "parents": read.parents(uid).to_dicts(),
        "subtree": read.subtree(uid, 1).to_dicts(),
    }


def test_a_run_finds_its_trace(run: Run, source: Path, capsys: Capture) -> None:
    (uid,) = run.table("operations").filter(name="aten::mm")["uid"]
    assert as_json(capsys, run.root, "--uid", uid) == as_json(capsys, source, "--uid", uid)
    moved = source.parent / "elsewhere"
    moved.mkdir()
    source.rename(moved / source.name)
    run.root.rename(moved / "run")
    assert as_json(capsys, moved / "run", "--uid", uid)["source"] == "trace"


def test_a_stored_analysis_is_given_by_its_id(
    source: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    assert cli.main(["analyze", str(source), "--id", "--json"]) == 0
    kept = json.loads(capsys.readouterr().out)
    assert as_json(capsys, kept["id"], "--name", "gemm")["total"] == 2


def test_a_run_without_its_trace_shows_what_it_stores(
    run: Run, source: Path, capsys: Capture
) -> None:
    (uid,) = run.table("operations").filter(name="aten::mm")["uid"]
    with_trace = as_json(capsys, run.root, "--uid", uid)
    source.write_text(source.read_text() + "\n")
    found = as_json(capsys, run.root, "--uid", uid)
    assert found["source"] == "stored"
    for part in ("parents", "subtree"):
        names = [[call["name"] for call in side[part]] for side in (found, with_trace)]
        assert names[0] == names[1]
    assert found["subtree"][0]["kernel_time_us"] == 600.0  # the mean of 900 and 300
    assert tree(run.root, "--uid", uid) == 0
    out, err = capsys.readouterr()
    assert err.startswith("note: The trace trace.json was moved, deleted or changed.")
    assert "gemm" in out
    assert as_json(capsys, run.root, "--name", "*mm")["calls"][0]["module"] == "Block_0"
    source.unlink()
    assert tree(run.root, "--uid", 10**6) == 1
    assert "has no call 1000000" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["{trace}", "--uid", "10000000"], 1, "trace.json has no call 10000000"),
        (["nobody", "--uid", "1"], 1, "There is no analysis 'nobody'"),
        (["{folder}", "--uid", "1"], 1, "is not a run directory"),
        (["../../nobody", "--uid", "1"], 1, "There is no analysis '../../nobody'"),
        (["{junk}", "--uid", "1"], 1, "is not a trace of the PyTorch profiler"),
        (["{trace}"], 2, "one of the arguments --uid --name is required"),
        (["{trace}", "--uid", "1", "--name", "x"], 2, "not allowed with"),
        (["{trace}", "--uid", "one"], 2, "invalid int value"),
        (["{trace}", "--uid", "1", "--depth", "-1"], 2, "-1 is below 0"),
    ],
)
def test_calls_that_cannot_be_shown_are_reported(
    source: Path, tmp_path: Path, capsys: Capture, arguments: list[str], code: int, sentence: str
) -> None:
    junk = tmp_path / "junk.json"
    junk.write_text('{"a": 1}')
    places = {"trace": source, "folder": tmp_path, "junk": junk}
    try:
        found = tree(*(argument.format(**places) for argument in arguments))
    except SystemExit as stopped:
        found = int(stopped.code or 0)
    assert found == code
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err.splitlines()[-1]
