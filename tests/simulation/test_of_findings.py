"""Step time that findings save: replays of what they propose, alone and together."""

from dataclasses import replace
from pathlib import Path

import pytest

from jarvis import impact, savings
from jarvis.changes import Fuse, RemoveGpu, RemoveWait, ScaleGpu, Work
from jarvis.findings import Finding, OpRef, Priority
from jarvis.perf_report import Totals
from jarvis.perf_report.timeline.step_bounds import StepBounds
from jarvis.simulation.merging import merged_launches
from jarvis.simulation.of_findings import finding_changes
from jarvis.simulation.simulation import Simulation
from tests.analyses.rows import totals
from tests.simulation.test_units import host_bound
from tests.simulation.tiny import Tiny, kernels, launches

BASES = {"compute_ms": 1.0, "total_ms": 1.0}


def finding(tiny: Tiny, *names: str, saved_us: float, check: str = "low_efficiency") -> Finding:
    """Return a finding that saves at most so much kernel time of each kernel named."""
    gain = impact.bounded_impact(1.0, saved_us / 1e3, mid_ms=saved_us / 1e3, **BASES)
    return Finding(
        check=check,
        category="k",
        title=" ".join(names),
        operations=tuple(OpRef(uid=tiny.uids[n], name=n, operation_count=1) for n in names),
        evidence={"kernels": len(names), "instances": 1},
        issue="i",
        algorithmic="a",
        kernel="b",
        priority_local=Priority.HIGH,
        priority=Priority.HIGH,
        impact=gain,
    )


def step_of(simulation: Simulation) -> Totals:
    step_ms = simulation.recorded.window_ns / 1e6
    bounds = StepBounds(
        steps=1,
        start_ns=0,
        end_ns=simulation.recorded.window_ns,
        step_ms=step_ms,
        kernels_ms=0.0,
        idle_ms=step_ms,
        comm_ms=0.0,
        copies_ms=0.0,
    )
    return replace(totals(1.0, idle_ms=0.0), step=bounds)


def saved_us(simulation: Simulation, found: Finding) -> list[float]:
    """Return the low, middle and high step time saved."""
    (result,) = savings.with_step_savings([found], step_of(simulation), None, simulation)
    assert result.impact is not None
    assert result.impact.step_ms is not None
    ends = result.impact.step_ms
    return [round(1e3 * ms, 3) for ms in (ends.low, ends.mid, ends.high)]


def gpu_bound() -> Tiny:
    return kernels(launches(0, 10, 20), (10, 111, 212), 100)


def test_kernels_save_what_the_replayed_step_gains(tmp_path: Path) -> None:
    tiny = gpu_bound().op("op", 0, 25)
    found = finding(tiny, "k1", saved_us=50)
    assert saved_us(tiny.simulation(tmp_path), found) == [0.0, 50.0, 50.0]


def test_kernels_save_nothing_of_a_step_that_the_host_sets(tmp_path: Path) -> None:
    tiny = host_bound().op("op", 0, 320)
    found = finding(tiny, "k1", "k2", saved_us=20)
    assert saved_us(tiny.simulation(tmp_path), found) == [0.0, 0.0, 0.0]


def test_kernels_that_go_take_their_launches_along(tmp_path: Path) -> None:
    tiny = gpu_bound().op("op", 0, 25)
    simulation = tiny.simulation(tmp_path)
    (change,) = finding_changes(finding(tiny, "k1", saved_us=100), simulation)
    assert isinstance(change, RemoveGpu)
    (change,) = finding_changes(finding(tiny, "k1", saved_us=99), simulation)
    assert isinstance(change, ScaleGpu)


def test_one_kernel_replaces_a_chain_with_the_gaps_between(tmp_path: Path) -> None:
    tiny = gpu_bound().op("op", 0, 25)
    simulation = tiny.simulation(tmp_path)
    found = finding(tiny, "k0", "k1", "k2", saved_us=250, check="fusible_chain")
    (fuse,) = finding_changes(found, simulation)
    assert isinstance(fuse, Fuse)
    assert fuse.uids == tuple(tiny.uids[name] for name in ("k0", "k1", "k2"))
    assert fuse.duration_ns == 50_000
    assert [(s.start_ns - simulation.graph.first_ns, s.end_ns) for s in fuse.host] == [(0, 20_000)]
    assert saved_us(simulation, found)[1:] == [252.0, 252.0]


def test_a_chain_saves_no_more_than_all_kernels(tmp_path: Path) -> None:
    tiny = host_bound().op("op", 0, 320)
    found = finding(tiny, "k0", "k1", "k2", "k3", saved_us=30, check="fusible_chain")
    simulation = tiny.simulation(tmp_path)
    assert simulation.compute_saved_ms == 0
    assert all(isinstance(change, ScaleGpu) for change in finding_changes(found, simulation))
    assert saved_us(simulation, found) == [0.0, 0.0, 0.0]


def test_instances_elsewhere_are_not_fused(tmp_path: Path) -> None:
    """The operations of a chain run twice, and the finding is about one instance."""
    starts = (0, 10, 200, 250)
    tiny = kernels(launches(*starts), (10, 111, 212, 313), 100).op("op", 0, 260)
    found = finding(tiny, "k0", "k1", "k2", "k3", saved_us=150, check="gemm_epilogue")
    found = found.model_copy(update={"evidence": {"kernels": 2, "instances": 1}})
    (fuse,) = finding_changes(found, tiny.simulation(tmp_path))
    assert isinstance(fuse, Fuse)
    assert fuse.uids == (tiny.uids["k0"], tiny.uids["k1"])


def two_gpus() -> Tiny:
    return launches(0, 10).kernel("a", 10, 100).kernel("b", 20, 200, device=1)


def test_findings_together_save_what_one_replay_gains(tmp_path: Path) -> None:
    tiny = two_gpus()
    simulation = tiny.simulation(tmp_path)
    found = savings.with_step_savings(
        [finding(tiny, "a", saved_us=50), finding(tiny, "b", saved_us=150)],
        step_of(simulation),
        None,
        simulation,
    )
    gains = [each.impact.step_ms.mid for each in found if each.impact and each.impact.step_ms]
    assert gains == pytest.approx([0.0, 0.110])
    added = savings.added_savings(found[::-1], step_of(simulation), simulation)
    titles = [[each.title for each in bar.findings] for bar in added]
    assert titles == [[found[1].title], [found[0].title]]
    assert [bar.saved_ms for bar in added] == pytest.approx([0.110, 0.040])
    changes = [change for each in found for change in finding_changes(each, simulation)]
    together_ms = savings.together_ms(found, step_of(simulation), simulation)
    assert together_ms == pytest.approx(simulation.steps_saved_ms(changes))


def test_findings_beyond_those_shown_are_one_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(savings, "SHOWN", 1)
    tiny = gpu_bound().op("op", 0, 25)
    simulation = tiny.simulation(tmp_path)
    found = [finding(tiny, name, saved_us=us) for name, us in (("k1", 30), ("k2", 20), ("k0", 10))]
    added = savings.added_savings(found, step_of(simulation), simulation)
    assert [len(bar.findings) for bar in added] == [1, 2]
    assert [bar.saved_ms for bar in added] == pytest.approx([0.030, 0.030])


def test_a_launch_with_a_wait_inside_is_not_merged(tmp_path: Path) -> None:
    """A module is loaded inside of a launch, which waits for the kernel before."""
    tiny = Tiny().call("L", 0).call("L", 40, 120).call("Load", 45, 100).call("L", 200)
    tiny.kernel("a", 10, 120).kernel("b", 165, 10).kernel("c", 210, 10).op("op", 0, 206)
    simulation = tiny.simulation(tmp_path)
    assert simulation.waiting_calls.tolist() == [tiny.uids["Load@45"]]
    changes = merged_launches(simulation)
    assert changes == ()
    simulation.steps_saved_ms(changes)


def test_fusions_that_share_a_kernel_keep_the_shorter(tmp_path: Path) -> None:
    tiny = gpu_bound().op("op", 0, 25)
    simulation, uids = tiny.simulation(tmp_path), tiny.uids
    long = Fuse(uids=(uids["k0"], uids["k1"]), duration_ns=90_000)
    short = Fuse(uids=(uids["k0"], uids["k2"]), duration_ns=40_000)
    both = [simulation.steps_saved_ms(pair) for pair in ((long, short), (short, long))]
    assert both[0] == both[1] > simulation.steps_saved_ms([short])
    inside = Fuse(uids=(uids["k1"], uids["k2"]), duration_ns=70_000)
    assert simulation.replay([long, inside]).gpu_time_ns == 160_000


def test_a_removed_call_does_not_come_back_when_it_no_longer_waits(tmp_path: Path) -> None:
    tiny = launches(0).call("Memcpy", 10, 115).call("L", 140)
    tiny.kernel("a", 10, 100).kernel("copy", 111, 10).kernel("b", 150, 30).op("op", 0, 145)
    simulation = tiny.simulation(tmp_path)
    removed = RemoveGpu(work=Work(uids=(tiny.uids["copy"],)))
    no_wait = RemoveWait(calls=(tiny.uids["Memcpy@10"],))
    alone, both = (simulation.steps_saved_ms(c) for c in ([removed], [removed, no_wait]))
    assert both >= alone


def test_no_kernel_gets_shorter_than_the_shortest_kernels_do(tmp_path: Path) -> None:
    tiny = kernels(launches(0, 10, 20), (10, 111, 212), 100).op("op", 0, 25)
    simulation = tiny.simulation(tmp_path)
    found = finding(tiny, "k1", saved_us=99)
    gain = impact.modelled_impact(0.1, 1.0, 99.0, **BASES)
    faster = found.model_copy(update={"impact": gain})
    assert gain.saved_ms.mid > 0.098
    (change,) = finding_changes(faster, simulation)
    gained_us = 1e3 * simulation.steps_saved_ms([change])
    assert gained_us == pytest.approx(100 - impact.KERNEL_FLOOR_US)
    (removed,) = finding_changes(found, simulation)
    assert 1e3 * simulation.steps_saved_ms([removed]) == pytest.approx(99)
