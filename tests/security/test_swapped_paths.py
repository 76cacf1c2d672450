"""Paths that change between the submission and the start of a job."""

import os
import shutil
from pathlib import Path

import pytest
from sqlalchemy import Engine

from jarvis.core.workspace import analyses_dir, uploads_dir
from jarvis.reports.reading import content_sha256
from jarvis.server import actions
from jarvis.server.access.audit import Channel
from jarvis.server.access.rights import Person, Role
from jarvis.server.actions import Actor
from jarvis.server.errors import IntakeError
from jarvis.server.ingest.intake import ROOTS_VARIABLE, opened_input, server_trace
from jarvis.server.jobs.kinds import Analyze, Inspect, Request
from jarvis.server.jobs.processes.job_child import assignment_of
from jarvis.server.jobs.processes.job_messages import FailedMessage, OutputMessage
from jarvis.server.jobs.processes.job_process import outcome_of
from jarvis.server.storage.analysis_rows import stored_rows
from jarvis.server.storage.catalog import read_catalog
from jarvis.server.submission import Submission
from jarvis.trace import sidecar
from tests.builders import trace

ADA = Actor(Person("ada", Role.EDITOR), Channel.API)


@pytest.fixture
def root(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an allowed folder of traces, on a server with login."""
    folder = tmp_path / "root"
    (folder / "sub").mkdir(parents=True)
    monkeypatch.setenv(ROOTS_VARIABLE, str(folder))
    monkeypatch.setenv("JARVIS_ACCESS", "header")
    return folder


def written(path: Path, kernel: str) -> Path:
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches(kernel, us=12.0)
    path.parent.mkdir(parents=True, exist_ok=True)
    return built.write(path)


@pytest.fixture
def secret(home: Path) -> Path:
    """Return an upload of another user."""
    return written(uploads_dir() / "f1702aba" / "secret.json", "secret_kernel")


def outcome(engine: Engine, request: Request, swap: Path, target: Path) -> FailedMessage:
    """Return the outcome of a job whose path is replaced by a link after the submission."""
    job = actions.submit_job(engine, ADA, request)
    swap.rename(swap.with_name("aside"))
    swap.symlink_to(target)
    ended = outcome_of(assignment_of(job), lambda _: None)
    assert isinstance(ended, FailedMessage), ended
    return ended


@pytest.mark.parametrize("part", ["file", "folder"])
@pytest.mark.parametrize("kind", ["analyze", "reference", "inspect"])
def test_a_path_that_has_become_a_link_is_not_read(
    engine: Engine, root: Path, secret: Path, part: str, kind: str
) -> None:
    good = written(root / "good.json", "good_kernel")
    file = written(root / "sub" / "secret.json", "harmless_kernel")
    path = server_trace(str(file))
    request: Request = {
        "analyze": Analyze(Submission(path)),
        "reference": Analyze(Submission(server_trace(str(good))), reference_trace=path),
        "inspect": Inspect(path),
    }[kind]
    swap, target = (file, secret) if part == "file" else (file.parent, secret.parent)
    error = outcome(engine, request, swap, target).error
    assert "was replaced by a link" in error
    assert str(root) not in error
    assert stored_rows(engine) == {}
    assert list(analyses_dir().glob("*")) == []


def test_an_opened_file_is_read_even_if_its_path_changes(
    engine: Engine, root: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The swap happens between two reads, to a file with the same size and modification time."""
    file = written(root / "mine.json", "mine_kernel")
    stat = secret.stat()
    file.write_bytes(file.read_bytes().ljust(stat.st_size))
    os.utime(file, ns=(stat.st_mtime_ns, stat.st_mtime_ns))
    monkeypatch.setattr(sidecar, "MIN_EVENTS", 0)
    from jarvis.trace import read_trace

    read_trace(secret)  # the server keeps a copy of it, known by path, size and moment
    mine = content_sha256(file)
    with opened_input(file) as opened:
        file.rename(root / "aside")
        file.symlink_to(secret)
        assert content_sha256(opened) == mine
        assert read_trace(opened).info.sha256 == mine
    assert not opened.exists()


def test_a_report_in_a_folder_is_read_without_following_links(root: Path, secret: Path) -> None:
    folder = root / "report"
    folder.mkdir()
    (folder / "gpu_timeline.csv").write_text("type,time ms\nbusy,1\n")
    with opened_input(folder) as opened:
        assert (opened / "gpu_timeline.csv").read_text() == "type,time ms\nbusy,1\n"
    (folder / "other.csv").symlink_to(secret)
    with (
        pytest.raises(IntakeError, match=r"other\.csv was replaced by a link"),
        opened_input(folder),
    ):
        pass


def test_special_files_do_not_block(root: Path) -> None:
    os.mkfifo(root / "pipe.json")
    with pytest.raises(IntakeError, match="is not a file"), opened_input(root / "pipe.json"):
        pass


def test_a_worker_with_other_folders_reads_nothing_outside_them(
    engine: Engine, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(root / "mine.json", "mine_kernel")
    job = actions.submit_job(engine, ADA, Analyze(Submission(server_trace(str(file)))))
    monkeypatch.setenv(ROOTS_VARIABLE, str(root / "sub"))
    ended = outcome_of(assignment_of(job), lambda _: None)
    assert isinstance(ended, FailedMessage)
    assert f"same {ROOTS_VARIABLE}" in ended.error


def test_an_unchanged_path_is_analyzed_and_recorded(engine: Engine, root: Path) -> None:
    file = written(root / "sub" / "mine.json", "mine_kernel")
    job = actions.submit_job(engine, ADA, Analyze(Submission(server_trace(str(file)))))
    made = outcome_of(assignment_of(job), lambda _: None)
    assert isinstance(made, OutputMessage), made
    trace_info = read_catalog().find(str(made.analysis_id)).manifest.trace
    assert (trace_info.path, trace_info.file_name) == (str(file), "mine.json")
    inspected = actions.submit_job(engine, ADA, Inspect(file))
    output = outcome_of(assignment_of(inspected), lambda _: None)
    assert isinstance(output, OutputMessage)
    assert output.result["info"]["path"] == str(file)


def test_errors_of_unreadable_paths_reveal_no_folders(engine: Engine, root: Path) -> None:
    file = root / "broken.json"
    file.write_text("[")
    job = actions.submit_job(engine, ADA, Analyze(Submission(file)))
    ended = outcome_of(assignment_of(job), lambda _: None)
    assert isinstance(ended, FailedMessage)
    assert ended.error.startswith("broken.json")
    shutil.rmtree(root)
    again = outcome_of(assignment_of(job), lambda _: None)
    assert isinstance(again, FailedMessage)
    assert "No such file" in again.error
