"""Replay a step under changes."""

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
import polars as pl

from jarvis import impact
from jarvis.changes import COMPUTE, Change, ScaleGpu, Several, Work
from jarvis.perf_report.work import COMPUTE as COMPUTE_KIND
from jarvis.schemas.names import C
from jarvis.simulation.changed_weights import Index, changed_weights
from jarvis.simulation.events import Float64s, Int64s
from jarvis.simulation.graph import Graph, Int32s
from jarvis.simulation.replay import replay

MAX_SLOWDOWN = 64.0
"""An operation that can take that many times as long never moves the step."""

SLACK_STEP, SLACK_NS = 1.05, 1_000
"""Precision of a slowdown, as a factor, and of an unchanged step."""


class Simulation:
    """A recorded window of steps, and how long it takes under changes.

    Args:
        graph: The dependencies of the recording.
        gpu_work: The table ``gpu_work``.
        operations: The table ``operations``.
        collectives: The table ``collectives``.
        calls: ``uid`` of the calls that keep their length in a graph launch.
    """

    def __init__(
        self,
        graph: Graph,
        gpu_work: pl.DataFrame,
        operations: pl.DataFrame,
        collectives: pl.DataFrame | None = None,
        calls: Int64s | None = None,
    ) -> None:
        self.graph = graph
        self._gpu_work, self._operations = gpu_work, operations
        self._collectives = collectives
        self._calls = np.empty(0, np.int64) if calls is None else calls
        self._index = Index(graph)
        self._replayed: dict[str, int] = {}

    @property
    def window_ns(self) -> int:
        """The recorded time, which the replay without changes gives, too."""
        return self.graph.window_ns

    def window_after_ns(self, changes: Iterable[Change]) -> int:
        """Return the time of the window under changes that are made together.

        Raises:
            RefusedChangeError: A change is not possible in this trace.
        """
        together = Several(changes=tuple(changes))
        key = together.model_dump_json()
        if key not in self._replayed:
            times, _ = self.times(self.weights(together))
            self._replayed[key] = int(times[self.graph.end] - times[self.graph.begin])
        return self._replayed[key]

    def saved_ns(self, changes: Iterable[Change]) -> int:
        """Return what the window gains; negative if it takes longer."""
        return self.window_ns - self.window_after_ns(changes)

    def kernel_time_saved_ns(self, changes: Iterable[Change]) -> int:
        """Return what GPU work takes less, whether the window gains from it or not."""
        edges = self._index.gpu_edge[1]
        return int((self.graph.weight[edges] - self.weights(changes)[edges]).sum())

    def floor_ns(self) -> int:
        """Return the window with all computation of the GPU at no time."""
        return self.window_after_ns([ScaleGpu(work=Work(category=COMPUTE), factor=0)])

    def weights(self, changes: Iterable[Change]) -> Int64s:
        """Return the weights of the edges under changes."""
        return changed_weights(self._index, self, changes)

    def times(self, weights: Int64s) -> tuple[Int64s, Int32s]:
        """Return the time of each node and the edge that determines it."""
        times = np.empty(self.graph.time.size, np.int64)
        edges = np.empty(self.graph.time.size, np.int32)
        replay(self.graph.indptr, self.graph.src, weights, 0, times, edges)
        return times, edges

    def slowdown(self, work: Work) -> float:
        """Return how many times as long GPU work could take without moving the window.

        At most MAX_SLOWDOWN; within SLACK_STEP.
        """

        def moves(factor: float) -> bool:
            after = self.window_after_ns([ScaleGpu(work=work, factor=factor)])
            return after > self.window_ns + SLACK_NS

        if not moves(MAX_SLOWDOWN):
            return MAX_SLOWDOWN
        low, high = 1.0, MAX_SLOWDOWN
        while high / low > SLACK_STEP:
            middle = float(np.sqrt(low * high))
            low, high = (low, middle) if moves(middle) else (middle, high)
        return low

    # What changes mean in the tables (``changed_weights.Tables``).

    def uids(self, work: Work) -> Int64s:
        """Return the GPU events of some work."""
        wanted = pl.col(C.uid).is_in(list(work.uids))
        if work.operations:
            wanted |= pl.col(C.operation_uid).is_in(list(work.operations))
        if work.category == COMPUTE:
            wanted |= pl.col(C.kind) == COMPUTE_KIND
        elif work.category is not None:
            rows = self._operations.filter(pl.col(C.category) == work.category)[C.uid]
            wanted |= pl.col(C.operation_uid).is_in(rows.implode())
        return self._gpu_work.filter(wanted)[C.uid].to_numpy()

    def target_factors(self, work: Work, target_pct: float) -> tuple[Int64s, Float64s]:
        """Return the GPU events of operations below a target, and the factor of each.

        An operation reaches the target as a whole, so all its events have one factor; none gets
        shorter than KERNEL_FLOOR_US.
        """
        factors = self._target_factors(target_pct)
        events = (
            self._gpu_work.select(C.uid, C.operation_uid, C.dur_ns)
            .filter(pl.col(C.uid).is_in(self.uids(work)))
            .join(factors, left_on=C.operation_uid, right_on=C.uid)
        )
        least = impact.KERNEL_FLOOR_US * 1e3 / pl.col(C.dur_ns)
        factor = events.select(
            C.uid, factor=pl.max_horizontal("factor", pl.min_horizontal(least, 1.0))
        ).filter(pl.col("factor") < 1)
        return factor[C.uid].to_numpy(), factor["factor"].to_numpy()

    def _target_factors(self, target_pct: float) -> pl.DataFrame:
        return self._operations.filter(
            impact.is_judged() & (pl.col(C.pct_roofline) <= impact.ANOMALY_PCT)
        ).select(C.uid, factor=1 - impact.saved_us(target_pct) / pl.col(C.kernel_time_us))

    def fastest_ns(self, uids: Sequence[int]) -> Int64s:
        """Return for each collective the time of the fastest of its kind, group and size."""
        rows = self._fastest
        wanted = pl.DataFrame({C.uid: uids}, schema={C.uid: pl.Int64})
        return wanted.join(rows, on=C.uid, how="left", maintain_order="left")["fastest"].to_numpy()

    @cached_property
    def _fastest(self) -> pl.DataFrame:
        if self._collectives is None:
            return pl.DataFrame(schema={C.uid: pl.Int64, "fastest": pl.Int64})
        same = [C.collective, C.group, C.message_mb]
        return self._collectives.select(
            C.uid, fastest=(pl.col(C.dur_us).min().over(same) * 1e3).round().cast(pl.Int64)
        )

    def held_calls(self) -> Int64s:
        """Return the calls that load modules or allocate, which keep their length."""
        return self._calls
