"""GPU time as other tools define it, worked out from the same events.

Each function follows the definition that its tool applies, also where it is odd, so that their
figures can stand beside ours. Times are integer nanoseconds inside, milliseconds in the results; a
figure is None where the tool has none for this trace.
"""

from dataclasses import dataclass

import polars as pl

from jarvis.perf_report.intervals import END, covered_ns, covered_until
from jarvis.trace import Trace
from jarvis.trace.metadata import STEP_PREFIX

COLLECTIVE_OPERATORS = tuple(
    f"{library}:{operation}"
    for library in ("nccl", "gloo")
    for operation in ("broadcast", "reduce", "all_reduce", "all_gather", "reduce_scatter")
)
"""The operators that the TensorBoard plugin knows as communication."""

_US = 1000
_COMPILED = "triton_"
_IS_KERNEL = pl.col("cat") == "kernel"
_HTA_COMMUNICATION = pl.col("name").str.contains("^nccl.*Kernel")
_HTA_COMPUTE = ~pl.col("name").str.contains("^nccl.*Kernel|Memcpy|^Memset|^dma|Sync")


@dataclass(frozen=True, slots=True)
class ToolFigures:
    """What a tool says: times in ms, shares in percent."""

    time_ms: float | None = None
    busy_pct: float | None = None
    idle_ms: float | None = None
    compute_ms: float | None = None
    communication_ms: float | None = None
    hidden_communication_pct: float | None = None
    stream_idle_ms: float | None = None


def steps(trace: Trace) -> pl.DataFrame:
    """``name, cat, ts_ns, dur_ns`` of the step marks on the host and on the GPU, by start."""
    marks = pl.concat(
        [
            frame.select(
                pl.col("name", "cat").cast(pl.String), pl.col("ts_ns", "dur_ns").cast(pl.Int64)
            )
            for frame in (trace.annotations, trace.cpu_ops)
        ]
    )
    is_step = pl.col("name").str.starts_with(STEP_PREFIX)
    return marks.filter(is_step).drop_nulls(["ts_ns", "dur_ns"]).sort("ts_ns")


def is_cut_to_steps(trace: Trace) -> bool:
    """Whether HTA leaves out GPU work by steps: where two or more are marked."""
    return steps(trace)["name"].n_unique() > 1


def hta(trace: Trace, *, is_rounded: bool = True) -> ToolFigures:
    """Temporal breakdown, overlap and idle time of Holistic Trace Analysis.

    ``is_rounded``: starts rounded up and ends rounded down to whole µs, as it does by default with
    traces of a finer clock. A kernel shorter than that may then end before it starts; where the
    parts no longer add up, HTA gives no breakdown. Calls of compiled kernels on the host count as
    GPU work in that breakdown, which the tables here do not show, so there is none with them.
    """
    events = _rounded(_of_hta(trace)) if is_rounded else _with_end(_of_hta(trace))
    if events.is_empty():
        return ToolFigures()
    compute, communication = events.filter(_HTA_COMPUTE), events.filter(_HTA_COMMUNICATION)
    compute_ns, busy_ns, comm_ns = map(_merged_ns, (compute, events, communication))
    time_ns = _span_ns(events)
    lasting = compute.filter(pl.col("end_ns") > pl.col("ts_ns"))
    hidden_ns = _merged_ns(lasting) + comm_ns - _merged_ns(pl.concat([lasting, communication]))
    hidden_pct = 100 * hidden_ns / comm_ns if comm_ns > 0 else None
    stream_idle_ms = _stream_gaps_ns(events) / 1e6
    if has_compiled_calls(trace):
        return ToolFigures(stream_idle_ms=stream_idle_ms)
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


def has_compiled_calls(trace: Trace) -> bool:
    """Whether operators launch kernels that a compiler named after them."""
    return bool(trace.cpu_ops["name"].cast(pl.String).str.starts_with(_COMPILED).any())


def _of_hta(trace: Trace) -> pl.DataFrame:
    """GPU events that HTA counts: all, or with two steps those launched before the last begins."""
    events = trace.gpu_events.drop_nulls(["ts_ns", "dur_ns", "stream"]).filter(
        pl.col("stream") != -1
    )
    if not is_cut_to_steps(trace):
        return events
    begin = pl.col("ts_ns").max()
    last = steps(trace).select(begin).item()
    launched = trace.runtime.filter(pl.col("ts_ns") < last)["correlation"].drop_nulls()
    return events.filter(pl.col("correlation").is_in(launched.implode()))


def _with_end(events: pl.DataFrame) -> pl.DataFrame:
    return events.with_columns(end_ns=END)


def _rounded(events: pl.DataFrame) -> pl.DataFrame:
    """Starts and ends at whole µs; a trace whose clock counts whole µs stays as it is."""
    if (events["ts_ns"] % _US == 0).all():
        return _with_end(events)
    return events.with_columns(ts_ns=-(-pl.col("ts_ns") // _US) * _US, end_ns=END // _US * _US)


def _merged_ns(events: pl.DataFrame) -> int:
    """The length of the union as HTA merges it: an event may count negative after rounding."""
    first = pl.col("ts_ns") > pl.col("end_ns").cum_max().shift(1)
    merged = (
        events.sort("ts_ns")
        .group_by(first.fill_null(value=False).cum_sum().alias("group"))
        .agg(length_ns=pl.col("end_ns").max() - pl.col("ts_ns").min())
    )
    return int(merged["length_ns"].sum())


def _span_ns(events: pl.DataFrame) -> int:
    first, last = events.select(pl.col("ts_ns").min(), pl.col("end_ns").max()).row(0)
    return int(last) - int(first)


def _stream_gaps_ns(events: pl.DataFrame) -> int:
    """From each end to the next start on the same stream, added up."""
    gap = pl.col("ts_ns") - pl.col("end_ns").shift(1)
    per_stream = events.sort("ts_ns").group_by("stream").agg(gap.sum())
    return int(per_stream["ts_ns"].sum())


def tensorboard(trace: Trace) -> ToolFigures:
    """GPU utilization and step time breakdown of the PyTorch profiler's TensorBoard plugin.

    It counts every step mark, on the host and on the GPU, as a step and gives means over them;
    without any the operators' span is one step. A kernel counts as communication where an operator
    of COLLECTIVE_OPERATORS launched it.
    """
    marks = plugin_steps(trace)
    if marks.is_empty():
        return ToolFigures()
    events = trace.gpu_events.drop_nulls(["ts_ns", "dur_ns"])
    kernels = events.filter(_IS_KERNEL)
    is_collective = pl.col("name").is_in(COLLECTIVE_OPERATORS)
    ids = trace.cpu_ops.filter(is_collective)["external_id"].drop_nulls()
    by_collective = pl.col("external_id").is_in(ids.implode()).fill_null(value=False)
    calls = [frame.filter(is_collective) for frame in (trace.cpu_ops, trace.annotations)]
    compute = kernels.filter(~by_collective)
    communication = _spans(kernels.filter(by_collective), *calls)
    before = _spans(compute, events.filter(~_IS_KERNEL))
    all_ = pl.concat([before, communication])
    first_ns, last_ns = int(marks["ts_ns"][0]), int(marks["end_ns"][-1])
    window = pl.DataFrame({"ts_ns": [first_ns], "end_ns": [last_ns]})
    is_single = kernels["device"].n_unique() == 1 and last_ns > first_ns
    return ToolFigures(
        time_ms=_mean_ms(marks["end_ns"] - marks["ts_ns"]),
        busy_pct=100 * int(_covered_ns(kernels, window).item()) / (last_ns - first_ns)
        if is_single
        else None,
        compute_ms=_mean_ms(_covered_ns(compute, marks)),
        communication_ms=_mean_ms(_covered_ns(all_, marks) - _covered_ns(before, marks)),
    )


def plugin_steps(trace: Trace) -> pl.DataFrame:
    """``ts_ns, end_ns`` of what the TensorBoard plugin takes for steps, by start."""
    marks = steps(trace).select("ts_ns", end_ns=END)
    if not marks.is_empty():
        return marks
    calls = trace.cpu_ops.drop_nulls(["ts_ns", "dur_ns"])
    return calls.select(pl.col("ts_ns").min(), end_ns=END.max()).drop_nulls()


def _spans(*frames: pl.DataFrame) -> pl.DataFrame:
    return pl.concat([frame.select("ts_ns", "dur_ns") for frame in frames])


def _covered_ns(events: pl.DataFrame, windows: pl.DataFrame) -> pl.Series:
    """How long any of the events runs in each window (``ts_ns, end_ns``)."""
    first, last = (covered_until(events, windows[edge].to_numpy()) for edge in windows.columns)
    return pl.Series(last - first)


def _mean_ms(lengths_ns: pl.Series) -> float:
    return int(lengths_ns.sum()) / len(lengths_ns) / 1e6


def gpu_idle(trace: Trace) -> ToolFigures:
    """What gpu-idle says: kernels that start between the first step and the end of the last one."""
    marks = steps(trace)
    on_host = marks.filter(pl.col("cat") == "user_annotation")
    if on_host.is_empty():
        return ToolFigures()
    on_gpu = marks.filter(pl.col("cat") == "gpu_user_annotation")
    first_ns = int(on_host["ts_ns"][0])
    last_ns = int(pl.concat([on_host, on_gpu]).select(END.max()).item())
    kernels = trace.gpu_events.drop_nulls(["ts_ns", "dur_ns"]).filter(
        _IS_KERNEL & pl.col("ts_ns").is_between(first_ns, last_ns)
    )
    kernel_ns = covered_ns(kernels)
    window_ns = last_ns - first_ns
    return ToolFigures(
        time_ms=window_ns / 1e6,
        busy_pct=100 * kernel_ns / window_ns if window_ns > 0 else None,
        compute_ms=kernel_ns / 1e6,
    )
