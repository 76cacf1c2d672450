"""Step time on the pages of categories: at the target of the slider, of each row, and its room."""

import json
import shutil
from pathlib import Path

import polars as pl
import pytest
from streamlit.testing.v1 import AppTest

from jarvis import impact, savings
from jarvis.changes import AtRoofline, Work
from jarvis.core.workspace import RunPaths
from jarvis.dashboard.widgets.room import room
from jarvis.pipeline import simulated
from jarvis.run import Run, category_table
from jarvis.server.storage.catalog import analysis_root
from jarvis.server.submission import Submission
from jarvis.simulation.simulation import MAX_SLOWDOWN
from jarvis.text.format import MINUS, milliseconds
from tests.builders import PID, trace
from tests.dashboard.conftest import Draw, stored_in

COLUMNS = ["saved_step_us", "path_us"]


@pytest.fixture(scope="module")
def run_id(home: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the id of an analysis of products that are longer than the gaps between launches."""
    built = trace("NVIDIA H200")
    for size in (512, 640, 768):
        built.op("aten::mm", [[size, size], [size, size]]).launches("gemm_kernel", us=100)
    path = built.write(tmp_path_factory.mktemp("step_time") / "products.json")
    return stored_in(home, Submission(path))


@pytest.fixture
def run(run_id: str) -> Run:
    return Run.load(analysis_root(run_id))


def rows(page: AppTest) -> pl.DataFrame:
    assert not page.exception
    return pl.from_pandas(next(d for d in page.dataframe if "state" in d.value.columns).value)


def lines(page: AppTest) -> str:
    return "\n".join(element.value for element in page.markdown)


def test_the_step_time_follows_the_slider(registered: Draw, run_id: str, run: Run) -> None:
    operations = run.category_operations("gemm")
    uid = operations["uid"][0]
    page = registered("gemm", analysis=run_id, gemm_op=str(uid))
    for target in (int(run.target_pct), 40):
        page.slider(key="target").set_value(target).run()
        simulation, shown = run.simulation, rows(page)
        gains_us = [_gain_us(run, (each,), target) for each in operations["uid"]]
        assert shown["saved_step_us"].to_list() == pytest.approx(gains_us)
        kernel_us = operations.select(saved=impact.saved_us(target))["saved"]
        assert shown["saved_us"].to_list() == pytest.approx(kernel_us.to_list())
        assert 0 < sum(gains_us) < kernel_us.sum()  # no kernel gets shorter than 2 µs
        hint = "step saving 0: the steps do not wait for that operation"
        assert any(hint in c.value for c in page.caption) == (min(gains_us) == 0)
        change = AtRoofline(work=Work(operations=tuple(operations["uid"])), target_pct=target)
        after, now = simulation.replay([change]).step_ns, simulation.recorded.step_ns
        saved = f"{MINUS}{milliseconds((now - after) / 1e6)}"
        times = f"{milliseconds(after / 1e6)} instead of {milliseconds(now / 1e6)} ({saved})"
        assert f"At {target}% the step takes {times}" in lines(page)
    assert "On the critical path: 0.100 ms of 0.100 ms kernel time" in lines(page)
    assert f"Room: {room(simulation.slowdown(Work(operations=(uid,))))}" in lines(page)


def test_a_marked_step_is_not_longer_than_on_other_pages(
    registered: Draw, filed: Draw, home: Path, tmp_path: Path
) -> None:
    """Its GPU work goes on after the mark, so the replay lasts longer."""
    built = trace("NVIDIA H200").waits(400)
    mark = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": PID, "tid": 1}
    built.events.append({**mark, "ts": 990, "dur": 450, "args": {}})
    for size in (512, 640, 768):
        built.op("aten::mm", [[size, size], [size, size]]).launches("gemm_kernel", us=100)
    run_id = stored_in(home, Submission(built.write(tmp_path / "tail.json")))
    run = Run.load(analysis_root(run_id))
    marked_ms = savings.whole_ms(run.manifest.totals)
    recorded = run.simulation.recorded
    assert marked_ms == pytest.approx(recorded.step_ns / 1e6)
    assert recorded.tail_ns / 1e6 == pytest.approx(recorded.window_ns / 1e6 - marked_ms) != 0
    assert f"instead of {milliseconds(marked_ms)}" in lines(registered("gemm", analysis=run_id))
    page = filed("what_if", analysis=run_id)
    assert f"Step now {milliseconds(marked_ms)}" in lines(page)
    name = "Step with its GPU work after the mark"
    assert f"{name}: {milliseconds(recorded.window_ns / 1e6)}" in lines(page)
    floor = simulated(run, ["scale=compute:0"])
    assert floor.saved_ms == pytest.approx(run.simulation.compute_saved_ms)


def _gain_us(run: Run, uids: tuple[int, ...], target_pct: float) -> float:
    change = AtRoofline(work=Work(operations=uids), target_pct=target_pct)
    return run.simulation.steps_saved_ms([change]) * 1e3


def test_a_run_of_an_earlier_release_has_kernel_time(
    registered: Draw, run_id: str, home: Path
) -> None:
    root = home / "analyses" / "earlier-release"
    shutil.copytree(analysis_root(run_id), root)
    paths = RunPaths(root)
    for name in ("operations", category_table("gemm")):
        pl.read_parquet(paths.table(name)).drop(COLUMNS).write_parquet(paths.table(name))
    manifest = json.loads(paths.manifest.read_bytes())
    paths.manifest.write_text(json.dumps(manifest | {"simulation": None}))
    uid = Run.load(root).category_operations("gemm")["uid"][0]
    page = registered("gemm", analysis=root.name, gemm_op=str(uid), target="60")
    assert "saved_step_us" not in rows(page).columns
    assert rows(page)["saved_us"].sum() > 0
    assert "Step time not simulated: the run is from before step times" in lines(page)
    assert "In the step" not in lines(page)


@pytest.mark.parametrize(
    ("slowdown", "words"),
    [
        (1.0, "any longer, it lengthens the step"),
        (2.43, "could take 2.4x as long without lengthening the step"),
        (MAX_SLOWDOWN, "never in this trace: even 64x as long, it does not lengthen the step"),
    ],
)
def test_room_in_words(slowdown: float, words: str) -> None:
    assert room(slowdown) == words
