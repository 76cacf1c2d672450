"""The what-if page: composing changes, their link, and what cannot be simulated."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from streamlit.testing.v1 import AppTest

from jarvis.core.errors import ChangeError
from jarvis.dashboard.pages.what_if.critical_path import path_rows
from jarvis.dashboard.pages.what_if.suggestions import own_time
from jarvis.pipeline.simulated_steps import PathShare, simulated
from jarvis.reports.uncertainty import uncertainty
from jarvis.run import Run
from jarvis.server.storage.catalog import analysis_root
from jarvis.server.submission import Submission
from jarvis.simulation.path import UNEXPLAINED
from jarvis.simulation.quality import Stall
from jarvis.text.format import MINUS, microseconds, milliseconds
from tests.analyses.rows import table
from tests.builders import trace
from tests.dashboard.conftest import Draw, stored_in
from tests.dashboard.copied import copied_parameters

FASTER, FUSED = "scale=compute:0.1", "merge-launches"
ADD, SUBMIT, TEXT = "_what_if_add", "_what_if_submit", "_what_if_text"
KIND = "_what_if_kind"

Variant = Callable[[dict[str, Any] | None], str]


@pytest.fixture(scope="module")
def run_id(home: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the id of an analysis whose kernels are longer than the gaps between launches."""
    built = trace("NVIDIA H200")
    for number in range(4):
        built.python("train.py(3): step", us=40).child("aten::mm", [[64, 64], [64, 64]])
        built.launches(f"gemm_kernel_{number}", us=100).up(2)
    path = built.write(tmp_path_factory.mktemp("what_if") / "chain.json")
    return stored_in(home, Submission(path))


@pytest.fixture
def run(run_id: str) -> Run:
    return Run.load(analysis_root(run_id))


@pytest.fixture
def variant(run_id: str, request: pytest.FixtureRequest) -> Variant:
    """Return a function that stores the analysis with another ``simulation`` in its manifest."""

    def stored(simulation: dict[str, Any] | None) -> str:
        source = analysis_root(run_id)
        other = sha256(request.node.name.encode()).hexdigest()[:12]
        place = source.parent / other
        shutil.copytree(source, place)
        request.addfinalizer(lambda: shutil.rmtree(place))
        manifest = json.loads((place / "manifest.json").read_text())
        manifest["analysis_id"] = other
        manifest["simulation"] = simulation and manifest["simulation"] | simulation
        (place / "manifest.json").write_text(json.dumps(manifest))
        return other

    return stored


def opened(filed: Draw, run_id: str, *changes: str) -> AppTest:
    page = filed("what_if", analysis=run_id, **({"change": list(changes)} if changes else {}))
    assert not page.exception
    return page


def listed(page: AppTest) -> list[str]:
    found = page.query_params.get("change", [])  # a text if there is one
    return [found] if isinstance(found, str) else list(found)


def in_link(page: AppTest) -> list[str]:
    return copied_parameters(page).get("change", [])


def shown(page: AppTest) -> str:
    return "\n".join(str(e.value) for kind in (page.markdown, page.caption) for e in kind)


def typed(page: AppTest, text: str) -> AppTest:
    page.text_input(key=TEXT).set_value(text)
    return page.button(key=SUBMIT).click().run()


def test_changes_are_composed_simulated_together_and_removed(
    filed: Draw, run_id: str, run: Run
) -> None:
    page = opened(filed, run_id)
    assert f"Step now {milliseconds(simulated(run, []).step_ms.recorded)}" in shown(page)
    page = typed(page, FASTER)
    assert listed(page) == [FASTER]
    assert page.text_input(key=TEXT).value == ""
    assert simulated(run, [FASTER]).headline.removesuffix(".") in shown(page)
    page.segmented_control(key=KIND).set_value("Launches").run()
    page.button(key=ADD).click().run()
    both = simulated(run, [FASTER, FUSED])
    assert listed(page) == in_link(page) == [FASTER, FUSED]
    assert both.headline.removesuffix(".") in shown(page)
    assert both.saved_ms > max(change.saved_ms for change in both.changes) > 0
    page.button(key="_what_if_remove_0").click().run()
    assert listed(page) == [FUSED]
    page.button(key="_what_if_clear").click().run()
    assert listed(page) == in_link(page) == []


def test_a_link_opens_its_changes_and_a_number_of_the_list_changes_it(
    filed: Draw, run_id: str, run: Run
) -> None:
    page = opened(filed, run_id, FASTER, FUSED)
    assert in_link(page) == [FASTER, FUSED]
    page.number_input(key="_what_if_number_0").set_value(0.25).run()
    assert listed(page) == ["scale=compute:0.25", FUSED]
    assert simulated(run, listed(page)).headline.removesuffix(".") in shown(page)


def test_every_suggestion_can_be_simulated(filed: Draw, run_id: str, run: Run) -> None:
    page = opened(filed, run_id)
    for kind in page.segmented_control(key=KIND).options:
        page.segmented_control(key=KIND).set_value(kind).run()
        page.button(key=ADD).click().run()
        assert not page.error
    assert simulated(run, listed(page)).changes
    assert {change.partition("=")[0] for change in listed(page)} >= {"scale", "host", FUSED}


def test_the_list_is_there_after_a_visit_to_another_page(filed: Draw, run_id: str) -> None:
    page = opened(filed, run_id, FASTER)
    page.query_params.clear()
    page = page.switch_page("../../../pages/hardware.py").run()
    page.query_params.clear()
    page = page.switch_page("../../../pages/what_if.py").run()
    assert listed(page) == [FASTER]


def test_a_bad_change_is_explained_and_stays_in_its_field(
    filed: Draw, run_id: str, run: Run
) -> None:
    page = typed(opened(filed, run_id, FASTER), "scale=comptue:0.5")
    with pytest.raises(ChangeError) as reason:
        simulated(run, ["scale=comptue:0.5"])
    assert [error.value.replace("`", "") for error in page.error] == [str(reason.value)]
    assert page.text_input(key=TEXT).value == "scale=comptue:0.5"
    assert listed(page) == [FASTER]
    assert not typed(page, "scale=compute:0.2").error


def test_a_bad_change_of_a_link_does_not_hide_the_others(
    filed: Draw, run_id: str, run: Run
) -> None:
    page = opened(filed, run_id, "host=nothing:0", FASTER)
    assert ["No operator" in error.value for error in page.error] == [True]
    assert simulated(run, [FASTER]).headline.removesuffix(".") in shown(page)
    assert "Not included: 1 change that cannot be simulated" in shown(page)


def test_a_run_from_before_simulations_says_what_to_do(filed: Draw, variant: Variant) -> None:
    page = opened(filed, variant(None), FASTER)
    assert ["analyze the trace again" in note.value for note in page.info] == [True]
    assert not page.error
    assert in_link(page) == [FASTER]


def test_a_step_that_is_not_simulated_has_its_reason(filed: Draw, variant: Variant) -> None:
    quality = {"grade": "not simulated", "reason": "41% of it is in no recorded event"}
    page = opened(filed, variant({"quality": quality}))
    assert next(note.value for note in page.info).startswith(
        "Step time not simulated: 41% of it is in no recorded event."
    )


def test_approximate_figures_say_so_and_name_stalls(
    filed: Draw, variant: Variant, run: Run
) -> None:
    kernel = run.table("gpu_work").row(0, named=True)
    stalls = [{"uid": kernel["uid"], "ns": 2_500_000}]
    quality = {"grade": "fair", "unexplained_pct": 3.2, "inferred_pct": 24.9, "stalls": stalls}
    text = shown(opened(filed, variant({"quality": quality}), FASTER))
    assert f"### Step about {MINUS}" in text
    assert "of the critical path of the recording, 3.2% is in no recorded event" in text
    assert "the cause of 24.9% is inferred" in text
    assert f"2.50 ms before `{kernel['name']}` are in no recorded event" in text


def test_stalls_before_calls_of_one_name_are_one_sentence(run: Run, variant: Variant) -> None:
    slices = run.table("host_slices").group_by("name", maintain_order=True).agg("uid")
    several = slices.filter(pl.col("uid").list.len() > 1).row(0, named=True)
    stalls = [{"uid": uid, "ns": 2_500_000} for uid in several["uid"][:2]]
    quality = {"grade": "fair", "stalls": stalls}
    expected = (
        f"Besides, 5.00 ms before 2 calls of `{several['name']}` are in no recorded event; they "
        "are taken as given."
    )
    assert uncertainty(Run.load(analysis_root(variant({"quality": quality})))) == expected


def test_a_stall_in_a_recorded_call_says_what_is_not_recorded(run: Run, variant: Variant) -> None:
    uid = run.table("gpu_work")["uid"][0]
    quality = {"grade": "fair", "stalls": [{"uid": uid, "ns": 2_500_000}]}
    stalled = Run.load(analysis_root(variant({"quality": quality})))
    call = {"next_uid": uid, "host_call": "hipMemcpyWithStream", "host_call_us": 2_400.0}
    why = uncertainty(stalled.with_tables({"idle_gaps": table("idle_gaps", call)}))
    assert why is not None
    assert why.endswith(
        "are taken as given: for most of them the host is in `hipMemcpyWithStream`, but what the "
        "GPU does meanwhile is not recorded."
    )


def test_the_bound_of_kernel_work_is_one_line(filed: Draw, run_id: str, run: Run) -> None:
    floor = simulated(run, ["scale=compute:0"])
    assert floor.saved_ms > 0
    line = f"took no time, the step would take {milliseconds(floor.step_ms.simulated)}"
    assert line in shown(opened(filed, run_id))


def test_words_constants_and_grade_are_explained(filed: Draw, run_id: str, run: Run) -> None:
    page = filed("what_if", analysis=run_id, what_if_definitions="true")
    assert not page.exception
    output = "\n".join(m.value for m in page.markdown)
    assert "**Step time saved**: the recorded step minus the replayed one." in output
    info = run.manifest.simulation
    assert info is not None
    assert f"{microseconds(info.constants.launch / 1e3)} from a launch call" in output
    assert f"Grade: {info.quality.grade.value}." in output


def test_the_parts_of_both_paths_add_up(run: Run) -> None:
    paths = {"now": simulated(run, []), "simulated": simulated(run, [FASTER])}
    rows = path_rows(run, paths)
    for when, found in paths.items():
        own = rows.filter(pl.col("when") == when)
        assert own["pct"].sum() == pytest.approx(100, abs=0.1)
        assert own["time_ms"].sum() == pytest.approx(found.step_ms.simulated, rel=1e-3)
    assert rows["part"].n_unique() * 2 == rows.height


def test_the_critical_path_is_drawn_without_stalls(run: Run) -> None:
    found = simulated(run, [])
    stalled = (*found.critical_path, PathShare(name=UNEXPLAINED, ms=2.5, pct=50.0))
    info = run.manifest.simulation
    assert info is not None
    quality = info.quality.model_copy(update={"stalls": (Stall(uid=0, ns=2_500_000),)})
    simulation = info.model_copy(update={"quality": quality})
    manifest = run.manifest.model_copy(update={"simulation": simulation})
    rows = path_rows(
        replace(run, manifest=manifest),
        {"now": found.model_copy(update={"critical_path": stalled})},
    )
    assert UNEXPLAINED.capitalize() not in rows["part"]
    assert rows["pct"].sum() == pytest.approx(100)


def test_own_time_leaves_out_spans_inside() -> None:
    spans = pl.DataFrame(
        {
            "name": ["inner", "outer", "deep", "other"],
            "thread": [1, 1, 1, 2],
            "start_ns": [10, 0, 20, 5],
            "end_ns": [50, 100, 30, 9],
        }
    )
    found = own_time(spans)
    assert dict(zip(found["name"], found["own_ns"], strict=True)) == {
        "outer": 60,
        "inner": 30,
        "deep": 10,
        "other": 4,
    }


def test_one_rank_shows_both_ends(sample_run: Run) -> None:
    """Collectives of the sample last as recorded, or as long as the fastest of their kind."""
    found = simulated(sample_run, ["scale=gemm:0.5"])
    assert found.saved_up_to_ms is not None
    assert found.saved_up_to_ms > found.saved_ms > 0
    assert f"Up to {MINUS}{milliseconds(found.saved_up_to_ms)} if collectives" in found.small_print
    fastest = simulated(sample_run, ["scale=gemm:0.5", "collective=*:transfer"])
    assert fastest.saved_ms == found.saved_up_to_ms
    assert "Up to" not in fastest.small_print
    assert simulated(sample_run, []).saved_up_to_ms is None
