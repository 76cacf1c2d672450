"""Results of each job kind, and the round trip of its request through the queue."""

import gzip
import io
import json
import shutil
import zipfile
from pathlib import Path

import openpyxl
import pytest
from sqlalchemy import Engine

from jarvis.cli import main
from jarvis.core.errors import JarvisError, ReplayError
from jarvis.core.request import AnalysisOptions
from jarvis.core.workspace import RunPaths, analyses_dir, exports_dir
from jarvis.pipeline import STEPS, Step
from jarvis.pipeline.distributed import RankOptions
from jarvis.ranks.identity import RankSource, WorldSource
from jarvis.ranks.manifest import (
    ClockSummary,
    DistributedManifest,
    MatchingSummary,
    MemberEntry,
    MemberState,
    WorldSize,
)
from jarvis.replay.package import IR_NAME
from jarvis.reports import load_reporters
from jarvis.reports.perfetto import FORMAT as PERFETTO
from jarvis.reports.perfetto.trace_file import FROM_RUN, FROM_TRACE
from jarvis.run import Run
from jarvis.server import queue
from jarvis.server.access.audit import Channel
from jarvis.server.access.rights import LOCAL
from jarvis.server.actions import Actor, ask_for_file
from jarvis.server.database import JobState
from jarvis.server.errors import MissingInputError, OutdatedJobError
from jarvis.server.ingest.remote_runs import RemoteRun
from jarvis.server.jobs.kinds import (
    WHOLE_RUN,
    Analyze,
    Compare,
    Export,
    FileRequest,
    Inspect,
    Join,
    JoinMember,
    Replay,
    Reproject,
    Request,
    job_file,
    load_requests,
    request_of,
)
from jarvis.server.jobs.kinds.analyses import Load, Remote
from jarvis.server.jobs.kinds.exports import HAS_TRACE, ORIGIN
from jarvis.server.jobs.kinds.fetches import Fetch
from jarvis.server.jobs.kinds.ranks import RanksExport, RanksWhatIf
from jarvis.server.jobs.processes.job_messages import Assignment, FailedMessage
from jarvis.server.jobs.processes.job_process import outcome_of
from jarvis.server.queue import Job
from jarvis.server.storage.catalog import Entry, analysis_root, read_catalog
from jarvis.server.submission import Submission, submit
from tests.builders import trace
from tests.dashboard.inline_jobs import work_off


@pytest.fixture
def trace_file(home: Path, tmp_path: Path) -> Path:
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12)
    return built.write(tmp_path / "tiny.json")


@pytest.fixture
def analysis(trace_file: Path) -> str:
    return submit(Submission(trace_file)).id


def no_progress(_: Step) -> None:
    """Ignore progress."""


def content(request: Request) -> bytes:
    """The file that a request makes."""
    file = job_file(request.run(no_progress, "a1b2").result)
    assert file is not None
    assert not list(file.parent.glob(".*"))
    return file.read_bytes()


def of_ranks(analysis: str) -> str:
    """Write the manifest of a distributed run of two ranks; return its id."""
    manifest = DistributedManifest(
        jarvis_version="0.1.0",
        created="2026-01-01T00:00:00+00:00",
        distributed_id="abcdef012345",
        title="2 of 4 ranks (0, 3)",
        world_size=WorldSize(value=4, source=WorldSource.FILES),
        members=[
            MemberEntry(
                rank=rank,
                rank_source=RankSource.NAME,
                state=MemberState.USABLE,
                file_name=f"rank{rank}.json",
                analysis_id=analysis,
            )
            for rank in (0, 3)
        ],
        missing=((1, 2),),
        duplicates={},
        conflicts=(),
        clock=ClockSummary(p95_us=None, is_waiting_known=False, has_drift=False),
        matching=MatchingSummary(instances=0, matched_kernels=0, unmatched_kernels=0),
        sheets=(),
        tables=(),
    )
    paths = RunPaths(analyses_dir() / manifest.distributed_id)
    paths.root.mkdir(exist_ok=True)
    paths.manifest.write_text(manifest.model_dump_json(), encoding="utf-8")
    return manifest.distributed_id


def test_requests_come_back_from_the_queue(
    trace_file: Path, analysis: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JARVIS_INGEST_HOSTS", "traces.example.org")
    monkeypatch.setenv("JARVIS_TARGETS__NODE__HOST", "node.example.org")
    asked = Submission(
        trace_file, platform="MI300X", model_name="Tiny", copy_to=tmp_path / "out" / "copy"
    )
    requests: list[Request] = [
        Inspect(trace_file),
        Analyze(asked, reference_trace=trace_file, is_again=True),
        Reproject("abc", "H200 SXM", None),
        Export(analysis, "json"),
        Export(analysis, "html", 62.5),
        Analyze(Submission(trace_file, target_pct=62.5)),
        Replay(analysis, ("aten::mm", "aten::bmm"), (17,)),
        Compare(analysis, analysis, 1.5, is_workbook_alone=True),
        Fetch(
            "https://traces.example.org/tiny.json",
            AnalysisOptions(platform="MI300X"),
            is_again=True,
        ),
        Fetch("https://traces.example.org/tiny.json", AnalysisOptions(target_pct=62.5)),
        Remote(RemoteRun("node", "/data/tiny.json")),
        Load(trace_file),
        Join(
            (JoinMember("rank0.json", "job0"), JoinMember("rank1.json", analysis="abc")),
            RankOptions(4, given={"rank0.json": 3}, taken={3: "rank0.json"}),
            "job0 1",
        ),
        RanksWhatIf(of_ranks(analysis), ("rank=1", "transfer=0.5")),
        RanksExport(of_ranks(analysis), "perfetto", (0, 3)),
    ]
    assert {request.kind for request in requests} == set(load_requests())
    for request in requests:
        new = request.new_job()
        assert request_of(new.kind, new.parameters) == request
        assert new.title
    assert str(tmp_path / "out") in requests[1].new_job().folders
    titles = [request.title for request in requests]
    assert "Export tiny (H200 SXM) as json" in titles
    assert "Export tiny (H200 SXM) as html at 62.5% of the roofline" in titles
    assert "Compare tiny (H200 SXM) with tiny (H200 SXM) as a workbook" in titles


def test_a_changed_file_is_another_request(trace_file: Path) -> None:
    before = Inspect(trace_file).new_job().fingerprint
    assert Inspect(trace_file).new_job().fingerprint == before
    trace_file.write_text(trace_file.read_text() + " ")
    assert Inspect(trace_file).new_job().fingerprint != before
    trace_file.unlink()
    with pytest.raises(MissingInputError, match=r"tiny\.json cannot be read"):
        Inspect(trace_file).new_job()


def test_the_reference_is_analyzed_first_and_steps_are_counted_through(
    trace_file: Path, tmp_path: Path
) -> None:
    other = trace().op("aten::mm", [[8, 4], [4, 2]]).launches("gemm_kernel", us=3)
    reference = other.write(tmp_path / "reference.json")
    steps: list[Step] = []
    made = Analyze(Submission(trace_file), reference).run(steps.append, "a1b2")
    done = [step for step in steps if step.state == "done"]
    assert [step.number for step in done] == list(range(1, 2 * len(STEPS) + 1))
    assert {step.total for step in done} == {2 * len(STEPS)}
    assert done[0].name == f"Reference: {STEPS[0]}"
    by_id = {entry.id: entry.manifest for entry in read_catalog().entries}
    assert made.analysis_id is not None
    kept_reference = by_id[made.analysis_id].reference
    assert kept_reference is not None
    assert by_id[kept_reference].trace.file_name == "reference.json"


@pytest.mark.parametrize("target_pct", [0, -1, 100.5])
def test_a_request_with_an_impossible_target_is_refused(
    trace_file: Path, analysis: str, target_pct: float
) -> None:
    asked: list[Request] = [
        Export(analysis, "json", target_pct),
        Analyze(Submission(trace_file, target_pct=target_pct)),
    ]
    for request in asked:
        new = request.new_job()
        with pytest.raises(OutdatedJobError):
            request_of(new.kind, new.parameters)


def test_a_request_of_a_release_without_targets_has_the_default(trace_file: Path) -> None:
    new = Analyze(Submission(trace_file)).new_job()
    del new.parameters["submission"]["target_pct"]
    assert request_of(new.kind, new.parameters) == Analyze(Submission(trace_file))


def test_an_export_at_another_target_leaves_the_analysis_as_it_is(analysis: str) -> None:
    root = analysis_root(analysis)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    document = json.loads(content(Export(analysis, "json", 65.0)))
    assert document["manifest"]["options"]["target_pct"] == 65.0
    whole = zipfile.ZipFile(io.BytesIO(content(Export(analysis, WHOLE_RUN, 65.0))))
    assert json.loads(whole.read("manifest.json"))["options"]["target_pct"] == 65.0
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_a_trace_is_analyzed_at_the_target_of_the_request(trace_file: Path, analysis: str) -> None:
    made = Analyze(Submission(trace_file, target_pct=65.0)).run(no_progress, "a1b2")
    assert made.analysis_id not in (None, analysis)
    assert Run.load(analysis_root(str(made.analysis_id))).target_pct == 65.0


def test_an_analysis_is_reprojected(analysis: str) -> None:
    made = Reproject(analysis, "MI300X", None).run(no_progress, "a1b2")
    assert made.analysis_id not in (None, analysis)
    assert made.result == {"is_reused": False}


def test_exports_are_files_to_take_home(analysis: str) -> None:
    whole = zipfile.ZipFile(io.BytesIO(content(Export(analysis, WHOLE_RUN))))
    assert "manifest.json" in whole.namelist()
    folder_format = next(name for name, one in load_reporters().items() if not one.suffix)
    assert zipfile.ZipFile(io.BytesIO(content(Export(analysis, folder_format)))).namelist()
    assert content(Export(analysis, "json")).startswith(b"{")
    with pytest.raises(JarvisError, match="no format 'pdf'"):
        Export(analysis, "pdf").run(no_progress, "a1b2")


def test_a_trace_for_perfetto_has_the_slices_of_the_trace_or_of_the_analysis(
    analysis: str, trace_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made() -> tuple[bool, str]:
        result = Export(analysis, PERFETTO).run(no_progress, "a1b2").result
        file = job_file(result)
        assert file is not None
        document = json.loads(gzip.decompress(file.read_bytes()))
        assert document["otherData"][ORIGIN] == result[ORIGIN]
        shutil.rmtree(file.parent)
        return result[HAS_TRACE], document["otherData"]["source"]

    assert made() == (True, FROM_TRACE)
    with monkeypatch.context() as patch:  # of another server, with any path
        patch.setattr(Entry, "source", "a file")
        assert made() == (False, FROM_RUN)
    with monkeypatch.context() as patch:
        patch.setenv("JARVIS_TRACE_ROOTS", str(trace_file.parent / "elsewhere"))
        assert made() == (False, FROM_RUN)
    content = trace_file.read_bytes()
    trace_file.write_bytes(content.replace(b"gemm_kernel", b"gemm_kernal"))
    assert made() == (False, FROM_RUN)
    trace_file.unlink()
    assert made() == (False, FROM_RUN)


def test_packages_of_operators_are_one_file(analysis: str) -> None:
    names = zipfile.ZipFile(io.BytesIO(content(Replay(analysis, ("aten::mm",))))).namelist()
    assert IR_NAME in names
    with pytest.raises(ReplayError, match="no operator 'no::such'"):
        Replay(analysis, ("no::such",)).run(no_progress, "a1b2")


def test_a_comparison_is_the_folder_that_the_command_writes(
    analysis: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=90)
    target = submit(Submission(other.write(tmp_path / "slow.json"))).id
    out = tmp_path / "out"
    arguments = ["compare", analysis, target, "--names", "reference", "target"]
    assert main([*arguments, "--tolerance", "1.5", "--output-dir", str(out)]) == 0
    capsys.readouterr()
    written = {str(p.relative_to(out)): p for p in out.rglob("*") if p.is_file()}
    archive = zipfile.ZipFile(io.BytesIO(content(Compare(target, analysis, 1.5))))
    assert set(archive.namelist()) == set(written)
    for name in (n for n in written if not n.endswith(".xlsx")):
        assert archive.read(name) == written[name].read_bytes(), name
    workbook = content(Compare(target, analysis, is_workbook_alone=True))
    assert sheets_of(workbook) == sheets_of(written["comparison.xlsx"].read_bytes())


def sheets_of(workbook: bytes) -> dict[str, list[tuple[object, ...]]]:
    book = openpyxl.load_workbook(io.BytesIO(workbook))
    return {sheet.title: list(sheet.iter_rows(values_only=True)) for sheet in book}


def test_a_file_is_made_once_for_an_analysis_as_it_is(
    engine: Engine, analysis: str, trace_file: Path
) -> None:
    def made(request: FileRequest) -> Job:
        job = ask_for_file(engine, Actor(LOCAL, Channel.COMMAND), request)
        work_off(engine)
        return queue.find(engine, job.id)

    first = made(Export(analysis, "json"))
    assert first.state is JobState.DONE
    assert made(Export(analysis, "json")).id == first.id
    assert made(Export(analysis, WHOLE_RUN)).id != first.id
    file = job_file(first.result)
    assert file is not None
    file.unlink()
    second = made(Export(analysis, "json"))
    assert second.id != first.id
    manifest = RunPaths(analysis_root(analysis)).manifest
    manifest.write_text(manifest.read_text().replace('"created"', '"created" '))
    assert made(Export(analysis, "json")).id not in (first.id, second.id)


def test_a_file_that_is_not_finished_leaves_nothing(
    analysis: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("jarvis.server.jobs.kinds.exports.write_zip", full)
    with pytest.raises(OSError, match="No space"):
        Export(analysis, WHOLE_RUN).run(no_progress, "a1b2")
    assert list(exports_dir().iterdir()) == []


def test_what_cannot_be_done_is_a_sentence_without_the_folder_of_the_server(
    home: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad.json").write_text("[1, 2")
    new = Analyze(Submission(tmp_path / "bad.json")).new_job()
    outcome = outcome_of(Assignment("a1b2", new.kind, dict(new.parameters), ""), no_progress)
    assert isinstance(outcome, FailedMessage)
    assert outcome.error.startswith("bad.json ")
    assert str(tmp_path) not in outcome.error


def test_a_disk_that_refuses_is_a_sentence(
    analysis: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "exports").write_text("a file in the way")
    new = Export(analysis, "json").new_job()
    outcome = outcome_of(Assignment("a1b2", new.kind, dict(new.parameters), ""), no_progress)
    assert isinstance(outcome, FailedMessage)
    assert "has free space" in outcome.error
    assert analysis_root(analysis).is_dir()
