"""The pages of inference: steps and their targets, layers, and replayed graphs."""

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from jarvis.server.submission import Submission, submit
from tests.builders import trace
from tests.capture.test_merge import KERNELS, captured, step
from tests.dashboard.conftest import Draw
from tests.dashboard.table_widths import CARD_PX, used_px

SLOW_LAYER = [("Cijk_gemm", 80.0), ("silu_kernel", 5.0)]
LAYERS = [*KERNELS * 3, *SLOW_LAYER]
"""Kernels of a step with ten layers, one of them slow."""


def stored(folder: Path, *rows: int, captures: bool) -> str:
    """Analyze a trace with a decode step for each number of rows."""
    builder = trace("AMD Instinct MI300X")
    for count in rows:
        step(builder, count, LAYERS)
    path = builder.write(folder / "step.json")
    if not captures:
        return submit(Submission(path)).id
    places = folder / "captures"
    places.mkdir()
    captured(8, layers=10).write(places / "bs_8.json")
    return submit(Submission(path, capture_folder=places)).id


@pytest.fixture
def with_captures(tmp_path: Path) -> str:
    return stored(tmp_path, 8, 8, 8, captures=True)


@pytest.fixture
def without(tmp_path: Path) -> str:
    return stored(tmp_path, 4, captures=False)


def metrics(page: AppTest) -> dict[str, str]:
    return {metric.label: metric.value for metric in page.metric}


def test_serving_shows_the_rates_of_steps(filed: Draw, with_captures: str) -> None:
    page = filed("serving", analysis=with_captures)
    assert not page.exception
    found = metrics(page)
    assert found["Median step time"] not in ("—", "0 ms")
    assert found["MBU"].endswith("%")
    phases, steps = (table.value for table in page.dataframe)
    assert phases["phase"].to_list() == ["decode"]
    assert steps["step"].to_list() == [0, 1, 2]
    assert "inference engine annotates" in page.info[0].value
    assert used_px(page.dataframe[1], "graph_launches") <= CARD_PX


def test_serving_without_shapes_has_no_targets(filed: Draw, without: str) -> None:
    page = filed("serving", analysis=without, serving_mbu="70")
    assert not page.exception
    assert "MBU" not in metrics(page)
    assert "serving_mbu" not in {slider.key for slider in page.slider}
    assert "of the steps are not available" in page.info[0].value


def test_a_lower_target_leaves_more_of_the_step(filed: Draw, with_captures: str) -> None:
    low, high = (
        filed("serving", analysis=with_captures, serving_mbu=mbu, serving_mfu="100")
        for mbu in ("5", "100")
    )
    label = "Median step at the targets"
    times = [float(metrics(page)[label].split()[0]) for page in (low, high)]
    assert times[0] > times[1] > 0


def test_layers_show_the_slow_one(filed: Draw, tmp_path: Path) -> None:
    builder = trace("AMD Instinct MI300X")
    step(builder, 4, [*LAYERS, ("argmax_kernel", 9.0)])
    page = filed("layers", analysis=submit(Submission(builder.write(tmp_path / "step.json"))).id)
    assert not page.exception
    found = metrics(page)
    assert (found["Layers"], found["Median layer"], found["Longest layer"]) == (
        "10",
        "25.0 µs",
        "85.0 µs",
    )
    template = page.dataframe[0].value
    assert template["block"].to_list() == ["GEMM", "other"]
    assert "Slow: layer 9" in page.info[0].value
    assert page.dataframe[1].value["block"].to_list() == ["sampling"]
    assert any("names of the kernels are on *Timeline*" in text.value for text in page.caption)


def test_graphs_show_what_kernels_inherit(filed: Draw, with_captures: str) -> None:
    page = filed("graphs", analysis=with_captures)
    assert not page.exception
    assert metrics(page)["With a captured call"] == "100.0%"
    graphs, kernels = (table.value for table in page.dataframe)
    assert graphs["capture_file"].to_list() == ["bs_8.json"]
    assert graphs["launches"].to_list() == [3]
    assert kernels["operation"].to_list()[:2] == ["mm", "silu"]
    assert "(" not in kernels["input_dims"][0]
    searched = filed("graphs", analysis=with_captures, graphs_search="silu")
    assert set(searched.dataframe[1].value["operation"]) == {"silu"}
    nothing = filed("graphs", analysis=with_captures, graphs_search="no such")
    assert nothing.info[0].value.startswith("No event matches")


def test_graphs_without_captures_tell_what_to_record(filed: Draw, without: str) -> None:
    page = filed("graphs", analysis=without)
    assert "With a captured call" not in metrics(page)
    assert "matched_count" not in page.dataframe[0].value
    assert page.dataframe[1].value["mean_us"].notna().all()
    assert "torch.cuda.graph" in page.info[0].value
    assert page.dataframe[0].value["reason"].to_list() == ["no capture was given"]


@pytest.mark.parametrize("name", ["serving", "layers", "graphs"])
def test_a_trace_of_training_has_no_inference(filed: Draw, sample_id: str, name: str) -> None:
    page = filed(name, analysis=sample_id)
    assert not page.exception
    assert page.info[0].value.startswith("No inference engine marks steps in this trace")


def test_findings_of_inference_have_a_page(registered: Draw, without: str, sample_id: str) -> None:
    page = registered("inference", analysis=without)
    assert {"Step time", "Tokens/s"} <= metrics(page).keys()
    assert not page.exception
    titles = " ".join(card.label for card in page.expander)
    assert "Shapes missing: 100.0% of the GPU time is replayed from graphs" in titles
    assert "Layer 9 of decode takes longer than the others" in titles
    assert "no steps of inference" in registered("inference", analysis=sample_id).info[0].value


def test_compare_matches_steps_of_equal_load(tmp_path: Path, filed: Draw) -> None:
    name = "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32785sqsq32sqsk32785)"
    ids = []
    for us in (100, 150):
        builder = trace("AMD Instinct MI300X").annotation(name, us=50).child("aten::mm")
        path = builder.launches("Cijk_gemm", us=us).up(2).write(tmp_path / f"step-{us}.json")
        ids.append(submit(Submission(path)).id)
    page = filed("compare", analysis=ids[0], reference=ids[1])
    assert not page.exception
    reported = " ".join(info.value for info in page.info)
    assert "decode at equal load (1 pair of 1 and 1 steps)" in reported
    assert "33.3% shorter" in reported
