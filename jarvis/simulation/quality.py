"""How far the replay of a trace can be trusted."""

from collections.abc import Iterable
from enum import StrEnum

import numpy as np
from pydantic import BaseModel, ConfigDict

from jarvis.core.arrays import Int64s
from jarvis.simulation.edges import Kind
from jarvis.simulation.graph import Graph, What
from jarvis.simulation.path import critical_path, replayed

STALL_PCT = 2.0
MAX_STALLS = 3
"""A stall is unexplained time of at least that share of the window at one place."""

GOOD_UNEXPLAINED_PCT, GOOD_INFERRED_PCT = 1.0, 5.0
FAIR_UNEXPLAINED_PCT, FAIR_INFERRED_PCT = 5.0, 30.0
MAX_DROPPED_PCT = 5.0
MAX_STALLED_PCT, MIN_GPU_PCT = 90.0, 1.0


class Grade(StrEnum):
    """How far step times can be trusted."""

    GOOD = "good"
    FAIR = "fair"
    NOT_SIMULATED = "not simulated"


class Stall(BaseModel):
    """Time before an event that no recorded event explains; a replay takes it as given."""

    model_config = ConfigDict(frozen=True)

    uid: int
    ns: int


class Quality(BaseModel):
    """What the replay of the unchanged graph tells about the graph.

    ``replay_error_pct``: the window when each edge weighs what is usual, relative to the recorded
    one. ``unexplained_pct``: time on the critical path that nothing explains, without stalls, of
    the window without stalls. ``inferred_pct``: the part of the path whose cause is inferred from
    nearness in time.
    """

    model_config = ConfigDict(frozen=True)

    grade: Grade
    reason: str | None = None
    replay_error_pct: float = 0.0
    unexplained_pct: float = 0.0
    inferred_pct: float = 0.0
    stalls: tuple[Stall, ...] = ()


def stall_edges(graph: Graph, stalls: Iterable[Stall]) -> Int64s:
    """Return the edges whose unexplained time a replay takes as given."""
    residual = graph.weight - graph.nominal
    found = [
        np.flatnonzero(graph.binding & (graph.uid[graph.dst] == stall.uid) & (residual == stall.ns))
        for stall in stalls
    ]
    return np.concatenate([np.empty(0, np.int64), *found])


def quality(graph: Graph) -> Quality:
    """Return the quality of a graph."""
    times, _ = replayed(graph, graph.nominal)
    usual_ns = int(times[graph.end] - times[graph.begin])
    times, determining = replayed(graph, graph.weight)
    if (times != graph.time).any():
        return _not_simulated("the replay of the unchanged trace differs from the recording")
    window_ns = graph.window_ns
    if window_ns <= 0:
        return _not_simulated("the recording has no duration")
    path = critical_path(graph, times, determining, graph.weight)
    largest = np.argsort(-path.residual_ns, kind="stable")[:MAX_STALLS]
    is_stall = np.zeros(path.edges.size, np.bool_)
    is_stall[largest] = path.residual_ns[largest] >= STALL_PCT / 100 * window_ns
    stalled_ns = int(path.residual_ns[is_stall].sum())
    left_ns = max(window_ns - stalled_ns, 1)
    unexplained_pct = 100 * float(path.residual_ns[~is_stall].sum()) / left_ns
    is_inferred = (graph.kind[path.edges] == Kind.UNLINKED) | graph.inferred[path.edges]
    inferred_ns = (path.ns - np.where(is_stall, path.residual_ns, 0))[is_inferred]
    measured = {
        "replay_error_pct": 100 * (usual_ns / window_ns - 1),
        "unexplained_pct": unexplained_pct,
        "inferred_pct": 100 * float(inferred_ns.sum()) / window_ns,
        "stalls": tuple(
            Stall(uid=int(graph.uid[graph.dst[path.edges[row]]]), ns=int(path.residual_ns[row]))
            for row in np.flatnonzero(is_stall)
        ),
    }
    found = Quality.model_validate({"grade": Grade.FAIR, **measured})
    grade, reason = _grade(found, graph, 100 * stalled_ns / window_ns)
    return found.model_copy(update={"grade": grade, "reason": reason})


def _grade(found: Quality, graph: Graph, stalled_pct: float) -> tuple[Grade, str | None]:
    counts = graph.counts
    dropped_pct = 100 * counts.dropped_launches / max(counts.launches, 1)
    has_calls = bool((graph.what == What.CALL_START).any())
    streams = np.unique(graph.stream[graph.what == What.GPU_START]).size
    gpu_pct = 100 * _gpu_ns(graph) / graph.window_ns
    reasons = {
        "no calls of the host were recorded, and the GPU used several streams": not has_calls
        and streams > 1,
        f"{dropped_pct:.1f}% of the kernels start before their launch": dropped_pct
        > MAX_DROPPED_PCT,
        f"{stalled_pct:.0f}% of it is in no recorded event": stalled_pct > MAX_STALLED_PCT
        and gpu_pct < MIN_GPU_PCT,
        f"{found.unexplained_pct:.0f}% of it is in no recorded event": found.unexplained_pct
        > FAIR_UNEXPLAINED_PCT,
        f"{found.inferred_pct:.0f}% of it is work without a recorded launch": found.inferred_pct
        > FAIR_INFERRED_PCT,
    }
    if reason := next((text for text, applies in reasons.items() if applies), None):
        return Grade.NOT_SIMULATED, reason
    is_good = found.unexplained_pct <= GOOD_UNEXPLAINED_PCT and not found.stalls
    is_good &= found.inferred_pct <= GOOD_INFERRED_PCT
    return (Grade.GOOD if is_good else Grade.FAIR), None


def _gpu_ns(graph: Graph) -> int:
    own: Int64s = np.flatnonzero(
        (graph.kind == Kind.DURATION) & (graph.what[graph.dst] == What.GPU_END)
    )
    return int(graph.weight[own].sum())


def _not_simulated(reason: str) -> Quality:
    return Quality(grade=Grade.NOT_SIMULATED, reason=reason)
