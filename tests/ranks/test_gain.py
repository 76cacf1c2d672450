"""What a job gains, against simulated jobs of which each fault was removed."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from jarvis.changes import Change, ScaleHost, Span
from jarvis.ranks import gain
from jarvis.ranks.gain import JointSteps, Method
from jarvis.ranks.join import Joined, join
from jarvis.ranks.members import Member
from jarvis.sample import Faults, Job
from jarvis.sample.faults import Late, Slow
from jarvis.sample.gpu import all_reduce_ns
from jarvis.schemas.names import C
from tests.ranks.built import US, members
from tests.ranks.built import job as job_of
from tests.ranks.simulated import simulated

RANKS, STEPS = 8, 3
SLOW, LATE = {3: 1.1, 5: 1.05}, {2: 5.0, 0: 6.0, 6: 40.0}
LINK_LEFT = 0.25
FAULTS = Faults(
    slow=tuple(Slow(rank, factor) for rank, factor in SLOW.items()),
    late=(
        Late(2, LATE[2], "loader", 1),
        Late(0, LATE[0], "loader", 0),
        Late(6, LATE[6], "host", 2),
    ),
    slow_links={1: LINK_LEFT},
)
MAX_ERROR_PCT = 1.0
"""Of a gain, or of the job where a fault costs nothing."""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[Member]]:
    return simulated(tmp_path_factory.mktemp("job"), Job(STEPS, RANKS, faults=FAULTS))


@pytest.fixture(scope="module")
def joined(job: tuple[dict[str, Any], list[Member]]) -> Joined:
    return join(job[1], RANKS)


def window_gains_ms(
    steps: JointSteps,
    changes: dict[int, Sequence[Change]],
    transfer_factor: NDArray[np.float64] | None = None,
) -> tuple[float, float]:
    """Return what the whole job gains, without missing ranks and with them."""
    joint, changed = steps.joint, steps.changed(changes)
    without, with_absent = (
        joint.window_ns(joint.replay(changed, transfer_factor, with_absent=with_absent)) / 1e6
        for with_absent in (False, True)
    )
    recorded = joint.window_ns(joint.time) / 1e6
    return recorded - without, recorded - with_absent


def without_delay(member: Member, name: str, step: int, ms: float, side: str) -> list[Change]:
    """Return the change that removes lost host time before a side of a Python function."""
    spans = member.tables["sim_spans"].filter(
        pl.col(C.name).str.contains(name), pl.col(C.cause) == "python"
    )
    at_ns = spans.sort(C.start_ns)[side][step]
    lost = Span(thread=0, start_ns=at_ns - round(ms * 1e6), end_ns=at_ns)
    return [ScaleHost(spans=(lost,), factor=0)]


def removed(steps: JointSteps) -> dict[str, dict[int, Sequence[Change]]]:
    """Return the changes that remove each fault of the ranks."""
    members = {member.rank: member for member in steps.members}
    loader, backward = r"dataloader\.py.*__next__", r"_tensor\.py.*backward"
    return {
        "slow 3": {3: steps.as_fast(3)},
        "slow 5": {5: steps.as_fast(5)},
        "late 2 in step 1": {2: without_delay(members[2], loader, 1, LATE[2], C.end_ns)},
        "late 0 in step 0": {0: without_delay(members[0], loader, 0, LATE[0], C.end_ns)},
        "late 6 in step 2": {6: without_delay(members[6], backward, 2, LATE[6], C.start_ns)},
    }


def true_gains_ms(truth: dict[str, Any]) -> dict[str, float]:
    without = truth["makespan_ms_without"]
    return {name: truth["makespan_ms"] - ms for name, ms in without.items()}


def tolerance_ms(true_ms: float, truth: dict[str, Any]) -> float:
    whole_ms = true_ms if true_ms > 0.1 else truth["makespan_ms"] / 100
    return MAX_ERROR_PCT / 100 * whole_ms


def test_the_unchanged_replay_is_the_recording(joined: Joined) -> None:
    assert joined.joint is not None
    joint = joined.joint.joint
    assert joint.is_complete
    assert joint.instances.size == joined.tables["instances"].height
    assert (joint.replay() == joint.time).all()
    assert joined.joint.gain({}) == (0, 0)


def test_gains_are_those_of_the_job_without_each_fault(
    job: tuple[dict[str, Any], list[Member]], joined: Joined
) -> None:
    truth, steps = job[0], joined.joint
    assert steps is not None
    true_ms = true_gains_ms(truth)
    for name, changes in removed(steps).items():
        tolerance = tolerance_ms(true_ms[name], truth)
        assert window_gains_ms(steps, changes)[0] == pytest.approx(true_ms[name], abs=tolerance)
    of_instances = joined.tables["instances"].sort(C.instance_id)
    assert of_instances[C.instance_id].to_list() == steps.joint.instances.tolist()
    factors = np.array(
        [
            all_reduce_ns(nbytes, RANKS) / all_reduce_ns(nbytes, RANKS, LINK_LEFT)
            for nbytes in of_instances[C.bytes]
        ]
    )
    name = "slow link 1"
    tolerance = tolerance_ms(true_ms[name], truth)
    found = window_gains_ms(steps, {}, factors)[0]
    assert found == pytest.approx(true_ms[name], abs=tolerance)


def test_the_truth_is_in_the_interval_where_a_rank_is_missing(
    job: tuple[dict[str, Any], list[Member]],
) -> None:
    truth, members = job
    joined = join([member for member in members if member.rank != 4], RANKS)
    steps = joined.joint
    assert steps is not None
    assert not steps.joint.is_complete
    true_ms = true_gains_ms(truth)
    for name, changes in removed(steps).items():
        tolerance = tolerance_ms(true_ms[name], truth)
        high, low = window_gains_ms(steps, changes)
        assert low - tolerance <= true_ms[name] <= high + tolerance
    ranks = joined.tables["ranks"]
    assert (ranks["gain_low_ms"] <= ranks["gain_high_ms"]).all()


def test_a_slow_rank_has_its_factor_as_ratio(joined: Joined) -> None:
    ratios = dict(joined.tables["ranks"].select(C.rank, C.speed_ratio).iter_rows())
    for rank, ratio in ratios.items():
        assert ratio == pytest.approx(SLOW.get(rank, 1.0), abs=0.005)
    assert (joined.speed["signatures"] >= 50).all()


def test_too_many_ranks_have_bounds(
    job: tuple[dict[str, Any], list[Member]], joined: Joined, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gain, "MAX_NODES", 1000)
    bounded = join(job[1], RANKS)
    assert bounded.joint is None
    ranks = bounded.tables["ranks"]
    assert set(ranks["gain_method"]) == {Method.BOUNDS}
    assert set(joined.tables["ranks"]["gain_method"]) == {Method.REPLAY}
    assert (ranks["gain_low_ms"] <= ranks["gain_high_ms"]).all()
    exposed = ranks["caused_exposed_wait_ms"] / (STEPS - 1)
    assert (ranks["gain_high_ms"] <= exposed + 1e-9).all()


def test_bounds_are_what_one_of_the_others_waits_for_and_what_all_do() -> None:
    at = [1_000 * US * number for number in range(5)]
    late = [[begin, begin + 50 * US, begin + 10 * US] for begin in at]
    ranks = job_of(late, options=[{"step": number} for number in range(len(at))])
    found = join(members(ranks), len(ranks)).tables["ranks"]
    assert found["gain_low_ms"].to_list() == [0, 0.04, 0]
    assert found["gain_ms"].to_list() == [0, None, 0]
    assert found["gain_high_ms"].to_list() == [0, 0.05, 0]
    assert found["gain_method"].to_list() == ["bounds"] * 3
