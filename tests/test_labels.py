"""Labels of analyses: what they may be, and how the command line takes them."""

import json
from pathlib import Path

import pytest

from jarvis.cli import main, parser
from jarvis.cli.output import ExitCode
from jarvis.cli.push import _new_analysis
from jarvis.core.labels import MAX_TAGS, NO_LABELS, LabelError, RunLabels
from jarvis.server.storage.catalog import read_catalog
from tests.builders import trace

SOME = ["--project", "llm/train", "--branch", "main", "--commit", "4f2a9c1", "--tag", "nightly"]


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12)
    return built.write(tmp_path / "small.json")


def test_labels_are_stored_without_spaces_around_and_each_tag_once() -> None:
    labels = RunLabels.of(" LLM train ", "feat/x", "4f2a9c1", ["b", " a", "b ", ""])
    assert labels == RunLabels("LLM train", "feat/x", "4f2a9c1", ("a", "b"))
    assert RunLabels.of("", " ", None, [" "]) == NO_LABELS
    assert not NO_LABELS
    assert RunLabels.of("Проект", tags=["夜間"]) == RunLabels("Проект", tags=("夜間",))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"project": "x" * 101}, "The project 'xxxx.*has 101 characters. Use at most 100."),
        ({"tags": ["a,b"]}, "The tag 'a,b' contains ','. Use letters, digits, spaces and"),
        ({"tags": ["<script>"]}, "contains '<'"),
        ({"branch": "a b"}, "The branch 'a b' contains ' '. Use letters, digits and"),
        ({"commit": "a/b"}, "The commit 'a/b' contains '/'"),
        ({"commit": "4" * 65}, "Use at most 64"),
        ({"project": "a\nb"}, r"contains '\\n'"),
        ({"project": "\ud800"}, "contains"),
        ({"tags": [str(number) for number in range(MAX_TAGS + 1)]}, "There are 21 tags"),
    ],
)
def test_other_labels_are_rejected_with_a_sentence(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(LabelError, match=sentence):
        RunLabels.of(**given)


def test_later_labels_replace_and_tags_are_added() -> None:
    earlier = RunLabels.of("a", "main", "1", ["x"])
    assert RunLabels.of(commit="2", tags=["y"]).over(earlier) == RunLabels.of(
        "a", "main", "2", ["x", "y"]
    )
    assert list(earlier.words()) == ["a", "main@1", "#x"]


def test_push_sends_labels_only_if_there_are_some() -> None:
    command = ["push", "t.json", "--server=http://server"]
    assert "tags" not in _new_analysis(parser().parse_args(command), "a1b2")
    sent = _new_analysis(parser().parse_args([*command, *SOME, "--tag", "fp8"]), "a1b2")
    assert (sent["project"], sent["branch"], sent["commit"]) == ("llm/train", "main", "4f2a9c1")
    assert sent["tags"] == ["fp8", "nightly"]


def test_push_rejects_a_label_before_the_upload(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["push", str(small), "--server=http://127.0.0.1:9", "--tag", "a,b"]
    assert main(asked) == ExitCode.FAILED
    assert "The tag 'a,b' contains ','" in capsys.readouterr().err


def test_analyze_stores_labels_and_the_list_shows_them(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", str(small), "--id", *SOME]) == ExitCode.OK
    (entry,) = read_catalog().entries
    assert entry.labels == RunLabels("llm/train", "main", "4f2a9c1", ("nightly",))
    assert main(["analyze", str(small), "--id", "--tag", "fp8", "--commit", "5"]) == ExitCode.OK
    (entry,) = read_catalog().entries
    assert entry.labels == RunLabels("llm/train", "main", "5", ("fp8", "nightly"))
    capsys.readouterr()
    assert main(["list"]) == ExitCode.OK
    assert "[llm/train, main@5, #fp8, #nightly]" in capsys.readouterr().out
    assert main(["list", "--json"]) == ExitCode.OK
    (row,) = json.loads(capsys.readouterr().out)["analyses"]
    assert (row["project"], row["tags"]) == ("llm/train", ["fp8", "nightly"])


def test_a_run_directory_has_no_labels(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["analyze", str(small), "--project", "x"])
    assert exit_.value.code == ExitCode.USAGE
    assert "need --id" in capsys.readouterr().err
