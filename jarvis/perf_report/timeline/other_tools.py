"""GPU times by the definitions of other tools, computed from the same events.

Each method follows its tool's definition exactly, including quirks. Times are integer nanoseconds
internally, milliseconds in the results; a value is None if the tool has none for this trace.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from jarvis.core.arrays import Int64s
from jarvis.perf_report.intervals import END, covered_during, covered_ns
from jarvis.schemas.names import C
from jarvis.trace import Trace
from jarvis.trace.metadata import STEP_PREFIX
from jarvis.trace.tables import HOST_ANNOTATION

COLLECTIVE_OPERATORS = tuple(
    f"{library}:{operation}"
    for library in ("nccl", "gloo")
    for operation in ("broadcast", "reduce", "all_reduce", "all_gather", "reduce_scatter")
)
"""The operators that the TensorBoard plugin treats as communication."""

_US = 1000
_COMPILED = "triton_"
_HTA_COMMUNICATION = pl.col(C.name).str.contains("^nccl.*Kernel")
_HTA_COMPUTE = ~pl.col(C.name).str.contains("^nccl.*Kernel|Memcpy|^Memset|^dma|Sync")
_EVENT_COLUMNS = (C.ts_ns, C.dur_ns, C.stream, C.device, "correlation", C.external_id)


@dataclass(frozen=True, slots=True)
class ToolFigures:
    """Values of a tool: times in ms, shares in percent."""

    time_ms: float | None = None
    busy_pct: float | None = None
    idle_ms: float | None = None
    compute_ms: float | None = None
    communication_ms: float | None = None
    hidden_communication_pct: float | None = None
    stream_idle_ms: float | None = None


@dataclass(frozen=True)
class OtherTools:
    """Values of other tools for one trace."""

    trace: Trace

    def hta(self, *, is_rounded: bool = True) -> ToolFigures:
        """Return temporal breakdown, overlap and idle time of Holistic Trace Analysis.

        HTA treats host calls of compiled kernels as GPU work, which is not reproduced here, so
        there is no breakdown for traces with them.

        Args:
            is_rounded: Round starts up and ends down to whole µs, as HTA does by default for traces
                with a finer clock. Very short kernels then end before they start; if the parts do
                not add up, HTA has no breakdown.
        """
        events = self._of_hta
        if is_rounded and self.has_fine_clock:
            up, down = -(-pl.col(C.ts_ns) // _US) * _US, pl.col(C.end_ns) // _US * _US
            events = events.with_columns(up.alias(C.ts_ns), down.alias(C.end_ns)).sort(
                C.ts_ns, maintain_order=True
            )
        if events.is_empty():
            return ToolFigures()
        compute, communication = events.filter("is_compute"), events.filter("is_communication")
        compute_ns, busy_ns = _merged_ns(compute), _merged_ns(events)
        time_ns = int(events.select(pl.col(C.end_ns).max() - pl.col(C.ts_ns).min()).item())
        stream_idle_ms = _stream_gaps_ns(events) / 1e6
        if self.has_compiled_calls:
            return ToolFigures(stream_idle_ms=stream_idle_ms)
        hidden_pct = _hidden_pct(compute, communication)
        if busy_ns < compute_ns or not 0 < busy_ns <= time_ns:
            return ToolFigures(hidden_communication_pct=hidden_pct, stream_idle_ms=stream_idle_ms)
        return ToolFigures(
            time_ms=time_ns / 1e6,
            busy_pct=100 * busy_ns / time_ns,
            idle_ms=(time_ns - busy_ns) / 1e6,
            compute_ms=compute_ns / 1e6,
            communication_ms=(busy_ns - compute_ns) / 1e6,
            hidden_communication_pct=hidden_pct,
            stream_idle_ms=stream_idle_ms,
        )

    def tensorboard(self) -> ToolFigures:
        """Return GPU utilization and step time breakdown of the TensorBoard plugin.

        The plugin counts every step mark, on the host and on the GPU, as a step and averages over
        them; without marks the span of the operators is one step. A kernel counts as communication
        if an operator of COLLECTIVE_OPERATORS launched it.
        """
        marks = self._plugin_steps
        if marks.is_empty():
            return ToolFigures()
        host = (self.trace.cpu_ops, self.trace.annotations)
        calls = [frame.filter(pl.col(C.name).is_in(COLLECTIVE_OPERATORS)) for frame in host]
        by_collective = pl.col(C.external_id).is_in(calls[0][C.external_id].drop_nulls().implode())
        kernels = self._events.filter("is_kernel")
        is_collective = kernels.select(by_collective.fill_null(value=False)).to_series()
        compute = kernels.filter(~is_collective)
        communication = _spans(kernels.filter(is_collective), *calls)
        before = _spans(compute, self._events.filter(~pl.col("is_kernel")))
        compute_ns = _covered_ns(compute, marks)
        before_ns = _covered_ns(before, marks)
        all_ns = before_ns
        if not communication.is_empty():
            all_ns = _covered_ns(pl.concat([before, communication]), marks)
        return ToolFigures(
            time_ms=_mean_ms((marks[C.end_ns] - marks[C.ts_ns]).to_numpy()),
            busy_pct=_utilization_pct(kernels, marks),
            compute_ms=_mean_ms(compute_ns),
            communication_ms=_mean_ms(all_ns - before_ns),
        )

    def gpu_idle(self) -> ToolFigures:
        """Return values of gpu-idle: kernels that start between the first step and the end of the
        last one."""
        on_host = self.steps.filter(pl.col(C.cat) == HOST_ANNOTATION)
        if on_host.is_empty():
            return ToolFigures()
        on_gpu = self.steps.filter(pl.col(C.cat) == "gpu_user_annotation")
        first_ns = int(on_host[C.ts_ns][0])
        last_ns = int(pl.concat([on_host, on_gpu]).select(END.max()).item())
        is_within = pl.col("is_kernel") & pl.col(C.ts_ns).is_between(first_ns, last_ns)
        kernel_ns = covered_ns(self._events.filter(is_within))
        window_ns = last_ns - first_ns
        return ToolFigures(
            time_ms=window_ns / 1e6,
            busy_pct=100 * kernel_ns / window_ns if window_ns > 0 else None,
            compute_ms=kernel_ns / 1e6,
        )

    @cached_property
    def steps(self) -> pl.DataFrame:
        """``name, cat, ts_ns, dur_ns`` of the step marks on the host and on the GPU, by start."""
        marks = pl.concat(
            [
                frame.filter(pl.col(C.name).cast(pl.String).str.starts_with(STEP_PREFIX)).select(
                    pl.col(C.name, C.cat).cast(pl.String), C.ts_ns, C.dur_ns
                )
                for frame in (self.trace.annotations, self.trace.cpu_ops)
            ]
        )
        return marks.drop_nulls([C.ts_ns, C.dur_ns]).sort(C.ts_ns)

    @property
    def is_cut_to_steps(self) -> bool:
        """Whether HTA excludes GPU work by steps, which it does with two or more marked steps."""
        return self.steps[C.name].n_unique() > 1

    @cached_property
    def has_fine_clock(self) -> bool:
        """Whether events start at fractions of a µs."""
        return bool((self._events[C.ts_ns] % _US != 0).any())

    @cached_property
    def has_compiled_calls(self) -> bool:
        """Whether operators launch kernels of a compiler with the same names."""
        names = self.trace.cpu_ops[C.name].cast(pl.String)
        return bool(names.str.starts_with(_COMPILED).any())

    @cached_property
    def _events(self) -> pl.DataFrame:
        """GPU events by start, with ``end_ns``, ``is_kernel`` and HTA's classification."""
        timed = self.trace.gpu_events.drop_nulls([C.ts_ns, C.dur_ns])
        kinds = timed.select(pl.col(C.name).unique()).with_columns(
            is_compute=_HTA_COMPUTE, is_communication=_HTA_COMMUNICATION
        )
        return (
            timed.select(
                C.name, *_EVENT_COLUMNS, END.alias(C.end_ns), is_kernel=pl.col(C.cat) == "kernel"
            )
            .join(kinds, on=C.name, how="left", maintain_order="left")
            .drop(C.name)
            .sort(C.ts_ns, maintain_order=True)
        )

    @cached_property
    def _of_hta(self) -> pl.DataFrame:
        """Events that HTA counts: all, or with several steps those launched before the last one."""
        events = self._events.filter((pl.col(C.stream) != -1).fill_null(value=False))
        if not self.is_cut_to_steps:
            return events
        runtime = self.trace.runtime
        launched = runtime.filter(pl.col(C.ts_ns) < self.steps[C.ts_ns][-1])["correlation"]
        return events.filter(pl.col("correlation").is_in(launched.drop_nulls().unique().implode()))

    @cached_property
    def _plugin_steps(self) -> pl.DataFrame:
        """``ts_ns, end_ns`` of the TensorBoard plugin's steps, by start."""
        marks = self.steps.select(C.ts_ns, END.alias(C.end_ns))
        if not marks.is_empty():
            return marks
        calls = self.trace.cpu_ops.drop_nulls([C.ts_ns, C.dur_ns])
        return calls.select(pl.col(C.ts_ns).min(), END.max().alias(C.end_ns)).drop_nulls()


def _merged_ns(events: pl.DataFrame) -> int:
    """Return the length of the union as HTA merges it: rounded events can have negative length.

    ``events``: ``ts_ns, end_ns`` by start. A part begins at a start after all earlier ends.
    """
    if events.is_empty():
        return 0
    starts = events[C.ts_ns].to_numpy()
    reached = np.maximum.accumulate(events[C.end_ns].to_numpy())
    begins = np.flatnonzero(starts[1:] > reached[:-1]) + 1
    gaps = starts[begins] - reached[begins - 1]
    return int(reached[-1] - starts[0] - gaps.sum())


def _hidden_pct(compute: pl.DataFrame, communication: pl.DataFrame) -> float | None:
    """Return the percentage of communication that compute overlaps."""
    comm_ns = _merged_ns(communication)
    if comm_ns <= 0:
        return None
    lasting = compute.filter(pl.col(C.end_ns) > pl.col(C.ts_ns))
    both = pl.concat([lasting, communication]).sort(C.ts_ns)
    return 100 * (_merged_ns(lasting) + comm_ns - _merged_ns(both)) / comm_ns


def _stream_gaps_ns(events: pl.DataFrame) -> int:
    """Return the sum of the times from each end to the next start on the same stream."""
    gap = pl.col(C.ts_ns) - pl.col(C.end_ns).shift(1)
    per_stream = events.group_by(C.stream, maintain_order=True).agg(gap.sum())
    return int(per_stream[C.ts_ns].sum())


def _spans(*frames: pl.DataFrame) -> pl.DataFrame:
    return pl.concat([frame.select(C.ts_ns, C.dur_ns) for frame in frames])


def _covered_ns(events: pl.DataFrame, windows: pl.DataFrame) -> Int64s:
    """Return the busy time of the events in each window (``ts_ns, end_ns``)."""
    return covered_during(events, windows[C.ts_ns].to_numpy(), windows[C.end_ns].to_numpy())


def _utilization_pct(kernels: pl.DataFrame, marks: pl.DataFrame) -> float | None:
    """Return kernel time in percent of the time from the first mark to the end of the last mark.

    None for several GPUs.
    """
    window = pl.DataFrame({C.ts_ns: [marks[C.ts_ns][0]], C.end_ns: [marks[C.end_ns][-1]]})
    length_ns = int(window[C.end_ns][0]) - int(window[C.ts_ns][0])
    if kernels[C.device].n_unique() != 1 or length_ns <= 0:
        return None
    return 100 * int(_covered_ns(kernels, window)[0]) / length_ns


def _mean_ms(lengths_ns: Int64s) -> float:
    return int(lengths_ns.sum()) / lengths_ns.size / 1e6
