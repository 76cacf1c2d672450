"""The ingest page: accepted and rejected inputs, and results."""

import json
import zipfile
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from jarvis.core.labels import RunLabels
from jarvis.dashboard import MAIN
from jarvis.run import Run
from jarvis.server import queue
from jarvis.server.database import database
from jarvis.server.ingest.intake import ROOTS_VARIABLE
from jarvis.server.ingest.uploads import create
from jarvis.server.storage.catalog import analysis_root, read_catalog
from tests.builders import trace
from tests.capture.test_merge import captured, step
from tests.dashboard.conftest import SECONDS, Draw
from tests.dashboard.inline_jobs import do_jobs_at_once, outdated
from tests.dashboard.uploading import uploaded
from tests.perf_report.test_inference_steps import QWEN3_8B
from tests.ranks.test_distributed import rank_trace


@pytest.fixture
def fresh_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv(ROOTS_VARIABLE, str(tmp_path))
    do_jobs_at_once(monkeypatch)
    return tmp_path


def analyze(page: AppTest) -> AppTest:
    return next(b for b in page.button if b.label == "Analyze").click().run()


def opens_the_overview(page: AppTest) -> bool:
    """Return whether the page follows its link to the overview."""
    names = [each.proto.component_name for each in page.get("bidi_component")]
    return "jarvis_follow_link" in names


def small_trace(folder: Path, device: str = "AMD Instinct MI300X VF") -> Path:
    built = trace(device=device).op("aten::mm", [[64, 32], [32, 16]])
    return built.launches("gemm_kernel", us=12).write(folder / "small.json")


def test_the_sample_becomes_an_analysis_with_its_steps(filed: Draw, fresh_home: Path) -> None:
    page = analyze(filed("ingest", ingest_source="sample"))
    assert not page.exception
    assert not page.error
    assert opens_the_overview(page)
    assert not opens_the_overview(page.run())
    assert [s.label.split(" · ")[0] for s in page.get("status")][:2] == [
        "Read the trace",
        "Match the hardware",
    ]
    (entry,) = read_catalog().entries
    assert entry.manifest.trace.origin == "simulated"
    assert "Analyzed in" in page.success[0].value
    assert "1 run" in [link.label for link in page.get("page_link")]


def test_an_upload_brings_its_gpu_and_keeps_the_names(filed: Draw, fresh_home: Path) -> None:
    content = small_trace(fresh_home).read_bytes()
    page = filed("ingest", ingest_upload=uploaded("small.json", content))
    assert page.selectbox(key="ingest_platform").value == "MI300X"
    assert any("AMD Instinct MI300X VF" in c.value for c in page.main.caption)
    page.text_input(key="ingest_model").set_value("Tiny")
    page.text_input(key="ingest_folder").set_value("copy")
    page.text_input(key="ingest_project").set_value("llm")
    page.text_input(key="ingest_tags").set_value("nightly, <b>")
    analyze(page)
    assert "contains" in page.error[0].value
    page.text_input(key="ingest_tags").set_value("nightly, fp8")
    analyze(page)
    (entry,) = read_catalog().entries
    assert entry.manifest.model_name == "Tiny"
    assert entry.manifest.options.platform is None
    assert entry.labels == RunLabels("llm", tags=("fp8", "nightly"))
    assert Run.load(fresh_home / "copy").manifest == entry.manifest


@pytest.mark.parametrize(
    ("device", "properties", "chosen", "words"),
    [
        (
            "",
            {"numSms": 304, "totalGlobalMem": 206141652992},
            "MI300X",
            "The trace does not name its GPU. The only known GPU with 304 compute units and 192 GB "
            "of memory: MI300X.",
        ),
        (
            "NVIDIA L40",
            {"numSms": 142, "totalGlobalMem": 47697362944},
            None,
            "The GPU of the trace, NVIDIA L40, is unknown to this server. Known GPUs with 142 "
            "compute units and 44 GB of memory: L40S, RTX 6000 Ada. Choose the right one.",
        ),
        ("", {}, None, "The trace does not name its GPU: choose it."),
    ],
)
def test_a_gpu_without_a_known_name_is_offered_by_its_properties(
    filed: Draw,
    fresh_home: Path,
    device: str,
    properties: dict[str, int],
    chosen: str | None,
    words: str,
) -> None:
    built = trace(device=device).op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12)
    built.header["deviceProperties"][0] |= properties
    content = built.write(fresh_home / "small.json").read_bytes()
    page = filed("ingest", ingest_upload=uploaded("small.json", content))
    assert page.selectbox(key="ingest_platform").value == chosen
    assert words in [caption.value for caption in page.main.caption]


def test_the_same_bytes_again_are_reported_to_be_stored_once(filed: Draw, fresh_home: Path) -> None:
    content = small_trace(fresh_home).read_bytes()
    uploaded("small.json", content)
    page = filed("ingest", ingest_upload=uploaded("other.json", content))
    assert any("already uploaded" in c.value for c in page.main.caption)
    assert any("other.json" in c.value for c in page.main.caption)


def test_a_link_to_an_upload_that_is_gone_half_or_of_another_user_is_corrected(
    fresh_home: Path,
) -> None:
    half = create("half.json", 10, None).id
    theirs = uploaded("theirs.json", small_trace(fresh_home).read_bytes(), owner="ada")
    for upload in ("0" * 32, "../x", half, theirs):
        page = AppTest.from_file(MAIN, default_timeout=SECONDS)
        page.query_params["ingest_upload"] = upload
        page.run()
        assert not page.exception
        assert "no such upload" in page.warning[0].value
        assert "ingest_upload" not in page.query_params
        assert next(b for b in page.button if b.label == "Analyze").disabled


def test_the_gpu_can_be_changed_and_the_disagreement_is_stored(
    filed: Draw, fresh_home: Path
) -> None:
    small_trace(fresh_home)
    page = filed("ingest", ingest_source="server path", ingest_path="small.json")
    page.selectbox(key="ingest_platform").set_value("MI325X").run()
    figures = [m.value for m in page.metric]
    assert "6.00 TB/s" in figures
    analyze(page)
    (entry,) = read_catalog().entries
    assert entry.manifest.hardware is not None
    assert entry.manifest.hardware.name == "MI325X"
    assert "MI300X VF" in (entry.manifest.platform_warning or "")


def test_a_link_may_name_another_gpu_than_the_trace(filed: Draw, fresh_home: Path) -> None:
    small_trace(fresh_home)
    page = filed(
        "ingest",
        ingest_source="server path",
        ingest_path="small.json",
        ingest_platform="MI355X",
    )
    assert page.selectbox(key="ingest_platform").value == "MI355X"


def test_an_unknown_gpu_is_asked_for_and_may_stay_unknown(filed: Draw, fresh_home: Path) -> None:
    small_trace(fresh_home, device="Homebrew 9000")
    page = filed("ingest", ingest_source="server path", ingest_path="small.json")
    assert page.selectbox(key="ingest_platform").value is None
    assert any("Homebrew 9000, is unknown to this server" in c.value for c in page.main.caption)
    analyze(page)
    (entry,) = read_catalog().entries
    assert entry.manifest.hardware is None


def test_the_menu_leads_to_the_analysis_that_was_just_made(filed: Draw, fresh_home: Path) -> None:
    small_trace(fresh_home)
    page = analyze(filed("ingest", ingest_source="sample"))
    sample = page.selectbox(key="analysis_choice").value
    page = filed("ingest", analysis=sample, ingest_source="server path", ingest_path="small.json")
    assert page.selectbox(key="analysis_choice").value == sample
    analyze(page)
    opened = page.selectbox(key="analysis_choice").value
    assert opened != sample
    assert page.query_params["analysis"] == opened


def test_a_bad_upload_is_called_by_its_own_name(filed: Draw, fresh_home: Path) -> None:
    page = filed("ingest", ingest_upload=uploaded("half.json", b'{"traceEvents": ['))
    (error,) = page.error
    assert error.value.startswith("half.json ends before the first event")
    assert str(fresh_home) not in error.value


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/etc/shadow.json", "outside the folders"),
        ("gone.json", "There is no file"),
        ("broken.json", "ends before the first event"),
        ("other.json", "not a trace of the PyTorch profiler"),
    ],
)
def test_what_is_no_trace_is_refused_with_a_sentence(
    filed: Draw, fresh_home: Path, path: str, message: str
) -> None:
    (fresh_home / "broken.json").write_text('{"traceEvents": [')
    (fresh_home / "other.json").write_text('{"weights": []}')
    page = filed("ingest", ingest_source="server path", ingest_path=path, ingest_model="Kept name")
    assert not page.exception
    assert message in page.error[0].value
    assert page.text_input(key="ingest_path").value == path
    assert page.text_input(key="ingest_model").value == "Kept name"
    assert next(b for b in page.button if b.label == "Analyze").disabled


def test_a_taken_output_folder_is_refused_and_the_form_stays(filed: Draw, fresh_home: Path) -> None:
    small_trace(fresh_home)
    (fresh_home / "taken").mkdir()
    (fresh_home / "taken" / "thesis.tex").write_text("x")
    page = filed(
        "ingest", ingest_source="server path", ingest_path="small.json", ingest_folder="taken"
    )
    analyze(page)
    assert "already contains" in page.error[0].value
    assert page.text_input(key="ingest_folder").value == "taken"
    assert not read_catalog().entries


def test_the_same_trace_again_is_reused_and_can_be_made_again(
    filed: Draw, fresh_home: Path
) -> None:
    small_trace(fresh_home)
    analyze(filed("ingest", ingest_source="server path", ingest_path="small.json"))
    page = analyze(filed("ingest", ingest_source="server path", ingest_path="small.json"))
    assert any("Already analyzed with these options" in note.value for note in page.info)
    assert not opens_the_overview(page)
    old = outdated(database(), queue.find(database(), page.query_params["ingest_job"]))
    linked = filed("ingest", ingest_job=old.id)
    assert not linked.exception
    assert "Analyze again" not in [button.label for button in linked.button]
    next(b for b in page.button if b.label == "Analyze again").click().run()
    assert "Analyzed in" in page.success[0].value
    assert len(read_catalog().entries) == 1


def test_a_reference_is_an_analysis_of_its_own_that_the_manifest_names(
    filed: Draw, fresh_home: Path
) -> None:
    small_trace(fresh_home)
    other = trace().op("aten::mm", [[8, 4], [4, 2]]).launches("gemm_kernel", us=3)
    other.write(fresh_home / "reference.json")
    page = filed(
        "ingest",
        ingest_source="server path",
        ingest_path="small.json",
        ingest_reference_source="server path",
        ingest_reference_path="reference.json",
    )
    analyze(page)
    by_name = {entry.manifest.trace.file_name: entry for entry in read_catalog().entries}
    assert by_name["small.json"].manifest.reference == by_name["reference.json"].id
    assert by_name["reference.json"].manifest.reference is None


def test_captures_give_replayed_kernels_their_operators(filed: Draw, fresh_home: Path) -> None:
    step(trace("AMD Instinct MI300X"), 8).write(fresh_home / "step.json")
    with zipfile.ZipFile(fresh_home / "captures.zip", "w") as archive:
        archive.write(captured(8).write(fresh_home / "bs_8.json"), "bs_8.json")
    page = filed(
        "ingest",
        ingest_source="server path",
        ingest_path="step.json",
        ingest_captures_source="server path",
        ingest_captures_path="captures.zip",
    )
    analyze(page)
    (entry,) = read_catalog().entries
    assert entry.manifest.options.captures_name == "captures.zip"
    names = Run.load(analysis_root(entry.id)).table("operations")["name"].to_list()
    assert {"aten::mm", "aten::silu"} <= set(names)


def test_the_configuration_of_the_model_gives_steps_their_costs(
    filed: Draw, fresh_home: Path
) -> None:
    name = "execute_2_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq2sk20sqsq2sqsk20)"
    built = trace("AMD Instinct MI300X").annotation(name, us=200).child("aten::unknown_")
    built.launches("unknown", us=100).write(fresh_home / "step.json")
    (fresh_home / "config.json").write_text(json.dumps(QWEN3_8B), encoding="utf-8")
    page = filed(
        "ingest",
        ingest_source="server path",
        ingest_path="step.json",
        ingest_config_source="server path",
        ingest_config_path="config.json",
        ingest_config_tp="4",
    )
    analyze(page)
    (entry,) = read_catalog().entries
    options = entry.manifest.options
    assert (options.served_model_name, options.tensor_parallel) == ("config.json", 4)
    steps = Run.load(analysis_root(entry.id)).table("inference_steps")
    assert steps["cost_source"].to_list() == ["config"]


def test_the_sidebar_names_a_new_analysis_at_once(filed: Draw, fresh_home: Path) -> None:
    first = small_trace(fresh_home)
    parameters = {"ingest_source": "server path", "ingest_path": first.name}
    analyze(filed("ingest", **parameters))
    (old,) = read_catalog().entries
    small_trace(fresh_home, device="AMD Instinct MI325X")
    page = analyze(filed("ingest", **parameters, analysis=old.id))
    new = next(e for e in read_catalog().entries if e.id != old.id)
    assert page.sidebar.selectbox[0].value == new.id
    assert any(new.id in badges.value for badges in page.sidebar.markdown)
    assert page.get("status")


TIMED = {"ph": "X", "ts": 0, "dur": 5, "pid": 1, "tid": 1}


@pytest.mark.parametrize(
    ("events", "ending", "words"),
    [
        ([{**TIMED, "cat": "cpu_op", "name": "aten::mm"}], "]}", "The trace contains no GPU work."),
        (
            [{**TIMED, "cat": "kernel", "name": "gemm", "args": {"device": 0, "stream": 7}}],
            "]}",
            "The trace contains only GPU events.",
        ),
        ([{**TIMED, "cat": "cpu_op", "name": "aten::mm"}], "]}", "contains no input shapes"),
        ([{**TIMED, "cat": "cpu_op", "name": "aten::mm"}], ",", "The file ends in the middle"),
    ],
)
def test_what_is_missing_is_reported_before_the_analysis(
    filed: Draw, fresh_home: Path, events: list[dict[str, object]], ending: str, words: str
) -> None:
    text = '{"schemaVersion": 1, "traceEvents": [' + ",".join(map(json.dumps, events)) + ending
    (fresh_home / "lacking.json").write_text(text)
    page = filed("ingest", ingest_source="server path", ingest_path="lacking.json")
    assert not page.error
    assert not next(b for b in page.button if b.label == "Analyze").disabled
    assert words in " ".join(warning.value for warning in page.warning)


def test_a_whole_trace_has_no_warning_before_the_analysis(filed: Draw, fresh_home: Path) -> None:
    small_trace(fresh_home)
    assert not filed("ingest", ingest_source="server path", ingest_path="small.json").warning


def test_without_gpu_work_the_overview_is_never_green(filed: Draw, fresh_home: Path) -> None:
    event = {**TIMED, "cat": "cpu_op", "name": "aten::mm"}
    (fresh_home / "host.json").write_text(json.dumps({"traceEvents": [event]}))
    analyze(filed("ingest", ingest_source="server path", ingest_path="host.json"))
    page = filed("overview")
    assert not page.success
    assert "no GPU work" in " ".join(warning.value for warning in page.warning)


def test_an_unknown_gpu_is_asked_for_in_the_sidebar_with_candidates(
    filed: Draw, fresh_home: Path
) -> None:
    built = trace(device="").op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12)
    built.header["deviceProperties"][0] |= {"numSms": 142, "totalGlobalMem": 47697362944}
    built.write(fresh_home / "small.json")
    page = filed("ingest", ingest_source="server path", ingest_path="small.json")
    assert page.selectbox(key="ingest_platform").options[:2] == ["L40S", "RTX 6000 Ada"]
    page = analyze(page)
    captions = " ".join(caption.value for caption in page.sidebar.caption)
    assert "GPU unknown" in captions
    assert "It may be L40S, RTX 6000 Ada." in captions
    labels = [link.proto.label for link in page.sidebar.get("page_link")]
    assert "Choose the GPU" in labels


def opens_the_ranks(page: AppTest) -> bool:
    """Return whether the page shows and follows a link to the ranks."""
    labels = [link.label for link in page.get("page_link")]
    return opens_the_overview(page) and "Open the ranks" in labels


def rank_content(rank: int) -> bytes:
    return json.dumps(rank_trace(rank, 2).document()).encode()


def test_several_uploads_are_the_ranks_of_a_job(filed: Draw, fresh_home: Path) -> None:
    ids = [uploaded(f"rank{rank}.json", rank_content(rank)) for rank in range(2)]
    ids.insert(0, uploaded("broken.json", b"no trace"))
    page = filed("ingest", ingest_upload=",".join(ids))
    shown = " ".join(caption.value for caption in page.main.caption)
    assert "3 ranks, each with an analysis of its own: broken.json, rank0.json" in shown
    assert not [box for box in page.main.expander if box.label.startswith("Reference")]
    analyze(page)
    assert not page.exception
    assert not page.error
    assert opens_the_ranks(page)
    (run,) = read_catalog().distributed
    assert [entry.file_name for entry in run.manifest.usable] == ["rank0.json", "rank1.json"]
    assert [entry.file_name for entry in run.manifest.failed] == ["broken.json"]
    assert page.success[0].value == "The ranks are joined. 1 file could not be used."


def test_names_that_give_another_rank_are_shown_before_any_job(
    filed: Draw, fresh_home: Path
) -> None:
    ids = []
    for rank in range(2):
        document = {"distributedInfo": {"rank": rank}} | rank_trace(rank, 2).document()
        ids.append(uploaded(f"rank{1 - rank}.json", json.dumps(document).encode()))
    page = filed("ingest", ingest_upload=",".join(ids))
    shown = " ".join(warning.value for warning in page.warning)
    assert "Of 2 files, the name gives another rank than the header" in shown


def test_an_archive_of_several_traces_is_unpacked(filed: Draw, fresh_home: Path) -> None:
    with zipfile.ZipFile(fresh_home / "job.zip", "w") as archive:
        for rank in range(2):
            archive.writestr(f"job/rank{rank}/trace.json", rank_content(rank))
    page = filed("ingest", ingest_source="server path", ingest_path="job.zip")
    analyze(page)
    assert not page.exception
    (run,) = read_catalog().distributed
    names = [entry.file_name for entry in run.manifest.usable]
    assert names == ["rank0_trace.json", "rank1_trace.json"]
    assert opens_the_ranks(page)


def test_an_archive_in_an_archive_is_rejected(filed: Draw, fresh_home: Path) -> None:
    with zipfile.ZipFile(fresh_home / "job.zip", "w") as archive:
        for name in ("rank0.json", "rank1.json", "more.zip"):
            archive.writestr(name, "{}")
    page = filed("ingest", ingest_upload=uploaded("job.zip", (fresh_home / "job.zip").read_bytes()))
    assert "is an archive, too" in page.error[0].value
