"""The step time of single operations: what each gains at a target, and its part of the path."""

from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from jarvis import impact
from jarvis.changes import AtRoofline, Work
from jarvis.core.request import Targets
from jarvis.pipeline import analyze
from jarvis.run import Run
from jarvis.sample import write_sample
from jarvis.schemas import column
from jarvis.simulation.edges import Kind
from jarvis.simulation.graph import What
from jarvis.simulation.of_rows import NEGLIGIBLE_PCT, step_savings_us, with_step_times
from jarvis.simulation.replay import LANES
from jarvis.simulation.simulation import Simulation
from tests.recorded_runs import RecordedRun
from tests.simulation.tiny import Tiny, kernels, launches

TARGET_PCT = 80.0
"""Rows of ``tiny`` reach 50%, so they get shorter by three eighths."""


def step_times(tiny: Tiny, folder: Path) -> dict[str, tuple[float | None, float | None]]:
    """Return the saving of step time and the time on the path of each kernel, in µs."""
    simulation = tiny.simulation(folder)
    rows = with_step_times(simulation.tables["operations"], simulation, Targets(TARGET_PCT))
    return {
        name: (saved_us, path_us)
        for name, saved_us, path_us in rows.select("category", "saved_step_us", "path_us").rows()
    }


def test_where_the_gpu_sets_the_pace_the_step_gains_the_kernel_time(tmp_path: Path) -> None:
    gpu_bound = kernels(launches(0, 10, 20, 30), (10, 111, 212, 313), 100).op("op", 0, 36)
    expected = (37.5, 100.0)
    assert step_times(gpu_bound, tmp_path) == dict.fromkeys(("k0", "k1", "k2", "k3"), expected)


def test_where_the_host_sets_the_pace_the_step_gains_nothing(tmp_path: Path) -> None:
    host_bound = kernels(launches(0, 100, 200, 300), (10, 110, 210, 310), 10).op("op", 0, 330)
    expected = (0.0, 0.0)
    assert step_times(host_bound, tmp_path) == dict.fromkeys(("k0", "k1", "k2", "k3"), expected)


def test_work_that_another_stream_hides_gains_nothing(tmp_path: Path) -> None:
    tiny = launches(0, 10).kernel("short", 10, 80, stream=8).kernel("long", 20, 100)
    found = step_times(tiny.op("op", 0, 16), tmp_path)
    assert found == {"short": (0.0, 0.0), "long": (30.0, 100.0)}


def many_kernels() -> Tiny:
    """Return a trace of kernels of different length; each fourth one runs beside the next one."""
    count = 2 * LANES + 3
    tiny, at = launches(*(10.0 * number for number in range(count))), 10.0
    for number in range(count):
        is_beside = number % 4 == 3
        length = 20.0 + 7 * (number * 5 % 11)
        tiny.kernel(f"k{number}", at, length, stream=8 if is_beside else 7)
        at += 0 if is_beside else length + 1
    return tiny.op("op", 0, 10.0 * count)


@pytest.mark.parametrize("target_pct", [60.0, 80.0, 100.0])
def test_each_row_has_a_replay_of_its_own(tmp_path: Path, target_pct: float) -> None:
    simulation = many_kernels().simulation(tmp_path)
    rows = simulation.tables["operations"]
    saved = in_ns(step_savings_us(rows, simulation, target_pct))
    assert len(set(saved)) > LANES
    assert saved == [replayed_ns(simulation, uid, target_pct) for uid in rows["uid"]]


def in_ns(saved_us: pl.Series) -> list[int]:
    return [round(us * 1e3) for us in saved_us]


def replayed_ns(simulation: Simulation, uid: int, target_pct: float) -> int:
    alone = AtRoofline(work=Work(operations=(uid,)), target_pct=target_pct)
    return round(simulation.steps_saved_ms([alone]) * 1e6)


def assert_replayed(run: Run) -> None:
    """Compare the savings of a run, and its path, with those of single replays."""
    operations, simulation = run.table("operations"), run.simulation
    rows = operations.filter(pl.col("saved_step_us") != 0)
    assert rows.height > 0
    kernel_us = rows.select(impact.saved_us(run.target_pct)).to_series()
    assert (kernel_us - rows["saved_step_us"]).min() > -1e-3 * rows["kernel_count"].max()
    expected = [replayed_ns(simulation, uid, run.target_pct) for uid in rows["uid"]]
    assert in_ns(rows["saved_step_us"]) == expected
    path_us = zip(operations["uid"], operations["path_us"], strict=True)
    assert {uid: round(us * 1e3) for uid, us in path_us if us} == path_ns(run)


def path_ns(run: Run) -> dict[int, int]:
    """Return the time of each operation's GPU events on the recorded path."""
    graph, path = run.simulation.graph, run.simulation.recorded.path
    operation_of = dict(run.table("gpu_work").select("uid", "operation_uid").iter_rows())
    found: Counter[int] = Counter()
    for edge, ns in zip(path.edges.tolist(), path.ns.tolist(), strict=True):
        node = graph.dst[edge]
        if graph.kind[edge] == Kind.DURATION and graph.what[node] == What.GPU_END:
            found[operation_of[int(graph.uid[node])]] += ns
    return {uid: ns for uid, ns in found.items() if uid is not None and ns}


def test_rows_of_marked_steps_gain_what_their_replays_gain(tmp_path: Path) -> None:
    path = write_sample(tmp_path / "trace.json", steps=2, world_size=1, scale="small")
    assert_replayed(analyze(path, output_dir=tmp_path / "run"))


@pytest.mark.parametrize("name", ["mi300-resnet-ddp-checkpoint", "sglang-qwen3-8b-decode"])
def test_rows_of_recorded_traces_gain_what_their_replays_gain(
    recorded_run: RecordedRun, name: str
) -> None:
    assert_replayed(Run.load(recorded_run(name)))


def test_only_judged_rows_have_a_saving(tmp_path: Path) -> None:
    simulation = launches(0).kernel("k0", 10, 100).op("op", 0, 6).simulation(tmp_path)
    row = simulation.tables["operations"]

    def saved_us(efficiency_pct: float | None, bound: str = "compute") -> float | None:
        changed = row.with_columns(
            pct_roofline=pl.lit(efficiency_pct, pl.Float64), bound=pl.lit(bound)
        )
        tables = {**simulation.tables, "operations": changed}
        own = Simulation(simulation.graph, tables)
        saved: float | None = step_savings_us(changed, own, TARGET_PCT).item()
        return saved

    assert saved_us(40) == 50
    assert saved_us(TARGET_PCT) == 0
    assert saved_us(150) == 0
    assert saved_us(None) is None
    assert saved_us(40, "memory only") is None


def test_what_gets_hardly_shorter_is_not_replayed(tmp_path: Path) -> None:
    tiny = launches(0, 10).kernel("k0", 10, 7).kernel("k1", 17, 14_973).op("op", 0, 16)
    saved = step_times(tiny, tmp_path)
    assert saved["k0"] == (None, 0.0)
    least_us = NEGLIGIBLE_PCT / 100 * 14_990
    assert 2.9 < least_us < 3.0
    assert f"{NEGLIGIBLE_PCT:g}%" in column("operations", "saved_step_us").meaning


def test_a_row_with_kernels_of_2_us_gains_no_more_than_its_kernel_saving(tmp_path: Path) -> None:
    simulation = launches(0).kernel("k0", 10, 100).op("op", 0, 6).simulation(tmp_path)
    rows = simulation.tables["operations"].with_columns(kernel_count=40, pct_roofline=1.0)
    tables = {**simulation.tables, "operations": rows}
    saved = step_savings_us(rows, Simulation(simulation.graph, tables), TARGET_PCT)
    assert saved.to_list() == rows.select(impact.saved_us(TARGET_PCT)).to_series().to_list() == [20]


def test_without_a_simulation_nothing_is_known(tmp_path: Path) -> None:
    rows = launches(0).kernel("k0", 10, 100).simulation(tmp_path).tables["operations"]
    stored = rows.with_columns(saved_step_us=pl.lit(1.0), path_us=pl.lit(1.0))
    for table in (rows, stored):
        found = with_step_times(table, None, Targets())
        assert found.columns == [*rows.columns, "saved_step_us", "path_us"]
        assert found["saved_step_us"].to_list() == found["path_us"].to_list() == [None]
        assert found.schema["saved_step_us"] == pl.Float64


def test_only_the_rows_that_get_shorter_by_most_are_replayed(tmp_path: Path) -> None:
    simulation = many_kernels().simulation(tmp_path)
    rows = simulation.tables["operations"]
    every = step_savings_us(rows, simulation, 80.0).to_list()
    some = step_savings_us(rows, simulation, 80.0, 5).to_list()
    replayed = [place for place, saved in enumerate(some) if saved is not None]
    longest = rows.with_row_index("place").sort("kernel_time_us", "uid", descending=[True, False])
    assert replayed == sorted(longest["place"].head(5).to_list())
    assert [some[place] for place in replayed] == [every[place] for place in replayed]
