import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from jarvis.core.errors import OutputFolderError
from jarvis.core.output import zipped
from jarvis.pipeline import Step
from jarvis.run import Run
from jarvis.server.errors import CopyError, UnknownAnalysisError
from jarvis.server.storage.catalog import analysis_root, read_catalog
from jarvis.server.submission import StoredAnalysis, Submission, submit
from tests.builders import trace


@pytest.fixture
def trace_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12)
    return built.write(tmp_path / "tiny.json")


def test_an_analysis_is_stored_under_its_id_with_steps_as_they_run(trace_file: Path) -> None:
    steps: list[Step] = []
    stored = submit(Submission(trace_file), steps.append)
    assert not stored.is_reused
    assert stored.root == analysis_root(stored.id)
    assert Run.load(stored.root).manifest.analysis_id == stored.id
    assert [s.number for s in steps if s.state == "done"] == list(range(1, steps[0].total + 1))


def test_the_same_trace_and_options_are_analyzed_once(trace_file: Path) -> None:
    first = submit(Submission(trace_file))
    steps: list[Step] = []
    assert submit(Submission(trace_file), steps.append) == StoredAnalysis(
        first.id, first.root, True
    )
    assert not steps
    assert not submit(Submission(trace_file), again=True).is_reused


def test_other_options_are_another_analysis(trace_file: Path) -> None:
    ids = {
        submit(submission).id
        for submission in (
            Submission(trace_file),
            Submission(trace_file, platform="MI300X"),
            Submission(trace_file, model_name="Tiny"),
            Submission(trace_file, target_pct=65.0),
        )
    }
    assert len(ids) == 4


@pytest.mark.parametrize("content", ['{"schema_version": 0}', "{", ""])
def test_an_analysis_of_another_layout_or_damaged_is_made_again(
    trace_file: Path, content: str
) -> None:
    stored = submit(Submission(trace_file))
    (stored.root / "manifest.json").write_text(content)
    assert read_catalog().broken == (stored.id,)
    assert not submit(Submission(trace_file)).is_reused
    assert read_catalog().broken == ()


def test_a_copy_is_a_run_of_its_own_and_a_taken_folder_is_refused(
    trace_file: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    stored = submit(Submission(trace_file, copy_to=copy))
    assert Run.load(copy).manifest == Run.load(stored.root).manifest
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "thesis.tex").write_text("x")
    with pytest.raises(OutputFolderError):
        submit(Submission(trace_file, model_name="new", copy_to=taken))
    assert len(read_catalog().entries) == 1


def test_the_catalog_lists_newest_first_and_survives_broken_folders(
    trace_file: Path, tmp_path: Path
) -> None:
    stored = submit(Submission(trace_file, model_name="Tiny", platform="H200"))
    (tmp_path / "home" / "analyses" / "broken").mkdir()
    (tmp_path / "home" / "analyses" / ".staging").mkdir()
    catalog = read_catalog()
    assert [entry.id for entry in catalog.entries] == [stored.id]
    assert catalog.entries[0].title == "Tiny · H200 SXM"
    assert catalog.broken == ("broken",)


def test_a_folder_that_cannot_be_written_is_reported_and_the_analysis_is_stored(
    trace_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(CopyError, match="could not be written to"):
        submit(Submission(trace_file, copy_to=tmp_path / "file" / "run"))
    assert len(read_catalog().entries) == 1


def test_an_analysis_without_a_model_is_called_after_its_file(trace_file: Path) -> None:
    stored = submit(Submission(trace_file, platform="H200"))
    (entry,) = read_catalog().entries
    assert entry.id == stored.id
    assert entry.title == f"{trace_file.name.partition('.')[0]} · H200 SXM"


@pytest.mark.parametrize("name", ["gone", "../../etc", "", ".hidden"])
def test_an_unknown_id_is_refused(trace_file: Path, name: str) -> None:
    with pytest.raises(UnknownAnalysisError, match="There is no analysis"):
        analysis_root(name)


def test_archives_hold_the_chosen_parts_and_are_the_same_each_time(trace_file: Path) -> None:
    root = submit(Submission(trace_file)).root
    whole = zipfile.ZipFile(BytesIO(zipped(root)))
    assert {"manifest.json", "perf_report.xlsx"} <= set(whole.namelist())
    parts = [root / "perf_report_csvs", root / "not_there"]
    names = zipfile.ZipFile(BytesIO(zipped(root, parts))).namelist()
    assert names
    assert all(name.startswith("perf_report_csvs/") for name in names)
    assert zipped(root) == zipped(root)
