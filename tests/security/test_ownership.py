"""What a person may not change stays the same bytes."""

import hashlib
from pathlib import Path

import pytest
from sqlalchemy import Engine

from jarvis.core.errors import HardwareError
from jarvis.hardware import HardwareSpec, load_hardware
from jarvis.pipeline import analyze
from jarvis.server import actions
from jarvis.server.actions import Actor
from jarvis.server.database import HARDWARE_OWNERS, writing
from jarvis.server.errors import ForbiddenError, OthersAnalysisError
from jarvis.server.jobs.kinds import Analyze
from jarvis.server.jobs.processes.job_child import assignment_of
from jarvis.server.jobs.processes.job_messages import FailedMessage, OutputMessage
from jarvis.server.jobs.processes.job_process import outcome_of
from jarvis.server.storage.analysis_rows import stored_for, stored_rows
from jarvis.server.storage.archive import load_archive, save_archive
from jarvis.server.storage.catalog import read_catalog, set_pinned
from jarvis.server.submission import StoredAnalysis, Submission, import_run, resubmit, submit
from tests.builders import trace
from tests.server.conftest import ADA, BOB, ROOT


def described(peak: float) -> HardwareSpec:
    """The same GPU with other figures."""
    return HardwareSpec.parse(
        {
            "name": "Ours",
            "preset": "ours",
            "mem_bw_gbps": 3900.0,
            "memory_gb": 96.0,
            "max_achievable_tflops": {"matrix_bf16": peak, "matrix_fp32": peak},
            "sources": {"default": "measured"},
        }
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12.0)
    return built.write(tmp_path / "trace.json")


def stored_by(actor: Actor, asked: Submission, *, again: bool = False) -> StoredAnalysis:
    """An analysis as a job of a user makes it."""
    with stored_for(actor.person.name, role=actor.person.role):
        return submit(asked, again=again)


def digest(root: Path) -> str:
    """Of every byte of a folder."""
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def test_only_its_owner_or_an_admin_deletes_a_gpu_description(engine: Engine) -> None:
    for spec, remover in ((described(100.0), ADA), (described(100.0), ROOT)):
        actions.store_hardware(ADA, spec)
        with pytest.raises(ForbiddenError, match="belongs to ada"):
            actions.remove_hardware(BOB, spec)
        with pytest.raises(HardwareError, match="already described by ada"):
            actions.store_hardware(BOB, described(200.0))
        assert load_hardware().get("Ours", "ours") == spec
        actions.remove_hardware(remover, spec)
    actions.store_hardware(BOB, described(200.0))
    actions.remove_hardware(BOB, described(200.0))


def test_only_admins_delete_a_gpu_description_without_owner(engine: Engine) -> None:
    spec = described(100.0)
    actions.store_hardware(ADA, spec)
    with writing(engine) as connection:  # as in the release before
        connection.execute(HARDWARE_OWNERS.delete())
    with pytest.raises(ForbiddenError, match="ask an admin"):
        actions.remove_hardware(ADA, spec)
    actions.remove_hardware(ROOT, spec)


def test_builtin_gpus_cannot_be_deleted(engine: Engine) -> None:
    for actor in (ADA, ROOT):
        with pytest.raises(HardwareError, match="built into Jarvis"):
            actions.remove_hardware(actor, load_hardware().get("MI300X", None))


def test_with_changed_figures_another_user_gets_a_separate_analysis(
    engine: Engine, file: Path, tmp_path: Path
) -> None:
    asked = Submission(file, platform="Ours")
    actions.store_hardware(ROOT, described(100.0))
    theirs = stored_by(ADA, asked)
    set_pinned(theirs.id, is_pinned=True)
    before = digest(theirs.root)
    assert stored_by(BOB, asked) == StoredAnalysis(theirs.id, theirs.root, is_reused=True)
    actions.remove_hardware(ROOT, described(100.0))
    actions.store_hardware(ROOT, described(200.0))
    mine = stored_by(BOB, asked)
    assert mine.id != theirs.id
    assert digest(theirs.root) == before
    rows = stored_rows(engine)
    assert (rows[theirs.id].owner, rows[theirs.id].is_pinned) == ("ada", True)
    assert (rows[mine.id].owner, rows[mine.id].is_pinned) == ("bob", False)
    assert stored_by(BOB, asked).is_reused
    entry = read_catalog().find(mine.id)
    assert entry.manifest.analysis_id == mine.id
    assert entry.manifest.hardware == described(200.0)
    save_archive(mine.root, tmp_path / "mine.zip")
    assert load_archive(tmp_path / "mine.zip").id == mine.id
    again = stored_by(ADA, asked)  # her own may be repeated, because links point to it
    assert (again.id, again.is_reused) == (theirs.id, False)
    assert digest(theirs.root) != before


def test_reprojection_leaves_analyses_of_other_users_unchanged(engine: Engine, file: Path) -> None:
    base = stored_by(ADA, Submission(file))
    actions.store_hardware(ROOT, described(100.0))
    with stored_for("ada"):
        theirs = resubmit(base.id, "Ours", None)
    before = digest(theirs.root)
    actions.remove_hardware(ROOT, described(100.0))
    actions.store_hardware(ROOT, described(200.0))
    with stored_for("bob"):
        mine = resubmit(base.id, "Ours", None)
    assert mine.id != theirs.id
    assert digest(theirs.root) == before


def test_only_the_owner_repeats_an_analysis(engine: Engine, file: Path) -> None:
    theirs = stored_by(ADA, Submission(file))
    before = digest(theirs.root)
    job = actions.submit_job(engine, BOB, Analyze(Submission(file), is_again=True))
    outcome = outcome_of(assignment_of(job), lambda _: None)
    assert isinstance(outcome, FailedMessage)
    assert "belongs to another user" in outcome.error
    assert digest(theirs.root) == before
    for actor in (ADA, ROOT):
        assert not stored_by(actor, Submission(file), again=True).is_reused
    assert stored_rows(engine)[theirs.id].owner == "ada"
    job = actions.submit_job(engine, ROOT, Analyze(Submission(file), is_again=True))
    assert isinstance(outcome_of(assignment_of(job), lambda _: None), OutputMessage)


def test_only_admins_repeat_an_analysis_without_owner(engine: Engine, file: Path) -> None:
    stored = submit(Submission(file))
    with pytest.raises(OthersAnalysisError):
        stored_by(BOB, Submission(file), again=True)
    assert not submit(Submission(file), again=True).is_reused
    assert stored_by(BOB, Submission(file)) == StoredAnalysis(
        stored.id, stored.root, is_reused=True
    )


def test_an_unreadable_analysis_of_another_user_is_not_replaced(engine: Engine, file: Path) -> None:
    stored = stored_by(ADA, Submission(file))
    (stored.root / "manifest.json").write_text("{}")
    before = digest(stored.root)
    with pytest.raises(OthersAnalysisError):
        stored_by(BOB, Submission(file))
    assert digest(stored.root) == before
    assert not stored_by(ADA, Submission(file)).is_reused


def test_a_remote_result_does_not_replace_an_analysis_of_another_user(
    engine: Engine, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Submission(file, platform="Ours")
    actions.store_hardware(ROOT, described(100.0))
    theirs = stored_by(ADA, asked)
    before = digest(theirs.root)
    actions.remove_hardware(ROOT, described(100.0))
    actions.store_hardware(ROOT, described(200.0))
    made = analyze(file, platform="Ours", output_dir=tmp_path / "made")
    with stored_for("bob"), pytest.raises(OthersAnalysisError):
        import_run(Path(str(made.root)))
    assert digest(theirs.root) == before
