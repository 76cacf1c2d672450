"""The hardware page: peaks with sources and doubts, comparison, custom GPUs."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from jarvis.core.workspace import custom_hardware_dir
from jarvis.hardware import HardwareSpec, load_hardware
from jarvis.run import Run
from jarvis.server.ingest.intake import sample_trace
from jarvis.server.storage.custom_hardware import remove_hardware, store_hardware
from jarvis.server.submission import Submission, resubmit, submit
from tests.dashboard.conftest import Draw
from tests.dashboard.inline_jobs import do_jobs_at_once

ARCH = {
    "name": "X100",
    "mem_bw_gbps": 3900,
    "memory_gb": 96,
    "max_achievable_tflops": {"matrix_bf16": 500},
}


@pytest.fixture(autouse=True)
def _nothing_kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    do_jobs_at_once(monkeypatch)
    yield
    for path in custom_hardware_dir().glob("*.toml"):
        path.unlink()


def presets(page: AppTest) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = page.dataframe[0].value.to_dict("records")
    return rows


def figures(page: AppTest) -> dict[str, dict[str, object]]:
    return {row["figure"]: row for row in page.dataframe[1].value.to_dict("records")}


def test_the_preset_of_the_open_analysis_is_marked_and_shown(filed: Draw, sample_id: str) -> None:
    page = filed("hardware", analysis=sample_id)
    assert not page.exception
    rows = presets(page)
    assert len(rows) == len(list(load_hardware()))
    assert [row["name"] for row in rows if row["used"] == "open analysis"] == ["MI300X"]
    assert page.selectbox(key="hardware_gpu").value == "MI300X"
    assert figures(page)["bf16 matrix (TFLOP/s)"]["value"] == 708
    assert "ROCm blog" in str(figures(page)["bf16 matrix (TFLOP/s)"]["source"])


def test_without_an_analysis_the_catalog_is_there(
    filed: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path))
    page = filed("hardware")
    assert not page.exception
    assert not page.error
    assert len(presets(page)) == len(list(load_hardware()))


def test_a_link_compares_two_presets(filed: Draw, sample_id: str) -> None:
    page = filed(
        "hardware", analysis=sample_id, hardware_gpu="MI300X", hardware_other="MI325X (datasheet)"
    )
    row = figures(page)["Memory bandwidth (TB/s)"]
    assert (row["value"], row["other_value"]) == (5.3, 6.0)
    assert row["ratio"] == pytest.approx(6000 / 5300)
    assert "1.13 times the memory bandwidth" in page.subheader[0].value


def test_a_link_to_an_unknown_gpu_is_corrected_with_a_word(filed: Draw, sample_id: str) -> None:
    page = filed("hardware", analysis=sample_id, hardware_gpu="MI9000")
    assert any("MI9000" in warning.value for warning in page.warning)
    assert page.selectbox(key="hardware_gpu").value == "MI300X"


def test_doubts_stand_beside_the_figures(filed: Draw, sample_id: str) -> None:
    page = filed("hardware", analysis=sample_id, hardware_gpu="MI400 (announced)")
    assert "placeholder" in str(figures(page)["bf16 matrix (TFLOP/s)"]["doubt"])
    assert "uncertain" in page.subheader[0].value


def test_a_short_doubt_leaves_its_room_to_the_sources(filed: Draw, sample_id: str) -> None:
    for gpu, is_short in (("H100 SXM", True), ("MI400 (announced)", False)):
        page = filed("hardware", analysis=sample_id, hardware_gpu=gpu)
        columns = json.loads(page.dataframe[1].proto.columns)
        assert (columns["doubt"]["width"] < 100) == is_short


def test_what_a_preset_lacks_names_the_operations_of_the_analysis(
    filed: Draw, sample_id: str, sample_run: Run
) -> None:
    rows = sample_run.table("operations").to_dicts()
    lacking = [r for r in rows if r["compute"] == "vector_bf16" and (r["flops"] or 0) > 0]
    page = filed("hardware", analysis=sample_id, hardware_gpu="MI400")
    words = " ".join(markdown.value for markdown in page.main.markdown)
    assert lacking
    assert f"{len(lacking)} operations in bf16 vector" in words


def filled(page: AppTest, **changed: object) -> AppTest:
    values = {"name": "X100", "bandwidth": 3900.0, "memory": 96.0, "source": "a datasheet"}
    for field, value in (values | changed).items():
        kind = page.number_input if field in ("bandwidth", "memory") else page.text_input
        kind(key=f"_hardware_{field}").set_value(value)
    page.number_input(key="_hardware_matrix_bf16").set_value(500.0)
    page.number_input(key="_hardware_compute_units").set_value(132)
    return next(b for b in page.button if b.label == "Add GPU").click().run()


def test_a_gpu_is_described_chosen_on_the_ingest_page_and_deleted(
    filed: Draw, sample_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    do_jobs_at_once(monkeypatch)
    page = filled(filed("hardware", analysis=sample_id))
    assert not page.exception
    assert "was added" in page.success[0].value
    assert figures(page)["bf16 matrix (TFLOP/s)"]["value"] == 500
    assert figures(page)["Compute units"]["value"] == 132
    assert load_hardware().get("X100").source_of("matrix_bf16") == "a datasheet"
    ingest = filed("ingest", ingest_source="sample")
    assert "X100" in ingest.selectbox(key="ingest_platform").options
    page.button(key="_hardware_delete_X100 (custom)").click().run()
    assert not page.exception
    assert "was deleted" in page.success[0].value
    assert "X100" not in load_hardware().names()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"name": ""}, "fill in name"),
        ({"source": ""}, "fill in source"),
        ({"bandwidth": None}, "memory bandwidth"),
        ({"name": "MI300X", "preset": "reference"}, "already described by Jarvis"),
        ({"name": "mi300x"}, "already refers to MI300X"),
        ({"alias": "NVIDIA H100 80GB HBM3"}, "already refers to H100 SXM"),
        ({"name": "GPU"}, "does not identify a GPU"),
        ({"name": "X" * 61}, "printable characters"),
    ],
)
def test_what_cannot_be_stored_is_reported(
    filed: Draw, sample_id: str, changed: dict[str, object], words: str
) -> None:
    page = filled(filed("hardware", analysis=sample_id), **changed)
    assert not page.exception
    assert words in page.error[0].value.replace("\\", "")
    assert not list(custom_hardware_dir().glob("*.toml"))


def test_a_description_as_a_file_is_stored(filed: Draw, sample_id: str) -> None:
    page = filed("hardware", analysis=sample_id)
    page.file_uploader[0].upload("x100.json", json.dumps(ARCH).encode()).run()
    next(b for b in page.button if b.label == "Add this GPU").click().run()
    assert not page.exception
    assert load_hardware().get("X100").model_dump(include=set(ARCH)) == ARCH


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "cannot be read"),
        (json.dumps({**ARCH, "bandwidth": 1}).encode(), "bandwidth is not a valid key"),
        (json.dumps({"name": "X1"}).encode(), "mem_bw_gbps is missing"),
    ],
)
def test_a_bad_file_is_refused_with_a_sentence(
    filed: Draw, sample_id: str, content: bytes, words: str
) -> None:
    page = filed("hardware", analysis=sample_id)
    page.file_uploader[0].upload("x100.json", content).run()
    assert not page.exception
    assert words in page.error[0].value.replace("\\", "")


def test_a_broken_file_of_ones_own_leaves_the_others(filed: Draw, sample_id: str) -> None:
    custom_hardware_dir().mkdir(exist_ok=True)
    (custom_hardware_dir() / "broken.toml").write_text("[[gpu]]\nname = 'Y1'\n")
    page = filed("hardware", analysis=sample_id)
    assert not page.exception
    assert any("broken.toml" in warning.value for warning in page.warning)
    assert len(presets(page)) == len(list(load_hardware()))


def test_the_open_analysis_is_judged_against_another_preset(
    filed: Draw, sample_id: str, sample_run: Run
) -> None:
    page = filed("hardware", analysis=sample_id, hardware_gpu="H100 SXM")
    next(b for b in page.button if b.label == "Re-project onto H100 SXM").click().run()
    assert not page.exception
    assert not page.error
    assert "Re-projected" in page.success[0].value
    asked = submit(Submission(sample_trace(), platform="H100 SXM", model_name="Sample model"))
    assert asked.is_reused, "the same choice from the trace has the same id"
    run = Run.load(asked.root)
    assert run.manifest.hardware == load_hardware().get("H100 SXM")
    ours, theirs = (r.table("operations")["kernel_time_us"] for r in (sample_run, run))
    assert ours.equals(theirs)


def test_no_judging_where_nothing_would_change(filed: Draw, sample_id: str) -> None:
    page = filed("hardware", analysis=sample_id)
    assert not [b for b in page.button if b.label.startswith("Re-project")]
    assert any(", uses MI300X" in caption.value for caption in page.main.caption)


def test_a_gpu_described_again_is_not_confused_with_the_earlier_one(
    filed: Draw, sample_id: str
) -> None:
    peaks = []
    for bandwidth in (1000, 2000):
        spec = HardwareSpec.from_arch_json({**ARCH, "mem_bw_gbps": bandwidth})
        store_hardware(spec)
        stored = resubmit(sample_id, "X100", None)
        peaks.append(Run.load(stored.root).table("operations")["peak_tb_per_s"].max())
        remove_hardware(spec)
    assert peaks == [1.0, 2.0]
