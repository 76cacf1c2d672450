"""The graphs that a trace replays: the GPU events of each graph launch."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from jarvis.capture.alignment import Replayed, token
from jarvis.perf_models.step_annotation import parse
from jarvis.perf_report.annotations import enclosing_steps
from jarvis.schemas.names import C
from jarvis.text.format import cut
from jarvis.trace import Trace
from jarvis.trace.links import GRAPH_LAUNCHES


@dataclass(frozen=True)
class Replay:
    """One launch of a graph: the runtime call (a row of ``Trace.runtime``) and its GPU events.

    ``events`` has ``uid, name, dur_ns, stream`` by start. ``graph_id`` is None if it is not
    recorded. ``annotation`` is that of the step around the launch.
    """

    launch_uid: int
    dur_ns: int
    annotation: str | None
    graph_id: int | None
    events: pl.DataFrame

    @cached_property
    def tokens(self) -> int | None:
        """Tokens of the step; None if its annotation does not have them."""
        step = parse(cut(self.annotation)) if self.annotation else None
        return step.tokens if step else None

    @cached_property
    def replayed(self) -> Replayed:
        """What is compared with captured calls."""
        return Replayed(
            tokens=tuple(token(name) or "" for name in self.events[C.name]),
            durations_ns=tuple(self.events[C.dur_ns]),
            streams=tuple(self.events[C.stream]),
            node_ids=tuple(self.events[C.graph_node_id]),
        )

    @cached_property
    def key(self) -> str:
        """Equal for replays of the same graph, or of the same kernel names if graphs have no id."""
        names = hashlib.sha256("\n".join(self.replayed.tokens).encode()).hexdigest()[:12]
        return names if self.graph_id is None else f"{self.graph_id}:{names}"


def replays(trace: Trace) -> Iterator[Replay]:
    """Yield the graph launches with GPU work, by start."""
    timed = trace.runtime.drop_nulls([C.ts_ns, C.dur_ns])
    calls = timed.filter(pl.col(C.name).is_in(GRAPH_LAUNCHES)).sort(C.ts_ns, C.uid)
    annotations = dict(zip(calls[C.uid], enclosing_steps(calls, trace.annotations), strict=True))
    events = trace.gpu_events.drop_nulls([C.ts_ns, C.dur_ns]).select(
        C.uid, C.name, C.ts_ns, C.dur_ns, C.stream, C.graph_id, C.graph_node_id
    )
    launched = (
        trace.launches.select(C.runtime_uid, pl.col(C.gpu_uid).alias(C.uid))
        .join(calls.select(pl.col(C.uid).alias(C.runtime_uid)), on=C.runtime_uid, how="semi")
        .join(events, on=C.uid)
        .sort(C.ts_ns, C.uid)
        .partition_by(C.runtime_uid, as_dict=True)
    )
    for uid, dur_ns in calls.select(C.uid, C.dur_ns).iter_rows():
        if (own := launched.get((uid,))) is not None:
            (graph_id, *others) = own[C.graph_id].unique()
            yield Replay(uid, dur_ns, annotations[uid], None if others else graph_id, own)
