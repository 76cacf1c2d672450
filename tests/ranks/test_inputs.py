"""Files of the ranks of a job: folders, paths, and patterns."""

from pathlib import Path

import pytest

from jarvis.cli import main
from jarvis.core.errors import JarvisError
from jarvis.ranks.inputs import (
    MAX_RANKS_VARIABLE,
    MissingRankError,
    NoTracesError,
    TooManyFilesError,
    common_name,
    expand_braces,
    files_of_glob,
    files_of_pattern,
    trace_files,
)


def put(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("{}", encoding="utf-8")


def test_a_folder_with_its_folders(tmp_path: Path) -> None:
    put(tmp_path, "rank0.json", "b/rank1.json.gz", "notes.txt", ".hidden.json", ".git/x.json")
    put(tmp_path, "1/2/3/4/deep.json", "1/2/3/4/5/too_deep.json")
    names = [file.name for file in trace_files([tmp_path])]
    assert names == ["rank0.json", "1/2/3/4/deep.json", "b/rank1.json.gz"]


def test_links_that_lead_out_of_a_folder_are_left_out(tmp_path: Path) -> None:
    put(tmp_path, "outside.json", "in/rank0.json")
    (tmp_path / "in" / "rank1.json").symlink_to(tmp_path / "outside.json")
    assert [file.name for file in trace_files([tmp_path / "in"])] == ["rank0.json"]


def test_a_file_counts_once(tmp_path: Path) -> None:
    put(tmp_path, "rank0.json")
    assert len(trace_files([tmp_path, tmp_path / "rank0.json"])) == 1


def test_quoted_patterns_are_expanded(tmp_path: Path) -> None:
    put(tmp_path, "a/rank0.json", "b/c/rank1.json")
    assert len(trace_files([tmp_path / "**" / "rank*.json"])) == 2


def test_no_traces_and_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(NoTracesError):
        trace_files([tmp_path])
    put(tmp_path, "rank0.json", "rank1.json")
    monkeypatch.setenv(MAX_RANKS_VARIABLE, "1")
    with pytest.raises(TooManyFilesError, match="2 files"):
        trace_files([tmp_path])
    monkeypatch.delenv(MAX_RANKS_VARIABLE)
    put(tmp_path, *(f"many/rank{rank}.json" for rank in range(5_000)))
    assert main(["analyze", str(tmp_path / "many")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("jarvis: There are 5,000 files, and a job may have 4,096 ranks.")
    assert error.count("\n") == 1


def test_patterns_of_tracelens(tmp_path: Path) -> None:
    put(tmp_path, "rank0_t.json", "rank1_t.json")
    pattern = str(tmp_path / "rank*_t.json")
    assert [path.name for path in files_of_pattern(pattern, 2)] == ["rank0_t.json", "rank1_t.json"]
    assert files_of_glob(pattern, 2) == files_of_pattern(pattern, 2)
    for function in (files_of_pattern, files_of_glob):
        with pytest.raises(MissingRankError, match="Rank 2"):
            function(pattern, 3)
    with pytest.raises(JarvisError, match="exactly one"):
        files_of_pattern("a*b*.json", 2)


def test_a_range_in_braces_names_one_address_for_each_rank() -> None:
    assert expand_braces("https://a/rank{8..10}.json") == [
        "https://a/rank8.json",
        "https://a/rank9.json",
        "https://a/rank10.json",
    ]
    assert expand_braces("r{08..09}.json?a={b}") == ["r08.json?a={b}", "r09.json?a={b}"]
    assert expand_braces("r{1..0}.json") == []
    assert expand_braces("r{a..b}.json") == ["r{a..b}.json"]
    with pytest.raises(TooManyFilesError, match="1,000,000,000 files"):
        expand_braces("r{0..999999999}.json")


@pytest.mark.parametrize(
    ("names", "name"),
    [
        (["rank0_s.json.gz", "rank1_s.json.gz"], "rank*_s"),
        (
            ["worker0_step_12.169.pt.trace.json", "worker1_step_12.170.pt.trace.json"],
            "worker*_step_12.*",
        ),
        (["job/0/trace.json", "job/1/trace.json"], "job"),
        (["0/trace.json", "1/trace.json"], "trace"),
        (["a.json", "b.json"], "a"),
    ],
)
def test_files_have_a_name_together(names: list[str], name: str) -> None:
    assert common_name(names) == name
