"""What a simulated host or stream waits for although no call says so, to the nanosecond."""

import pytest

from jarvis.changes import RemoveWait
from jarvis.simulation.graph import What
from tests.simulation.tiny import US, Replay, Replays, Tiny, host, launches


def queried(*queries: float) -> Tiny:
    """Return two launches with queries of 2 µs between them, the last one after the first work."""
    tiny = launches(0)
    for at in queries:
        tiny.call("Query", at, 2)
    return tiny.call("L", 120).kernel("a", 10, 100).kernel("b", 130, 20).op("op", 0, 125)


def test_a_run_of_queries_waits(replay: Replay) -> None:
    r = replay(queried(20, 50, 80, 112))
    assert r.step_us == 150
    assert r.gain_us(r.scaled(0.5, "a")) == 50
    assert r.gain_us(r.scaled(0, "a")) == 92


@pytest.mark.parametrize("queries", [(20, 112), (70, 90, 112)])
def test_few_queries_or_short_runs_do_not_wait(replay: Replay, queries: tuple[float, ...]) -> None:
    r = replay(queried(*queries))
    assert r.step_us == 150
    assert r.gain_us(r.scaled(0, "a")) == 0


def test_queries_with_another_call_between_them_are_no_run(replay: Replay) -> None:
    tiny = queried(20, 50, 112)
    r = replay(tiny.call("Record", 60, 1))
    assert r.gain_us(r.scaled(0, "a")) == 0


def test_queries_that_return_long_after_the_work_do_not_wait_for_it(replay: Replay) -> None:
    tiny = launches(0).call("Query", 20, 2).call("Query", 50, 2).call("Query", 80, 2)
    r = replay(tiny.call("L", 120).kernel("a", 10, 50).kernel("b", 130, 20).op("op", 0, 125))
    assert r.gain_us(r.scaled(0.5, "a")) == 0


@pytest.mark.parametrize("name", ["Free", "Load"])
def test_a_long_memory_call_that_returns_after_the_work_waits(replay: Replay, name: str) -> None:
    tiny = launches(0).call(name, 20, 95).call("L", 150).kernel("a", 10, 100)
    r = replay(tiny.kernel("b", 160, 50).op("op", 0, 156))
    assert r.step_us == 210
    assert r.gain_us(r.scaled(0.5, "a")) == 50
    assert r.gain_us(r.scaled(0, "a")) == 93


@pytest.mark.parametrize(("at", "us"), [(100, 15), (20, 125)])
def test_a_short_memory_call_or_a_late_one_does_not_wait(
    replay: Replay, at: float, us: float
) -> None:
    tiny = launches(0).call("Free", at, us).call("L", 150).kernel("a", 10, 100)
    r = replay(tiny.kernel("b", 160, 50).op("op", 0, 156))
    assert r.step_us == 210
    assert r.gain_us(r.scaled(0, "a")) == 0


def test_a_start_just_after_work_elsewhere_waits_for_it(replay: Replay) -> None:
    r = replay(launches(0, 10).kernel("a", 10, 100).kernel("b", 111, 20, stream=8).op("op", 0, 16))
    assert r.step_us == 131
    assert r.gain_us(r.scaled(0.5, "a")) == 50
    assert r.simulation.graph.counts.waits_by_nearness == 1
    assert r.quality.inferred_pct == pytest.approx(100 / 131)


def test_a_start_long_after_work_elsewhere_does_not_wait_for_it(replay: Replay) -> None:
    r = replay(launches(0, 10).kernel("a", 10, 100).kernel("b", 145, 20, stream=8).op("op", 0, 16))
    assert r.gain_us(r.scaled(0.5, "a")) == 0
    assert r.simulation.graph.counts.waits_by_nearness == 0


def test_no_work_waits_for_work_that_was_launched_later(replay: Replay) -> None:
    tiny = launches(0, 10).kernel("b", 111, 20, stream=8).kernel("a", 20, 90)
    r = replay(tiny.op("op", 0, 16))
    assert r.gain_us(r.scaled(0.5, "a")) == 0
    assert r.simulation.graph.counts.waits_by_nearness == 0


def test_waits_within_a_graph_are_as_good_as_recorded_ones(replay: Replay) -> None:
    tiny = Tiny().call("G", 0, 20).kernel("a", 30, 20, by=0).kernel("b", 51, 20, stream=8, by=0)
    r = replay(tiny.op("op", 0, 20))
    assert r.step_us == 71
    assert r.gain_us(r.scaled(0.5, "a")) == 10
    assert r.simulation.graph.counts.waits_by_nearness == 0
    assert not r.simulation.graph.inferred.any()


def unlinked(next_launch: float, later_us: float = 0) -> Tiny:
    """Return work ``u`` without a launch, between work launched at 0 and at ``next_launch``.

    ``later_us``: how much later ``u``, what follows and the call before it are.
    """
    tiny = launches(0, next_launch).call("Record", 70 + later_us, 2).kernel("a", 10, 10)
    tiny.kernel("u", 81 + later_us, 10, by=None).kernel("b", 92 + later_us, 10, by=1)
    return tiny.op("op", 0, 80)


def test_work_without_a_launch_was_launched_before_the_next_on_its_stream(replay: Replay) -> None:
    r = replay(unlinked(next_launch=30))
    assert r.step_us == 102
    assert r.gain_us(host((36, 69))) == 0
    assert r.gain_us(host((6, 29))) == 23
    assert r.gain_us(r.scaled(0, "u")) == 10


def test_work_without_a_launch_follows_the_last_call_before_it(replay: Replay) -> None:
    r = replay(unlinked(next_launch=75))
    assert r.step_us == 102
    assert r.gain_us(host((36, 69))) == 33


def named_parts(r: Replays) -> dict[str, float]:
    return {part.name: part.ns / US for part in r.simulation.path_parts(r.simulation.recorded)}


def test_the_path_names_the_work_without_a_launch_that_it_waits_for(replay: Replay) -> None:
    tiny = launches(0, 95).call("DeviceSync", 6, 86).kernel("b", 101, 10, by=1)
    tiny.kernel("early", 0, 40, by=None).kernel("u", 41, 50, by=None).op("op", 0, 96)
    parts = named_parts(replay(tiny))
    assert not any("before GPU work" in name for name in parts)
    assert parts["GPU work without a recorded launch"] >= 80
    (stands_alone,) = (p for p in named_parts(replay(unlinked(next_launch=30))) if "before" in p)
    assert stands_alone == "time before GPU work without a recorded launch"


def test_a_launch_long_before_does_not_explain_work_without_a_launch(replay: Replay) -> None:
    r = replay(unlinked(next_launch=30, later_us=2_000))
    (stall,) = r.quality.stalls
    assert (stall.uid, stall.ns) == (r.tiny.uids["u"], 2_041_000)


def copied(call: str, ends: float | None = None) -> Tiny:
    """Return a wait for ``a``, a copy call of which no copy or one that ``ends`` then is recorded,
    and a launch of ``b``."""
    tiny = launches(0).call("DeviceSync", 5, 110).call(call, 120, 20).call("L", 145)
    tiny.kernel("a", 10, 100)
    if ends is not None:
        tiny.launches.insert(1, 3)  # its call is the third
        tiny.kernel("copy", ends - 1, 1)
    return tiny.kernel("b", 155, 20).op("op", 0, 152)


@pytest.mark.parametrize("ends", [None, 141])
def test_a_blocking_copy_waits_for_the_work_before_it(replay: Replay, ends: float | None) -> None:
    r = replay(copied("BlockingCopy", ends))
    assert r.step_us == 175
    assert r.gain_us(without_waits(r, "DeviceSync@5")) == 25
    assert r.gain_us(without_waits(r, "DeviceSync@5", "BlockingCopy@120")) > 40


def test_other_copies_do_not_wait(replay: Replay) -> None:
    r = replay(copied("AsyncCopy"))
    assert r.gain_us(without_waits(r, "DeviceSync@5")) == 44


def test_a_blocking_copy_that_returns_long_before_its_copy_does_not_wait(replay: Replay) -> None:
    tiny = launches(0).call("DeviceSync", 5, 110).call("BlockingCopy", 120, 20).call("L", 250)
    tiny.launches.insert(1, 3)
    tiny.kernel("a", 10, 100).kernel("copy", 199, 1).kernel("b", 260, 20).op("op", 0, 256)
    r = replay(tiny)
    assert not r.simulation.index.waiting_calls[_end_of(r, "BlockingCopy@120")]


def test_a_blocking_copy_waits_only_for_the_stream_that_its_thread_uses(replay: Replay) -> None:
    tiny = launches(0, 6).call("DeviceSync", 12, 110).call("BlockingCopy", 125, 20).call("L", 150)
    tiny.kernel("other", 10, 110, stream=8).kernel("a", 20, 20).kernel("b", 160, 20)
    r = replay(tiny.op("op", 0, 157))
    assert r.gain_us(without_waits(r, "DeviceSync@12")) == 60


def test_a_stream_is_waited_for_though_its_work_had_ended(replay: Replay) -> None:
    """The stream is not recorded: the first wait lets all work end before the second one."""
    tiny = launches(0, 6).call("DeviceSync", 12, 110).call("StreamSync", 125, 3).call("L", 130)
    tiny.kernel("other", 10, 20, stream=8).kernel("a", 31, 90).kernel("b", 140, 20, stream=9)
    r = replay(tiny.op("op", 0, 136))
    assert r.step_us == 160
    assert r.gain_us(without_waits(r, "DeviceSync@12")) < 10  # "a" ends at 121
    assert r.gain_us(r.scaled(0.1, "a"), without_waits(r, "DeviceSync@12")) > 80
    assert r.gain_us(without_waits(r, "DeviceSync@12", "StreamSync@125")) == 39


def test_a_thread_waits_only_for_the_stream_that_it_uses(replay: Replay) -> None:
    tiny = launches(0, 6).call("DeviceSync", 12, 110).call("StreamSync", 125, 3).call("L", 130)
    tiny.kernel("other", 10, 110, stream=8).kernel("a", 20, 20).kernel("b", 140, 20)
    r = replay(tiny.op("op", 0, 136))
    assert r.gain_us(without_waits(r, "DeviceSync@12")) > 30  # "other" ends at 120, "a" at 40


def _end_of(r: Replays, call: str) -> int:
    """Return the node in which a call ends."""
    graph = r.simulation.graph
    (node,) = ((graph.uid == r.tiny.uids[call]) & (graph.what == What.CALL_END)).nonzero()[0]
    return int(node)


def without_waits(r: Replays, *calls: str) -> RemoveWait:
    return RemoveWait(calls=tuple(r.tiny.uids[call] for call in calls))
