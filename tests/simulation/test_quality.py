"""How far the simulation of small traces can be trusted, and why not."""

from pathlib import Path

import pytest

from jarvis.simulation.quality import Grade, Stall
from jarvis.simulation.stored import simulation_tables
from tests.simulation.tiny import US, Replay, Tiny, kernels, launches


def test_24_time_before_a_graph_that_nothing_explains_is_a_stall(replay: Replay) -> None:
    tiny = Tiny().call("G", 0, 20).kernel("g0", 1000, 20, by=0).kernel("g1", 1021, 20, by=0)
    r = replay(tiny)
    assert r.quality.grade is Grade.FAIR
    assert r.quality.reason is None
    assert r.quality.stalls == (Stall(uid=tiny.uids["g0"], ns=990 * US),)
    assert r.quality.unexplained_pct == 0


def test_a_recording_that_is_a_stall_is_not_simulated(replay: Replay) -> None:
    r = replay(Tiny().call("G", 0, 20).kernel("g0", 10_000, 20, by=0))
    assert r.quality.grade is Grade.NOT_SIMULATED
    assert r.quality.reason == "100% of it is in no recorded event"


def with_gaps(count: int) -> Tiny:
    """Return ten kernels of 200 µs in a row; the first gaps are of 30 µs, the others of 1 µs."""
    starts = [10.0]
    for gap in range(9):
        starts.append(starts[-1] + 200 + (30 if gap < count else 1))
    return kernels(launches(*range(0, 60, 6)), starts, 200).op("op", 0, 60)


@pytest.mark.parametrize(
    ("count", "grade"), [(0, Grade.GOOD), (3, Grade.FAIR), (9, Grade.NOT_SIMULATED)]
)
def test_the_grade_is_bounded_by_unexplained_time(replay: Replay, count: int, grade: Grade) -> None:
    quality = replay(with_gaps(count)).quality
    window_us = 10 + 10 * 200 + 30 * count + 9 - count
    assert quality.unexplained_pct == pytest.approx(100 * 29 * count / window_us)
    assert quality.grade is grade
    assert not quality.stalls
    expected = "11% of it is in no recorded event" if grade is Grade.NOT_SIMULATED else None
    assert quality.reason == expected


@pytest.mark.parametrize(
    ("at", "grade"), [(40, Grade.GOOD), (200, Grade.FAIR), (400, Grade.NOT_SIMULATED)]
)
def test_the_grade_is_bounded_by_inferred_time(replay: Replay, at: float, grade: Grade) -> None:
    tiny = Tiny().call("Record", 0).kernel("u", at, 1000 - at, by=None)
    quality = replay(tiny.op("op", 0, 10)).quality
    assert quality.inferred_pct == pytest.approx(at / 10)
    assert quality.grade is grade
    expected = (
        "40% of it is work without a recorded launch" if grade is Grade.NOT_SIMULATED else None
    )
    assert quality.reason == expected


@pytest.mark.parametrize(("count", "is_simulated"), [(20, True), (19, False)])
def test_more_than_a_few_kernels_before_their_launch_prevent_a_simulation(
    replay: Replay, count: int, is_simulated: bool
) -> None:
    starts = [100.0 * number for number in range(count)]
    tiny = launches(*starts)
    for number, start in enumerate(starts):
        tiny.kernel(f"k{number}", start + (10 if number else -5), 10)
    quality = replay(tiny.op("op", 0, 100 * count)).quality
    assert (quality.grade is not Grade.NOT_SIMULATED) == is_simulated
    expected = "5.3% of the kernels start before their launch"
    assert quality.reason == (None if is_simulated else expected)


@pytest.mark.parametrize(("stream", "is_simulated"), [(7, True), (8, False)])
def test_the_gpu_alone_is_simulated_on_one_stream(
    replay: Replay, stream: int, is_simulated: bool
) -> None:
    tiny = Tiny().kernel("a", 0, 100, by=None).kernel("b", 101, 100, stream=stream, by=None)
    quality = replay(tiny).quality
    assert quality.grade is (Grade.GOOD if is_simulated else Grade.NOT_SIMULATED)
    expected = "no calls of the host were recorded, and the GPU used several streams"
    assert quality.reason == (None if is_simulated else expected)


def test_27_one_event(replay: Replay) -> None:
    r = replay(Tiny().kernel("a", 20, 100, by=None))
    assert r.step_us == 100
    assert r.gain_us(r.scaled(0.5)) == 50
    assert r.quality.grade is Grade.GOOD


def test_27_the_host_alone(replay: Replay) -> None:
    r = replay(Tiny().call("Record", 0, 10).call("Record", 50, 10).op("op", 0, 60))
    assert r.quality.grade is Grade.GOOD


def test_27_no_calls_and_no_work(tmp_path: Path) -> None:
    tables, info = simulation_tables(Tiny().op("op", 0, 10).read(tmp_path))
    assert not tables
    assert info.quality.grade is Grade.NOT_SIMULATED
    assert info.quality.reason == "the trace has no timed events"


def test_27_no_duration(replay: Replay) -> None:
    quality = replay(Tiny().call("L", 0, 0).kernel("a", 0, 0)).quality
    assert quality.grade is Grade.NOT_SIMULATED
    assert quality.reason == "the recording has no duration"
