"""Several ranks on a server: a job for each, and one that joins them."""

from pathlib import Path

import pytest
from sqlalchemy import Engine

from jarvis.cli import main
from jarvis.core.workspace import analyses_dir
from jarvis.pipeline.distributed import RankOptions
from jarvis.ranks.manifest import DistributedManifest, MemberState, superseded_text
from jarvis.ranks.nodes import Cluster
from jarvis.ranks.run import DistributedRun
from jarvis.server import actions, claims, queue
from jarvis.server.access.audit import Channel
from jarvis.server.access.rights import Person, Role
from jarvis.server.actions import OPERATOR, Actor
from jarvis.server.database import JobKind, JobState, Visibility
from jarvis.server.errors import RankCountError, UnknownAnalysisError
from jarvis.server.jobs.kinds import Analyze
from jarvis.server.queue import Job, JobProgress, Outcome
from jarvis.server.storage.catalog import pinned, read_catalog, set_visibility, stored_row
from jarvis.server.submission import Submission
from tests.dashboard.inline_jobs import work_off
from tests.ranks.test_distributed import RANKS, rank_trace
from tests.server.working import (
    HELD_WORKER,
    SECONDS,
    ended,
    half_written,
    held_process,
    hold_at,
    is_done,
    wait_for,
    worker,
)
from tests.services.serving import serving

ANN, BOB = (
    Actor(Person(name, Role.EDITOR), Channel.API) for name in ("ann@example.org", "bob@example.org")
)


@pytest.fixture
def traces(tmp_path: Path) -> list[Analyze]:
    """A request for each rank of a job."""
    files = [rank_trace(rank).write(tmp_path / f"rank{rank}.json") for rank in range(RANKS)]
    return [Analyze(Submission(file)) for file in files]


def manifests() -> list[DistributedManifest]:
    return [entry.manifest for entry in read_catalog().distributed]


def jobs_of(engine: Engine, kind: JobKind) -> list[Job]:
    """Jobs of a kind, oldest first."""
    return sorted(queue.recent(engine, kinds=(kind,)), key=lambda job: job.created)


def test_ranks_are_analyzed_and_then_joined(engine: Engine, traces: list[Analyze]) -> None:
    join = actions.submit_ranks(engine, OPERATOR, traces)
    assert (join.kind, join.state) == (JobKind.JOIN, JobState.QUEUED)
    assert join.title == "Join 3 ranks (rank0.json, ...)"
    work_off(engine)
    job = queue.find(engine, join.id)
    (manifest,) = manifests()
    assert job.state is JobState.DONE, job.error
    assert (job.analysis_id, job.result) == (manifest.distributed_id, {"failed": 0})
    assert manifest.name == "rank*"
    members = {entry.rank: entry.analysis_id for entry in manifest.usable}
    assert members.keys() == {0, 1, 2}
    assert {entry.id for entry in read_catalog().entries} == set(members.values())
    assert not [path for path in analyses_dir().iterdir() if path.name.startswith(".")]

    folder = traces[0].submission.trace.parent
    out = folder / "out"
    names = [str(each.submission.trace) for each in traces]
    assert main(["analyze", *names, "--output-dir", str(out), "--jobs", "1"]) == 0
    assert DistributedRun.load(out).manifest.distributed_id == manifest.distributed_id
    stored = analyses_dir() / manifest.distributed_id
    for path in sorted(out.glob("tables/*")) + sorted(out.glob("perf_report_csvs/*")):
        assert (stored / path.relative_to(out)).read_bytes() == path.read_bytes(), path

    again = actions.submit_ranks(engine, OPERATOR, traces[::-1])
    work_off(engine)
    assert queue.find(engine, again.id).analysis_id == manifest.distributed_id
    assert all(job.result["is_reused"] for job in jobs_of(engine, JobKind.ANALYZE)[RANKS:])


def test_stored_analyses_are_joined_without_reading_a_trace(
    engine: Engine, traces: list[Analyze]
) -> None:
    for each in traces:
        actions.submit_job(engine, OPERATOR, each)
    work_off(engine)
    ids = [entry.id for entry in read_catalog().entries]
    for each in traces:
        each.submission.trace.unlink()
    join = actions.submit_ranks(engine, OPERATOR, (), ids)
    work_off(engine)
    assert queue.find(engine, join.id).state is JobState.DONE
    assert len(jobs_of(engine, JobKind.ANALYZE)) == RANKS
    with pytest.raises(RankCountError):
        actions.submit_ranks(engine, OPERATOR, (), ids[:1])


def test_a_broken_rank_costs_itself_and_its_retry_leads_to_a_new_join(
    engine: Engine, traces: list[Analyze]
) -> None:
    trace = traces[2].submission.trace
    whole = trace.read_bytes()
    trace.write_text("no trace", encoding="utf-8")
    join = actions.submit_ranks(engine, OPERATOR, traces)
    work_off(engine)
    assert queue.find(engine, join.id).result == {"failed": 1}
    (manifest,) = manifests()
    (failed,) = manifest.failed
    assert (failed.rank, failed.state, failed.file_name) == (2, MemberState.FAILED, "rank2.json")
    assert manifest.missing == ((2, 2),)

    trace.write_bytes(whole)
    (broken,) = queue.recent(engine, states=(JobState.FAILED,))
    actions.retry_job(engine, OPERATOR, broken.id)
    actions.retry_job(engine, OPERATOR, broken.id)  # queued already, so nothing more happens
    joins = jobs_of(engine, JobKind.JOIN)
    assert len(joins) == 2
    work_off(engine)
    assert queue.find(engine, joins[1].id).result == {"failed": 0}
    catalog = read_catalog()
    assert len(catalog.entries) == RANKS
    larger, smaller = sorted(catalog.distributed, key=lambda entry: len(entry.manifest.missing))
    assert (len(larger.manifest.usable), len(smaller.manifest.usable)) == (3, 2)
    assert (catalog.superseded_by(smaller), catalog.superseded_by(larger)) == (larger, None)
    assert superseded_text(smaller.manifest, larger.manifest) == (
        "2 of 3 ranks; a version with 3 is stored."
    )
    set_visibility(larger.id, Visibility.PRIVATE)
    assert read_catalog().visible_to(BOB.person).superseded_by(smaller) is None


def test_a_cancelled_join_is_retried_with_its_ranks(engine: Engine, traces: list[Analyze]) -> None:
    join = actions.submit_ranks(engine, OPERATOR, traces)
    actions.cancel_job(engine, OPERATOR, join.id)
    assert {job.state for job in queue.recent(engine)} == {JobState.CANCELLED}
    actions.retry_job(engine, OPERATOR, join.id)
    work_off(engine)
    assert queue.find(engine, join.id).state is JobState.DONE
    assert len(queue.recent(engine)) == RANKS + 1


def test_a_rank_whose_job_was_cancelled_is_said_so(engine: Engine, traces: list[Analyze]) -> None:
    actions.submit_ranks(engine, OPERATOR, traces)
    actions.cancel_job(engine, OPERATOR, jobs_of(engine, JobKind.ANALYZE)[1].id)
    work_off(engine)
    (manifest,) = manifests()
    (entry,) = manifest.failed
    assert (entry.rank, entry.state) == (1, MemberState.CANCELLED)
    assert entry.error == "Its job was cancelled."
    assert manifest.coverage is not None
    assert (manifest.coverage.ranks, manifest.coverage.expected_ranks) == (2, 3)


def test_options_that_change_the_tables_have_a_run_of_their_own(
    engine: Engine, traces: list[Analyze]
) -> None:
    actions.submit_ranks(engine, OPERATOR, traces)
    actions.submit_ranks(engine, OPERATOR, traces, (), RankOptions(cluster=Cluster(2)))
    work_off(engine)
    nodes = [
        DistributedRun.load(entry.root).tables["ranks"]["node"].to_list()
        for entry in read_catalog().distributed
    ]
    assert sorted(nodes, key=str) == [[0, 0, 1], [None] * 3]


def test_too_few_ranks_fail_with_the_reasons(engine: Engine, traces: list[Analyze]) -> None:
    for each in traces[1:]:
        each.submission.trace.write_text("no trace", encoding="utf-8")
    join = actions.submit_ranks(engine, OPERATOR, traces)
    work_off(engine)
    job = queue.find(engine, join.id)
    assert job.state is JobState.FAILED
    assert "at least 2 ranks" in str(job.error)
    assert "rank2.json" in str(job.error)
    assert manifests() == []


def test_a_rank_whose_worker_dies_is_missing_until_it_is_retried(
    engine: Engine, traces: list[Analyze]
) -> None:
    join = actions.submit_ranks(engine, OPERATOR, traces)
    first = claims.claim(engine, "dead")
    assert first is not None
    claims.finish(engine, "dead", first.id, JobProgress(), Outcome(JobState.FAILED, "It died."))
    work_off(engine)
    (manifest,) = manifests()
    assert [(entry.rank, entry.error) for entry in manifest.failed] == [(0, "It died.")]
    assert queue.find(engine, join.id).state is JobState.DONE
    actions.retry_job(engine, OPERATOR, first.id)
    work_off(engine)
    assert max(len(manifest.usable) for manifest in manifests()) == RANKS


def test_killed_workers_cost_one_rank_and_one_start_of_the_join(
    engine: Engine, traces: list[Analyze]
) -> None:
    join = actions.submit_ranks(engine, OPERATOR, traces)
    first = jobs_of(engine, JobKind.ANALYZE)[0]
    hold_at(first.id, 3)
    with worker(HELD_WORKER, SLOTS="1") as killed:
        held_process(first.id)
        killed.kill()
    hold_at(first.id, None)
    hold_at(join.id, 2)
    with worker(HELD_WORKER, SLOTS="1") as killed:
        held_process(join.id)
        assert "worker that ran this job died" in str(ended(engine, first.id).error)
        assert manifests() == []
        killed.kill()
    hold_at(join.id, None)
    with worker(HELD_WORKER, SLOTS="1"):
        assert ended(engine, join.id).state is JobState.FAILED
        actions.retry_job(engine, OPERATOR, first.id)
        again = jobs_of(engine, JobKind.JOIN)[-1]
        assert again.id != join.id
        assert is_done(engine, again.id).result == {"failed": 0}
    (manifest,) = manifests()
    assert len(manifest.usable) == len(read_catalog().entries) == RANKS
    assert half_written(analyses_dir()) == []


def test_a_restart_of_the_server_continues_the_ranks_and_their_join(
    engine: Engine, home: Path, traces: list[Analyze]
) -> None:
    roots = {"JARVIS_TRACE_ROOTS": str(traces[0].submission.trace.parent)}
    join = actions.submit_ranks(engine, OPERATOR, traces)
    ranks = [job.id for job in jobs_of(engine, JobKind.ANALYZE)]
    with serving(home, roots) as server:
        wait_for(lambda: any(not queue.find(engine, job).is_active for job in ranks))
        server.told_to_stop(SECONDS)
    assert queue.find(engine, join.id).state is JobState.QUEUED
    assert any(queue.find(engine, job).state is JobState.QUEUED for job in ranks)
    before = {entry.id for entry in read_catalog().entries}
    with serving(home, roots):
        assert is_done(engine, join.id).result == {"failed": 0}
    (manifest,) = manifests()
    stored = {entry.id for entry in read_catalog().entries}
    assert stored == {entry.analysis_id for entry in manifest.usable}
    assert 0 < len(before) < len(stored) == RANKS
    assert before < stored
    assert len(queue.recent(engine)) == RANKS + 1
    assert half_written(analyses_dir()) == []


def test_a_private_analysis_of_another_person_is_not_joined(
    engine: Engine, traces: list[Analyze]
) -> None:
    for each in traces:
        actions.submit_job(engine, ANN, each)
    work_off(engine)
    by_rank = {entry.manifest.trace.rank: entry.id for entry in read_catalog().entries}
    ids = [by_rank[rank] for rank in range(RANKS)]
    join = actions.submit_ranks(engine, BOB, (), ids)
    set_visibility(ids[2], Visibility.PRIVATE)
    work_off(engine)
    assert queue.find(engine, join.id).state is JobState.DONE
    (manifest,) = manifests()
    (failed,) = manifest.failed
    assert (failed.rank, failed.file_name, failed.sha256) == (2, "rank2", None)
    assert failed.error == "Its analysis is private to another person."
    (entry,) = read_catalog().distributed
    assert (entry.owner, entry.visibility) == (BOB.person.name, Visibility.TEAM)
    with pytest.raises(UnknownAnalysisError):
        actions.submit_ranks(engine, BOB, (), ids)


def test_a_private_rank_makes_the_run_private(engine: Engine, traces: list[Analyze]) -> None:
    actions.submit_job(engine, ANN, traces[0], Visibility.PRIVATE)
    work_off(engine)
    actions.submit_ranks(engine, ANN, traces)
    work_off(engine)
    (entry,) = read_catalog().distributed
    assert (entry.owner, entry.visibility) == (ANN.person.name, Visibility.PRIVATE)
    assert len(entry.manifest.usable) == RANKS
    assert read_catalog().visible_to(BOB.person).distributed == ()


def test_pins_and_visibility_of_a_run_are_those_of_its_own_ranks(
    engine: Engine, traces: list[Analyze]
) -> None:
    actions.submit_job(engine, ANN, traces[0])
    work_off(engine)
    (of_ann,) = (entry.id for entry in read_catalog().entries)
    actions.submit_ranks(engine, BOB, traces)
    work_off(engine)
    (run,) = read_catalog().distributed
    assert actions.pin_analysis(BOB, run.id, is_pinned=True)
    actions.share_analysis(BOB, run.id, Visibility.PRIVATE)
    assert stored_row(run.id).is_pinned
    for entry in read_catalog().entries:
        is_own = entry.id != of_ann
        assert entry.is_pinned is is_own
        assert (entry.visibility is Visibility.PRIVATE) is is_own
    assert actions.pin_analysis(BOB, run.id, is_pinned=False)
    assert pinned() == frozenset()


def test_traces_of_one_name_stay_apart(engine: Engine, tmp_path: Path) -> None:
    files = []
    for rank in range(2):
        (tmp_path / str(rank)).mkdir()
        files.append(rank_trace(rank, 2).write(tmp_path / str(rank) / "trace.json"))
    actions.submit_ranks(engine, OPERATOR, [Analyze(Submission(file)) for file in files])
    work_off(engine)
    (manifest,) = manifests()
    assert [(entry.rank, entry.file_name) for entry in manifest.usable] == [
        (0, "trace.json"),
        (1, "1/trace.json"),
    ]
