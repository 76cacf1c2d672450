"""Machines with separate homes share a database and an artifact root of each kind."""

import io
import os
import shutil
import time
from pathlib import Path

import pytest

from jarvis.cli import main
from jarvis.core.workspace import ARTIFACT_ROOT_VARIABLE, RunPaths
from jarvis.hardware import load_hardware
from jarvis.run import Run
from jarvis.server import queue
from jarvis.server.database import database
from jarvis.server.errors import MissingInputError, UnknownAnalysisError
from jarvis.server.ingest import intake
from jarvis.server.ingest.intake import sample_trace, store_upload
from jarvis.server.jobs.kinds import Analyze, Export, Inspect, job_file, request_of
from jarvis.server.retention.removal import remove_analysis
from jarvis.server.storage import artifact_copies, artifacts, custom_hardware
from jarvis.server.storage.analysis_rows import version_of
from jarvis.server.storage.archive import load_archive, save_archive
from jarvis.server.storage.artifact_root import (
    ArtifactRoot,
    artifact_root,
)
from jarvis.server.storage.catalog import analysis_root, read_catalog
from jarvis.server.storage.custom_hardware import remove_hardware, store_hardware
from jarvis.server.submission import Submission, submit
from tests.server.machines import (
    Machines,
    analyzed,
    folder_root,
    keep,
    machines,
    note_of,
    tiny,
    worked_off,
)
from tests.services.sshd import Sshd

__all__ = ["analyzed", "folder_root", "machines", "tiny"]


@pytest.fixture(params=["folder", "memory", "s3", "sftp"])
def root(
    request: pytest.FixtureRequest,
    machines: Machines,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> ArtifactRoot:
    """A root of each kind."""
    url = _url(request, tmp_path)
    monkeypatch.setenv(ARTIFACT_ROOT_VARIABLE, url)
    found = artifact_root()
    assert found is not None
    return found


def _url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "s3":
        return str(request.getfixturevalue("s3_root"))
    if request.param == "memory":
        return f"memory://{tmp_path.name}"
    folder = tmp_path / "shared"
    folder.mkdir()
    if request.param == "folder":
        return str(folder)
    node: Sshd = request.getfixturevalue("node")
    monkeypatch = request.getfixturevalue("monkeypatch")
    monkeypatch.setenv("JARVIS_SFTP_KEY", str(node.key))
    monkeypatch.setenv("JARVIS_SFTP_KNOWN_HOSTS", str(node.known_hosts))
    return f"sftp://{node.user}@127.0.0.1:{node.port}{folder}?allow_agent=false"


def files(root: Path) -> dict[str, bytes]:
    return {
        file.relative_to(root).as_posix(): file.read_bytes()
        for file in root.rglob("*")
        if file.is_file()
    }


def test_what_one_machine_made_opens_on_the_other(
    machines: Machines, root: ArtifactRoot, analyzed: Path
) -> None:
    analysis = keep(analyzed, "first")
    made = files(analysis_root(analysis))
    home = machines.use("second")
    assert [entry.id for entry in read_catalog().entries] == [analysis]
    fetched = analysis_root(analysis)
    assert fetched == home / "analyses" / analysis
    assert files(fetched) == made
    assert Run.load(fetched).table("operations").height == 1
    assert not list((home / "analyses").glob(".*"))


def test_an_analysis_that_is_made_again_is_fetched_again(
    machines: Machines, root: ArtifactRoot, analyzed: Path
) -> None:
    analysis = keep(analyzed, "first")
    machines.use("second")
    assert note_of(analysis) == "first"
    keep(analyzed, "second")
    machines.use("first")
    assert note_of(analysis) == "second"
    version = version_of(database(), analysis)
    assert [artifact.key for artifact in root.below("analyses")] == [
        f"analyses/{analysis}/{version}.zip"
    ]


def test_what_one_machine_removes_is_gone_everywhere(
    machines: Machines, root: ArtifactRoot, analyzed: Path
) -> None:
    analysis = keep(analyzed)
    second = machines.use("second")
    analysis_root(analysis)
    machines.use("first")
    remove_analysis(analysis)
    assert root.below("analyses") == []
    machines.use("second")
    with pytest.raises(UnknownAnalysisError):
        analysis_root(analysis)
    assert read_catalog().entries == ()
    artifacts.clean_up({})
    assert not (second / "analyses" / analysis).exists()


def test_a_worker_elsewhere_reads_an_upload_and_its_export_comes_back(
    machines: Machines, root: ArtifactRoot, tiny: Path
) -> None:
    engine = database()
    upload = store_upload("tiny.json", io.BytesIO(tiny.read_bytes()))
    job = queue.submit(engine, Analyze(Submission(upload)).new_job())
    second = machines.use("second")
    done = worked_off(engine, job)
    assert done.error is None, done.error
    assert str(machines.folder) not in str(job.parameters)
    assert list((second / "traces").glob("*/tiny.json"))
    assert done.analysis_id is not None
    machines.use("third")
    exported = worked_off(engine, queue.submit(engine, Export(done.analysis_id, "json").new_job()))
    machines.use("first")
    file = job_file(exported.result)
    assert file is not None
    assert file.is_relative_to(machines.folder / "first")
    assert done.analysis_id in file.read_text()


def test_the_same_bytes_are_stored_once(
    machines: Machines, folder_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = []
    for machine in ("first", "second", "second"):
        machines.use(machine)
        upload = store_upload("a.json", io.BytesIO(b"{}"))
        before = written_under(folder_root)
        assert artifacts.publish_file(upload)
        stored.append(written_under(folder_root) - before)
    assert [len(new) for new in stored] == [1, 0, 0]


def written_under(root: Path) -> set[tuple[str, int]]:
    """Each file and its modification time."""
    return {(str(file), file.stat().st_mtime_ns) for file in root.rglob("*") if file.is_file()}


def test_a_request_is_the_same_request_on_every_machine(
    machines: Machines, folder_root: Path, tiny: Path
) -> None:
    asked = []
    for machine in ("first", "second"):
        machines.use(machine)
        upload = store_upload("tiny.json", io.BytesIO(tiny.read_bytes()))
        os.utime(upload, (0, len(asked)))
        asked.append(Inspect(upload).new_job().fingerprint)
    assert asked[0] == asked[1]
    machines.use("third")  # which asks for it by its address alone
    upload = machines.folder / "third" / upload.relative_to(machines.folder / "second")
    assert Inspect(upload).new_job().fingerprint == asked[0]
    assert not upload.exists()
    with pytest.raises(MissingInputError):
        Inspect(upload.with_name("other.json")).new_job()


def test_without_a_root_nothing_is_copied(machines: Machines, analyzed: Path, tiny: Path) -> None:
    home = machines.use("first")
    analysis = keep(analyzed)
    upload = store_upload("tiny.json", io.BytesIO(tiny.read_bytes()))
    assert not artifacts.publish_file(upload)
    assert artifacts.local_file(upload) == upload
    assert analysis_root(analysis) == home / "analyses" / analysis
    artifacts.clean_up({})
    artifacts.check()
    assert analysis_root(analysis).is_dir()
    assert not (home / "cache" / "shared").exists()


def test_an_analysis_from_before_there_was_a_root_is_shared_when_it_is_opened(
    machines: Machines, analyzed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    analysis = keep(analyzed, "old")
    (tmp_path / "shared").mkdir()
    monkeypatch.setenv(ARTIFACT_ROOT_VARIABLE, str(tmp_path / "shared"))
    assert note_of(analysis) == "old"
    machines.use("second")
    assert note_of(analysis) == "old"


def test_the_cache_keeps_to_its_limit_and_what_is_in_use(
    machines: Machines, folder_root: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = database()
    uploads = [store_upload(f"{n}.json", io.BytesIO(bytes([n]) * 1000)) for n in range(4)]
    for age, upload in enumerate(uploads):
        artifacts.publish_file(upload)
        used = time.time() - 2 * artifact_copies.MIN_UNUSED_S + age
        note = machines.folder / "first" / "cache" / "shared" / "notes" / "traces"
        os.utime(note / upload.parent.name / upload.name, (used, used))
    queue.submit(engine, Inspect(uploads[0]).new_job())
    monkeypatch.setenv("JARVIS_ARTIFACT_CACHE_GB", "2.5e-6")
    artifacts.publish_file(store_upload("new.json", io.BytesIO(b"n" * 1000)))
    assert [upload.exists() for upload in uploads] == [True, False, False, False]
    assert len(list(folder_root.rglob("*.json"))) == 5
    artifacts.local_file(uploads[1])
    assert uploads[1].exists()


def test_what_was_changed_by_hand_is_no_copy_any_more(
    machines: Machines, folder_root: Path, analyzed: Path
) -> None:
    analysis = keep(analyzed, "shared")
    manifest = RunPaths(analysis_root(analysis)).manifest
    os.utime(manifest, (0, 0))
    (manifest.parent / "priority_data.json").write_text("by hand")
    assert note_of(analysis) == "shared"


def test_an_analysis_is_reused_wherever_it_was_made(
    machines: Machines, folder_root: Path, tiny: Path
) -> None:
    first = submit(Submission(tiny, model_name="Tiny"))
    machines.use("second")
    again = submit(Submission(tiny, model_name="Tiny"))
    assert (again.id, again.is_reused) == (first.id, True)
    compared = submit(Submission(tiny, model_name="Other", reference=first.id))
    machines.use("third")
    assert Run.load(analysis_root(compared.id)).manifest.reference == first.id
    remove_analysis(first.id)
    machines.use("second")
    assert not submit(Submission(tiny, model_name="Tiny")).is_reused


def test_the_sample_is_computed_where_it_is_needed(
    machines: Machines, folder_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_little(path: Path) -> Path:
        path.write_bytes(b"{}")
        return path

    monkeypatch.setattr(intake, "write_sample", write_little)
    asked = Inspect(sample_trace()).new_job()
    home = machines.use("second")
    request = request_of(asked.kind, asked.parameters)
    request.bring_inputs(lambda _: None)
    assert [path.is_relative_to(home) and path.is_file() for path in request.inputs] == [True]
    assert not list(folder_root.iterdir())


def test_an_archive_that_is_loaded_is_there_for_all(
    machines: Machines, folder_root: Path, analyzed: Path, tmp_path: Path
) -> None:
    save_archive(analyzed, tmp_path / "one.jarvis.zip")
    loaded = load_archive(tmp_path / "one.jarvis.zip")
    machines.use("second")
    assert Run.load(analysis_root(loaded.id)).table("operations").height == 1
    assert load_archive(tmp_path / "one.jarvis.zip").is_reused


def test_exports_and_uploads_go_where_they_are_shared(
    machines: Machines, folder_root: Path
) -> None:
    uploads = [store_upload("a.json", io.BytesIO(text)) for text in (b"1", b"2")]
    for upload in uploads:
        artifacts.publish_file(upload)
    artifacts.remove_files([uploads[0].parent])
    assert [file.name for file in folder_root.rglob("*.json")] == ["a.json"]
    assert [upload.exists() for upload in uploads] == [False, True]


def test_a_gpu_that_one_machine_described_is_known_to_all(
    machines: Machines, folder_root: Path
) -> None:
    spec = load_hardware().get("MI300X", None).model_copy(update={"preset": "ours"})
    store_hardware(spec)
    machines.use("second")
    custom_hardware.synchronize()
    assert load_hardware().get("MI300X", "ours").preset == "ours"
    remove_hardware(spec)
    store_hardware(spec.model_copy(update={"mem_bw_gbps": 1.0}))
    os.utime(next(folder_root.rglob("*.toml")), (1, 1))
    machines.use("first")
    custom_hardware.synchronize()
    assert load_hardware().get("MI300X", "ours").mem_bw_gbps == 1.0
    remove_hardware(spec)
    machines.use("second")
    custom_hardware.synchronize()
    assert "ours" not in load_hardware().presets("MI300X")
    assert not list(folder_root.rglob("*.toml"))


def test_gpus_described_before_there_was_a_root_are_shared(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_hardware(load_hardware().get("MI300X", None).model_copy(update={"preset": "ours"}))
    (tmp_path / "shared").mkdir()
    monkeypatch.setenv(ARTIFACT_ROOT_VARIABLE, str(tmp_path / "shared"))
    custom_hardware.synchronize()
    machines.use("second")
    custom_hardware.synchronize()
    assert "ours" in load_hardware().presets("MI300X")


def test_commands_take_the_id_of_an_analysis_of_another_machine(
    machines: Machines, folder_root: Path, analyzed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    artifacts.store_analysis(
        analyzed.name, lambda folder: shutil.copytree(analyzed, folder, dirs_exist_ok=True)
    )
    machines.use("second")
    assert main(["validate", analyzed.name]) == 0
    assert main(["validate", "not-there"]) != 0
