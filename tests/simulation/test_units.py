"""Gains of small traces, to the nanosecond, derived by hand."""

import pytest

from jarvis.changes import Fuse, ScaleHost, Work
from jarvis.core.errors import ChangeError
from tests.simulation.tiny import US, Replay, Tiny, host, kernels, launches


def host_bound() -> Tiny:
    return kernels(launches(0, 100, 200, 300), (10, 110, 210, 310), 10)


def test_1_a_step_that_the_host_sets(replay: Replay) -> None:
    r = replay(host_bound().op("op", 0, 320))
    assert r.step_us == 320
    assert r.gain_us(r.scaled(0)) == 0
    assert r.gain_us(r.scaled(2)) == -10
    assert r.gain_us(r.scaled(9)) == -80
    assert r.gain_us(r.scaled(20)) == -493
    assert r.gain_us(host((110, 190))) == 80


def test_2_a_step_that_the_gpu_sets(replay: Replay) -> None:
    r = replay(kernels(launches(0, 10, 20, 30), (10, 111, 212, 313), 100).op("op", 0, 36))
    assert r.step_us == 413
    assert r.gain_us(r.scaled(0.5)) == 200
    assert r.gain_us(r.scaled(0)) == 373
    assert r.gain_us(r.scaled(0, "k0")) == 91
    assert r.gain_us(host((0, 36))) == 0


def waits_that_does_not_bind() -> Tiny:
    tiny = launches(0).call("Record", 6, 1).call("Wait", 8, 1).call("L", 100)
    return tiny.kernel("a", 10, 20).kernel("b", 110, 50, stream=8).op("op", 0, 106)


def test_3_a_wait_that_does_not_bind(replay: Replay) -> None:
    r = replay(waits_that_does_not_bind())
    assert r.step_us == 160
    assert r.gain_us(r.scaled(0, "a")) == 0
    assert r.gain_us(r.scaled(4, "a")) == 0
    assert r.gain_us(r.scaled(6, "a")) == -21
    assert r.gain_us(r.scaled(0.5, "b")) == 25


def synchronized() -> Tiny:
    tiny = launches(0).call("DeviceSync", 20, 95).call("L", 150)
    return tiny.kernel("a", 10, 100).kernel("b", 160, 50).op("op", 0, 156)


def test_4_a_synchronization_in_the_middle(replay: Replay) -> None:
    r = replay(synchronized())
    assert r.step_us == 210
    assert r.gain_us(r.scaled(0.5, "a")) == 50
    assert r.gain_us(r.scaled(0, "a")) == 93
    assert r.gain_us(r.scaled(0.5, "b")) == 25
    assert r.gain_us(r.scaled(0.5, "a", "b")) == 75


def test_5_a_copy_that_blocks(replay: Replay) -> None:
    tiny = launches(0).call("Memcpy", 10, 115).call("L", 140)
    tiny.kernel("a", 10, 100).kernel("copy", 111, 10).kernel("b", 150, 30).op("op", 0, 145)
    r = replay(tiny)
    assert r.step_us == 180
    assert r.gain_us(r.scaled(0.5, "a")) == 50
    assert r.gain_us(r.scaled(0, "copy")) == 10


def test_6_a_graph_launch(replay: Replay) -> None:
    tiny = Tiny().call("G", 0, 20).op("op", 0, 20)
    for number, at in enumerate((30, 51, 72, 93, 114)):
        tiny.kernel(f"g{number}", at, 20, by=0)
    r = replay(tiny)
    assert r.step_us == 134
    assert r.gain_us(r.scaled(0.5)) == 50
    assert r.gain_us(r.scaled(0, "g2")) == 20


@pytest.mark.parametrize("is_recorded", [False, True])
def test_7_a_collective_beside_computation(replay: Replay, is_recorded: bool) -> None:
    tiny = launches(0).call("Record", 6, 1).call("Wait", 8, 1).call("L", 10).call("L", 20)
    tiny.call("Record", 26, 1).call("Wait", 28, 1).call("L", 30)
    tiny.kernel("a", 10, 50).kernel("nccl", 61, 100, stream=20).kernel("b", 61, 60, by=2)
    tiny.kernel("c", 162, 20).op("op", 0, 35)
    if is_recorded:
        for wait, record, stream, awaited in ((3, 2, 20, 7), (7, 6, 7, 20)):
            tiny.sync(
                correlation=wait,
                stream=stream,
                wait_on_stream=awaited,
                wait_on_cuda_event_record_corr_id=record,
            )
    r = replay(tiny)
    assert r.step_us == 182
    assert r.gain_us(r.scaled(0.5, "nccl")) == 40
    assert r.gain_us(r.scaled(0, "nccl")) == 40
    assert r.gain_us(r.scaled(0, "b")) == 0
    assert r.gain_us(r.scaled(0.5, "nccl", "b")) == 50
    assert r.simulation.graph.counts.waits_by_nearness == 0


def test_8_a_loader_before_the_step(replay: Replay) -> None:
    r = replay(launches(500).kernel("a", 510, 100).annotation("loader", 0, 450))
    assert r.step_us == 610
    assert r.gain_us(host((0, 450))) == 450
    assert r.gain_us(host((50, 450))) == 400
    assert r.gain_us(r.scaled(0, "a")) == 100
    assert r.gain_us(host((0, 450)), r.scaled(0.5, "a")) == 500


def test_9_work_without_a_launch(replay: Replay) -> None:
    tiny = launches(0, 100).kernel("a", 10, 10).kernel("u", 50, 10, by=None)
    r = replay(tiny.kernel("b", 110, 10, by=1).op("op", 0, 105))
    assert r.step_us == 120
    assert r.gain_us(r.scaled(0, "a")) == 0
    assert r.gain_us(r.scaled(0, "u")) == 0
    assert r.gain_us(r.scaled(10, "u")) == -41
    assert r.gain_us(r.scaled(0, "b")) == 10


def test_10_threads_that_take_turns(replay: Replay) -> None:
    tiny = launches(0).call("L", 50, tid=2).call("L", 100)
    kernels(tiny, (10, 60, 110), 5)
    r = replay(tiny.op("a", 0, 20).op("b", 40, 70, tid=2).op("c", 90, 110))
    assert r.step_us == 115
    assert r.gain_us(host((56, 70), thread=1)) == 14
    assert r.gain_us(r.scaled(0)) == 5
    assert r.gain_us(r.scaled(20, "k1")) == -51


def test_11_threads_that_run_at_the_same_time(replay: Replay) -> None:
    tiny = launches(0).call("L", 10, tid=2).call("L", 90, tid=2).call("L", 100)
    tiny.kernel("k0", 10, 5).kernel("k1", 20, 5, stream=8).kernel("k2", 100, 5, stream=8)
    r = replay(tiny.kernel("k3", 110, 5).op("x", 0, 110).op("y", 5, 100, tid=2))
    assert r.step_us == 115
    assert r.gain_us(host((16, 90), thread=1)) == 0
    assert r.gain_us(host((6, 99))) == 10
    both = (*host((6, 99)).spans, *host((16, 90), thread=1).spans)
    assert r.gain_us(ScaleHost(spans=both, factor=0)) == 84


def test_12_a_full_launch_queue(replay: Replay) -> None:
    tiny, start = Tiny(), 0.0
    begins = [10 + 101 * i for i in range(600)]
    for i in range(600):
        us = 5.0 if i < 300 else max(5.0, begins[i - 300] - start)
        tiny.call("L", start, us)
        start += us + 1
    r = replay(kernels(tiny, begins, 100).op("op", 0, start))
    assert r.step_us == 60_609
    assert r.gain_us(r.scaled(0.5)) == 30_000
    assert r.gain_us(r.scaled(0)) == 30_399


def test_13_three_steps(replay: Replay) -> None:
    tiny = Tiny()
    for step, start in enumerate((0, 200, 400)):
        tiny.annotation(f"ProfilerStep#{step}", start, start + 200)
        tiny.call("L", start + 10).call("DeviceSync", start + 20, 105)
        tiny.kernel(f"k{step}", start + 20, 100)
    r = replay(tiny)
    assert r.step_us == 600
    assert r.gain_us(r.scaled(0.5)) == 150
    assert r.gain_us(r.scaled(0, "k0")) == 100
    assert r.gain_us(host((126, 200))) == 74


def test_14_no_correlation(replay: Replay) -> None:
    tiny = launches(0, 20).kernel("a", 10, 50, by=None).kernel("b", 61, 50, by=None)
    r = replay(tiny)
    assert r.step_us == 111
    assert r.gain_us(r.scaled(0.5, "a")) == 25
    assert r.gain_us(r.scaled(0)) == 86


def test_15_no_durations(replay: Replay) -> None:
    tiny = Tiny().call("L", 0, 0).call("L", 0, 0)
    r = replay(tiny.kernel("a", 0, 0).kernel("b", 0, 0))
    assert r.step_us == 0
    assert r.gain_us(r.scaled(0)) == 0


def test_16_two_gpus(replay: Replay) -> None:
    tiny = launches(0, 10).kernel("a", 10, 100).kernel("b", 20, 200, device=1)
    r = replay(tiny)
    assert r.step_us == 220
    assert r.gain_us(r.scaled(0, "a")) == 0
    assert r.gain_us(r.scaled(0.5, "b")) == 100
    assert r.gain_us(r.scaled(0.5)) == 100


def test_17_gpu_events_only(replay: Replay) -> None:
    tiny = Tiny().kernel("a", 0, 100, by=None).kernel("b", 150, 100, by=None)
    r = replay(tiny)
    assert r.step_us == 250
    assert r.gain_us(r.scaled(0.5, "a")) == 50
    assert r.gain_us(r.scaled(0)) == 200


def test_18_a_wait_removed(replay: Replay) -> None:
    r = replay(synchronized())
    removed = r.without_wait("DeviceSync@20")
    assert r.gain_us(removed) == 49
    assert r.gain_us(removed, r.scaled(0.5, "a")) == 93
    assert r.gain_us(removed, host((115, 150))) == 49


def test_19_one_graph_launch(replay: Replay) -> None:
    r = replay(host_bound().op("op", 0, 305))
    merged = r.merged("L@0", "L@300")
    assert r.step_us == 320
    assert r.gain_us(merged) == 267
    assert r.gain_us(merged, r.scaled(0.5)) == 287


def test_19_a_graph_cannot_contain_a_wait(replay: Replay) -> None:
    r = replay(synchronized())
    with pytest.raises(ChangeError, match="waits for GPU work"):
        r.gain_us(r.merged("L@0", "L@150"))


def test_20_fused_kernels(replay: Replay) -> None:
    r = replay(kernels(launches(0, 10, 20), (10, 111, 212), 100))
    assert r.step_us == 312
    uids = tuple(r.tiny.uids[name] for name in ("k0", "k1", "k2"))
    assert r.gain_us(Fuse(uids=uids, duration_ns=50 * US)) == 252


def test_21_how_much_slower_without_moving_the_step(replay: Replay) -> None:
    r = replay(waits_that_does_not_bind())
    assert r.simulation.slowdown(Work(uids=(r.tiny.uids["a"],))) == pytest.approx(4.95, rel=0.05)
    assert r.simulation.slowdown(Work(uids=(r.tiny.uids["b"],))) < 1.05


def test_22_an_operator_at_half(replay: Replay) -> None:
    tiny = kernels(launches(0, 200), (10, 210), 10).op("op1", 5, 100).op("op2", 100, 210)
    r = replay(tiny)
    assert r.step_us == 220
    assert r.gain_us(host((5, 100), factor=0.5)) == 47.5
    assert r.gain_us(host((5, 100), (20, 60))) == 95


def test_23_clocks_that_differ(replay: Replay) -> None:
    r = replay(launches(20, 100).kernel("a", 15, 10).kernel("b", 110, 10).op("op", 0, 106))
    assert r.step_us == 120
    assert r.gain_us(r.scaled(0, "a")) == 0
    assert r.gain_us(r.scaled(0, "b")) == 10
    assert r.simulation.graph.counts.dropped_launches == 1


def test_24_a_start_that_nothing_explains(replay: Replay) -> None:
    tiny = Tiny().call("G", 0, 20).kernel("g0", 1000, 20, by=0).kernel("g1", 1021, 20, by=0)
    r = replay(tiny)
    assert r.step_us == 1_041
    assert r.gain_us(r.scaled(0.5)) == 20


def test_25_nested_calls(replay: Replay) -> None:
    tiny = Tiny().call("L", 0, 30).call("Inner", 10, 5).call("L", 50)
    r = replay(tiny.kernel("a", 25, 10).kernel("b", 60, 10).op("op", 0, 56))
    assert r.step_us == 70
    assert r.gain_us(r.scaled(0)) == 10


def test_27_events_of_the_host_alone(replay: Replay) -> None:
    r = replay(Tiny().call("Record", 0, 10).call("Record", 50, 10).op("op", 0, 60))
    assert r.step_us == 60
    assert r.gain_us(host((10, 50))) == 40


def test_host_time_on_the_path_by_cause(replay: Replay) -> None:
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    tiny = Tiny().annotation(loader, 0, 450).op("aten::mm", 460, 506).call("L", 500)
    r = replay(tiny.kernel("a", 510, 100))
    parts = {part.name: part.ns / US for part in r.simulation.path_parts(r.simulation.recorded)}
    assert sum(parts.values()) == r.step_us == 610
    assert parts["data loading"] == 450
    assert parts["operators"] == 40
    assert parts["host work"] == 10
    assert parts["a"] == 100
