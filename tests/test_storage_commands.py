"""``jarvis list``, ``archive``, ``pin``, ``remove`` and ``prune``."""

import io
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from jarvis.cli import main
from jarvis.cli.output import ExitCode
from jarvis.server.storage.catalog import analysis_root, pinned, read_catalog
from jarvis.server.submission import Submission, submit
from tests.builders import trace

Output = pytest.CaptureFixture[str]


class Terminal(io.StringIO):
    """A terminal that answers prompts."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a trace and a home that has its analysis; do not change it."""
    folder = tmp_path_factory.mktemp("stored")
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(folder / "home"))
        submit(Submission(built.write(folder / "tiny.json"), model_name="Tiny"))
    return folder


@pytest.fixture
def stored_id(stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the id of an analysis stored 40 days ago."""
    shutil.copytree(stored, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    (identifier,) = ids()
    then = time.time() - 40 * 86_400
    os.utime(analysis_root(identifier) / "manifest.json", (then, then))
    return identifier


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def printed(output: Output, *arguments: object) -> dict[str, Any]:
    """Return the JSON output of a command."""
    assert run(*arguments, "--json") == ExitCode.OK
    result: dict[str, Any] = json.loads(output.readouterr().out)
    return result


def ids() -> list[str]:
    return [entry.id for entry in read_catalog().entries]


def test_an_analysis_goes_to_another_server_and_keeps_its_id(
    stored_id: str, capsys: Output, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    saved = printed(capsys, "archive", "save", stored_id)
    assert saved["output"] == f"{stored_id}.jarvis.zip"
    assert saved["size_bytes"] == Path(saved["output"]).stat().st_size
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "elsewhere"))
    assert run("archive", "load", saved["output"]) == ExitCode.OK
    assert capsys.readouterr().out == f"{stored_id}\n"
    assert ids() == [stored_id]
    assert printed(capsys, "archive", "load", saved["output"])["is_reused"]
    assert "with the same content" in run_and_err(capsys, "archive", "load", saved["output"])


def run_and_err(output: Output, *arguments: object) -> str:
    run(*arguments)
    return output.readouterr().err


def test_an_invalid_archive_gives_one_message(stored_id: str, capsys: Output) -> None:
    assert run("archive", "load", "tiny.json") == ExitCode.FAILED
    output = capsys.readouterr().err
    assert output.startswith("jarvis: tiny.json cannot be imported: ")
    assert output.count("\n") == 1


def test_an_archive_that_cannot_be_written_leaves_nothing(stored_id: str, tmp_path: Path) -> None:
    (analysis_root(stored_id) / "manifest.json").write_text("{")
    assert run("archive", "save", stored_id, "-o", "out.zip") == ExitCode.FAILED
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "tiny.json"]


def test_the_list_names_every_analysis_with_its_size(stored_id: str, capsys: Output) -> None:
    run("pin", stored_id)
    capsys.readouterr()
    run("list")
    line = capsys.readouterr().out
    assert line.startswith(stored_id)
    assert " pinned  Tiny" in line
    (row,) = printed(capsys, "list")["analyses"]
    assert row["size_bytes"] > 10_000
    assert row["is_pinned"]


def test_the_list_has_distributed_runs_before_their_ranks(
    capsys: Output, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    traces = tmp_path / "ranks"
    assert run("sample", "--ranks", 2, "--world-size", 2, "-o", traces / "job.json") == ExitCode.OK
    assert run("analyze", traces, "--id", "--jobs", 1) == ExitCode.OK
    capsys.readouterr()
    run("list")
    first, *others = capsys.readouterr().out.splitlines()
    result = printed(capsys, "list")
    (job,) = result["distributed"]
    assert first.startswith(job["id"])
    assert first.endswith("2 of 2 ranks (0-1)")
    assert sorted(job["ranks"].values()) == sorted(each["id"] for each in result["analyses"])
    assert {line.split()[0] for line in others} == {*job["ranks"].values()}


def test_an_empty_list_is_reported(
    capsys: Output, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path))
    assert run("list") == ExitCode.OK
    assert capsys.readouterr().out == "No analyses are stored.\n"


@pytest.mark.parametrize("command", [("remove",), ("prune", "--older-than", "30d")])
def test_without_a_terminal_nothing_is_deleted(
    stored_id: str, capsys: Output, command: tuple[str, ...]
) -> None:
    given = (*command, stored_id) if command == ("remove",) else command
    assert run(*given) == ExitCode.FAILED
    assert "--yes" in capsys.readouterr().err
    assert ids() == [stored_id]


@pytest.mark.parametrize(
    ("answer", "code", "left"), [("y\n", 0, 0), ("yes\n", 0, 0), ("n\n", 1, 1), ("", 1, 1)]
)
def test_a_terminal_gets_a_prompt(
    stored_id: str,
    capsys: Output,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    code: int,
    left: int,
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    assert run("remove", stored_id) == code
    output = capsys.readouterr().err
    assert stored_id in output
    assert "[y/N]" in output
    assert len(ids()) == left


def test_all_are_removed_or_none(stored_id: str, capsys: Output) -> None:
    assert run("remove", "--yes", stored_id, "nothing") == ExitCode.FAILED
    assert "There is no analysis 'nothing'" in capsys.readouterr().err
    assert ids() == [stored_id]
    run("pin", stored_id)
    assert run("remove", "--yes", stored_id) == ExitCode.FAILED
    assert "it is pinned" in capsys.readouterr().err
    run("pin", "--off", stored_id)
    capsys.readouterr()
    assert [one["id"] for one in printed(capsys, "remove", "--yes", stored_id)["removed"]] == [
        stored_id
    ]
    assert ids() == []


def test_pinning_an_unknown_analysis_is_rejected(stored_id: str) -> None:
    assert run("pin", stored_id, "nothing") == ExitCode.FAILED
    assert pinned() == frozenset()


def test_a_dry_run_lists_what_would_be_deleted_and_why(stored_id: str, capsys: Output) -> None:
    run("prune", "--older-than", "30d", "--dry-run")
    out = capsys.readouterr().out
    assert stored_id in out
    assert "40 days old: older than 30 days" in out
    assert "would be deleted" in out
    planned = printed(capsys, "prune", "--older-than", "30d", "--dry-run")
    assert planned["removed"] == []
    assert [(row["kind"], row["name"]) for row in planned["planned"]] == [("analysis", stored_id)]
    assert ids() == [stored_id]


@pytest.mark.parametrize("limit", [("--older-than", "30d"), ("--keep-under", "1kB")])
def test_entries_beyond_a_limit_are_deleted(
    stored_id: str, capsys: Output, limit: tuple[str, str]
) -> None:
    result = printed(capsys, "prune", "--yes", *limit)
    assert [row["name"] for row in result["removed"]] == [stored_id]
    assert ids() == []


def test_a_limit_that_cannot_be_met_is_reported(stored_id: str, capsys: Output) -> None:
    run("pin", stored_id)
    capsys.readouterr()
    assert run("prune", "--yes", "--keep-under", "1kB") == ExitCode.OK
    output = capsys.readouterr()
    assert f"{stored_id} is not deleted: pinned" in output.err
    assert "remain above the limit" in output.err
    assert ids() == [stored_id]


def test_the_environment_sets_limits_and_without_them_nothing_is_deleted(
    stored_id: str, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert printed(capsys, "prune", "--yes")["removed"] == []
    monkeypatch.setenv("JARVIS_PRUNE_OLDER_THAN", "6w")
    assert printed(capsys, "prune", "--yes")["removed"] == []
    monkeypatch.setenv("JARVIS_PRUNE_OLDER_THAN", "30d")
    assert [row["name"] for row in printed(capsys, "prune", "--yes")["removed"]] == [stored_id]


def test_the_file_of_settings_sets_limits(
    stored_id: str, capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "jarvis.toml"
    file.write_text('prune_older_than = "30d"\n')
    monkeypatch.setenv("JARVIS_CONFIG", str(file))
    planned = printed(capsys, "prune", "--dry-run")["planned"]
    assert [row["name"] for row in planned] == [stored_id]


def test_an_invalid_limit_in_the_environment_is_a_usage_error(
    stored_id: str, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JARVIS_PRUNE_KEEP_UNDER", "much")
    with pytest.raises(SystemExit) as end:
        run("prune", "--yes")
    assert end.value.code == ExitCode.USAGE
    assert "JARVIS_PRUNE_KEEP_UNDER" in capsys.readouterr().err
    assert ids() == [stored_id]


@pytest.mark.parametrize("given", ["30", "d", "-3d", "30y", "1e9d", "nan"])
def test_an_invalid_age_is_a_usage_error(stored_id: str, capsys: Output, given: str) -> None:
    with pytest.raises(SystemExit) as end:
        run("prune", "--older-than", given)
    assert end.value.code == ExitCode.USAGE
    assert ids() == [stored_id]
