"""Sheets of the report: our column names with TraceLens's labels."""

from dataclasses import replace

import polars as pl

from jarvis.schemas.columns import (
    ANY_PARAM,
    ARGUMENTS,
    KERNEL_STATS,
    NAMES,
    SPREAD,
    Column,
    count,
    flag,
    integer,
    names,
    number,
    percent,
    statistics,
    text,
)
from jarvis.schemas.names import C
from jarvis.schemas.trace_diff import COMPARED

_PERCENT = (
    percent(C.percent, "Percentage", "share of the sum over all rows of the sheet"),
    percent(C.cumulative_percent, "Cumulative Percentage", "running sum of the shares above"),
)
THREAD = (
    text(C.process_name, "process_name", "process that made the call"),
    text(C.process_label, "process_label", "label of the process, such as CPU"),
    text(C.thread_name, "thread_name", "thread that made the call"),
)
NAME = text(C.name, "name", "operator, or runtime call, of the row")
OP_CATEGORY = text(
    C.op_category, "op category", "kind of operator, by its name or by the name of its first kernel"
)
EX_UID = integer(C.ex_uid, "ex_UID", "position in the trace of an example call")
OPERATION_COUNT = count(C.operation_count, "operation_count", "calls in the row")
_KERNELS_SUMMARY = (
    Column(
        C.kernel_details,
        "kernel_details_summary",
        KERNEL_STATS,
        meaning="kernels of a call by position, with statistics over the calls that launch as many "
        "kernels as the first; if calls differ, positions can mix kernels",
    ),
    text(
        C.trunc_kernel_details,
        "trunc_kernel_details",
        "the kernels, with names cut to 64 characters",
    ),
)
_NUM_KERNELS = replace(
    count(
        C.num_kernels,
        "num_kernels",
        "GPU events of one call; calls with another number are in another row",
    ),
    optional=True,
)
_IS_RECOMPUTE = flag(
    C.is_recompute,
    "is_recompute",
    "runs again in the backward pass because of activation checkpointing",
    optional=True,
)
_OVERLAPPING_NAMES = names(
    C.overlapping_kernel_names,
    "overlapping_kernel_names",
    "work of other streams that runs at the same time as the kernels of the call",
    optional=True,
)
_OVERLAP = (
    Column(
        C.overlapping_kernels,
        "overlapping_kernels_details_summary",
        KERNEL_STATS,
        meaning="that work by name, with statistics of its mean duration over the calls",
        optional=True,
    ),
    text(
        C.trunc_overlapping_kernels,
        "trunc_overlapping_kernels_details",
        "the same, with names cut to 64 characters",
        optional=True,
    ),
    *statistics(
        "overlap_pct",
        "overlap_pct",
        "",
        "share of the busy time of the call in which other streams work too, from 0 to 1; above 1 "
        "if the kernels of the call overlap each other",
        optional=True,
    ),
)
_PARENT_MODULE = text(
    C.parent_module,
    "parent_module",
    "innermost module around the call, without instance number; NA if there is none",
    optional=True,
)


def _call_stack(name: str, label: str) -> Column:
    meaning = "name of the first call and of the modules around it, innermost first"
    return names(name, label, meaning, optional=True)


_CALL_STACK_FIRST = _call_stack(C.call_stack_first, "call_stack_first")
_KERNEL_CALL_STACKS = Column(
    C.kernel_call_stacks,
    "kernel_call_stacks",
    pl.List(NAMES),
    meaning="call stack of each kernel of the summary: modules, Python frames and operators, "
    "outermost first",
    optional=True,
)
KERNEL_TIME = "GPU busy time of the call: union of the intervals of all GPU work below it"
_DIRECT = "GPU busy time of work that the operator launches itself, without communication"
_SUBTREE = "GPU busy time of all work below the operator, including communication"


def _roofline_metrics(suffix: str) -> tuple[Column, ...]:
    return (
        number(
            C.gflops,
            f"GFLOPS{suffix}",
            "GFLOP",
            "floating-point work of one call by its perf model",
        ),
        number(
            C.data_moved_mb,
            f"Data Moved (MB){suffix}",
            "MiB",
            "minimum memory traffic of one call by its perf model; not measured",
        ),
        number(C.flops_per_byte, f"FLOPS/Byte{suffix}", "FLOP/byte", "arithmetic intensity"),
    )


_RATES = (
    statistics(C.tb_per_s, "TB/s", "TB/s", "modeled bytes over GPU busy time"),
    statistics(C.tflops_per_s, "TFLOPS/s", "TFLOP/s", "modeled FLOPs over GPU busy time"),
)
_COMPUTE_SPEC = text(
    C.compute_spec, "Compute Spec", "compute unit and precision whose peak applies"
)
_ROOFLINE_TIME = number(
    C.roofline_time_us,
    "Roofline Time (µs)_first",
    "µs",
    "longer of FLOPs over compute peak and bytes over bandwidth peak, of one call",
    optional=True,
)
_PCT_ROOFLINE = statistics(
    C.pct_roofline, "Pct Roofline", "%", "roofline time over GPU busy time", optional=True
)
BOUND_MEANING = "which of the two peaks limits the call; memory only: the compute peak is not known"


def _bound(label: str) -> Column:
    return text(C.roofline_bound, label, BOUND_MEANING, optional=True)


def _pairs(which: tuple[str, ...]) -> tuple[Column, ...]:
    """Return direct and subtree time side by side for each statistic, as in the sheet."""
    return tuple(
        column
        for statistic in which
        for name, label, meaning in (
            (C.direct_kernel_time_us, "total_direct_kernel_time", _DIRECT),
            (C.subtree_kernel_time_us, "total_subtree_kernel_time", _SUBTREE),
        )
        for column in statistics(name, label, "µs", meaning, (statistic,))
    )


GPU_TIMELINE = (
    text(C.type, "type", "part of the GPU timeline, all devices and streams together"),
    number(C.time_ms, "time ms", "ms", "length of that part"),
    number(C.percent, "percent", "%", "share of total_time, first GPU start to last GPU end"),
    _IS_RECOMPUTE,
)
OPS_SUMMARY_BY_CATEGORY = (
    OP_CATEGORY,
    _PARENT_MODULE,
    _IS_RECOMPUTE,
    count(C.count, "Count", "operators that launched GPU work"),
    _CALL_STACK_FIRST,
    number(C.direct_kernel_time_ms, "total_direct_kernel_time_ms", "ms", _DIRECT),
    *_PERCENT,
)
OPS_SUMMARY = (
    NAME,
    _PARENT_MODULE,
    _IS_RECOMPUTE,
    number(C.direct_kernel_time_us, "total_direct_kernel_time_sum", "µs", _DIRECT),
    number(C.subtree_kernel_time_us, "total_subtree_kernel_time_sum", "µs", _SUBTREE),
    replace(
        count(C.subtree_kernel_time_count, "total_subtree_kernel_time_count", "summed times"),
        optional=True,
    ),
    number(C.direct_kernel_time_ms, "total_direct_kernel_time_ms", "ms", _DIRECT),
    number(C.subtree_kernel_time_ms, "total_subtree_kernel_time_ms", "ms", _SUBTREE, optional=True),
    count(C.count, "Count", "operators that launched GPU work"),
    names(C.categories, "Categories", "op categories of these operators"),
    _CALL_STACK_FIRST,
    *_PERCENT,
)
OPS_UNIQUE_ARGS = (
    NAME,
    _OVERLAPPING_NAMES,
    OP_CATEGORY,
    _PARENT_MODULE,
    *THREAD,
    *ARGUMENTS,
    _NUM_KERNELS,
    _IS_RECOMPUTE,
    OPERATION_COUNT,
    number(
        C.first_occurrence_time,
        "first_occurrence_time",
        "µs",
        "start of the first call, relative to the first call of all rows",
        optional=True,
    ),
    *_pairs((*SPREAD, "sum")),
    EX_UID,
    _call_stack(C.call_stack, "call_stack"),
    *_KERNELS_SUMMARY,
    *_OVERLAP,
    *_PERCENT,
)
HOST = "host time of the call"
UNIFIED_PERF_SUMMARY = (
    NAME,
    _OVERLAPPING_NAMES,
    OP_CATEGORY,
    *THREAD,
    *ARGUMENTS,
    _IS_RECOMPUTE,
    EX_UID,
    OPERATION_COUNT,
    number(C.host_time_us_sum, "total_duration_us", "µs", f"{HOST}; sum over the calls"),
    number(C.host_time_us_mean, "mean_duration_us", "µs", f"{HOST}; mean over the calls"),
    number(
        C.host_time_us_std, "std_duration_us", "µs", f"{HOST}; sample standard deviation of calls"
    ),
    *_roofline_metrics(""),
    _COMPUTE_SPEC,
    _bound("Roofline Bound"),
    *(c for rate in _RATES for c in (rate[0], rate[2])),
    *statistics(C.kernel_time_us, "Kernel Time (µs)", "µs", KERNEL_TIME, ("mean", "std", "sum")),
    *COMPARED,
    *statistics(C.host_time_us, "duration_us", "µs", HOST, ("median", "min", "max")),
    *(c for rate in _RATES for c in (rate[1], rate[3], rate[4])),
    _ROOFLINE_TIME,
    *_PCT_ROOFLINE,
    *statistics(C.kernel_time_us, "Kernel Time (µs)", "µs", KERNEL_TIME, ("median", "min", "max")),
    *_KERNELS_SUMMARY,
    _KERNEL_CALL_STACKS,
    *_OVERLAP,
    text(C.perf_params, "perf_params", "parameters that the perf model reads from the arguments"),
    flag(C.has_perf_model, "has_perf_model", "a perf model applies to the call"),
    text(
        C.entry_point,
        "entry_point",
        "Python frame from which the operator was called, skipping framework wrappers",
        optional=True,
    ),
    text(
        C.call_stack_full,
        "call_stack_full",
        "modules, Python frames and operators above the kernels of the first call, "
        "outermost first; if kernels differ, a list for each after the shared part",
        optional=True,
    ),
    *_PERCENT,
)
ROOFLINE = (
    NAME,
    _OVERLAPPING_NAMES,
    text(ANY_PARAM, "param: *", "parameters of the perf model, one column each"),
    _NUM_KERNELS,
    _IS_RECOMPUTE,
    *_roofline_metrics("_first"),
    *_RATES[0],
    *_RATES[1],
    *(Column(c.name, f"{c.label}_first", c.dtype, meaning=c.meaning) for c in THREAD),
    _COMPUTE_SPEC,
    _ROOFLINE_TIME,
    _bound("Roofline Bound_first"),
    *_PCT_ROOFLINE,
    Column(
        C.kernel_details,
        "kernel_details__summarize_kernel_stats",
        KERNEL_STATS,
        meaning=_KERNELS_SUMMARY[0].meaning,
    ),
    _KERNELS_SUMMARY[1],
    *_OVERLAP,
    *(Column(c.name, f"{c.label}_first", c.dtype, meaning=c.meaning) for c in ARGUMENTS),
    *statistics(C.kernel_time_us, "Kernel Time (µs)", "µs", KERNEL_TIME, (*SPREAD, "sum")),
    count(C.name_count, "name_count", "calls in the row"),
    integer(C.uid_first, "UID_first", "position in the trace of the first call"),
)
COLL_ANALYSIS = (
    count(C.rank, "rank", "always 0: a single trace is its own rank 0"),
    text(C.process_group_name, "Process Group Name", "name of the process group"),
    text(C.process_group_ranks, "Process Group Ranks", "ranks of the process group"),
    text(C.collective, "Collective name", "kind of collective"),
    count(C.group_size, "Group size", "ranks that take part"),
    text(C.dtype, "dtype", "element type"),
    count(C.in_msg_nelems, "In msg nelems", "elements sent by this rank"),
    count(C.out_msg_nelems, "Out msg nelems", "elements received by this rank"),
    text(C.in_split_size, "In split size", "elements for each rank, if they differ"),
    text(C.out_split_size, "Out split size", "elements from each rank, if they differ"),
    integer(C.stream, "stream", "stream on which the kernels ran"),
    number(C.in_msg_mb, "In msg size (MB)_first", "MiB", "size of the message sent"),
    number(C.out_msg_mb, "Out msg size (MB)_first", "MiB", "size of the message received"),
    *statistics(
        C.dur_us,
        "dur",
        "µs",
        "duration of the kernel, including waiting for other ranks",
        ("sum", "mean", "std", "min", "max"),
    ),
    OPERATION_COUNT,
)
_DURATION = ("sum", "count", "mean", "min", "max")
_KERNEL_DURATION = "duration of the kernel"
KERNEL_SUMMARY = (
    text(
        C.parent_op_category,
        "Parent op category",
        "op category of the operator; graph or runtime if no operator launched the kernel",
    ),
    text(
        C.parent_cpu_op,
        "Parent cpu_op",
        "nearest operator above the launch, or the runtime call",
        optional=True,
    ),
    text(C.kernel_name, "Kernel name", "name of the kernel"),
    integer(C.kernel_stream, "Kernel stream", "stream index"),
    number(C.dur_us_sum, "Kernel duration (µs)_sum", "µs", f"{_KERNEL_DURATION}; sum"),
    count(C.dur_us_count, "Kernel duration (µs)_count", "kernels in the row"),
    *statistics(C.dur_us, "Kernel duration (µs)", "µs", _KERNEL_DURATION, ("mean", "min", "max")),
    percent(C.percent_of_kernels, "Percent of kernels time", "share of all kernels' time"),
    percent(
        C.percent_of_total,
        "Percent of total time",
        "share of total_time of the GPU timeline, which may exclude work that these rows count",
    ),
)
SHORT_KERNEL_HISTOGRAM = (
    number(C.bin_start, "bin_start", "µs", "shortest duration of the bin"),
    number(C.bin_end, "bin_end", "µs", "start of the next bin; the last bin includes it"),
    count(C.count, "count", "kernels in the bin"),
)
SHORT_KERNELS_SUMMARY = (
    text(
        C.parent_cpu_op,
        "Parent cpu_op",
        "nearest operator above the launch; kernels without one are excluded",
        optional=True,
    ),
    *(
        text(c.name, label, c.meaning, optional=True)
        for c, label in zip(
            (ARGUMENTS[0], ARGUMENTS[2], ARGUMENTS[3]),
            ("Input dims", "Input strides", "Concrete Inputs"),
            strict=True,
        )
    ),
    text(C.kernel_name, "Kernel name", "name of the kernel"),
    number(C.dur_us_sum, "Short Kernel duration (µs) sum", "µs", f"{_KERNEL_DURATION}; sum"),
    count(C.dur_us_count, "Short Kernel count", "short kernels in the row"),
    number(C.dur_us_mean, "Short Kernel duration (µs) mean", "µs", f"{_KERNEL_DURATION}; mean"),
    number(
        C.percent_of_total,
        "Short Kernel duration (µs) percent of total time",
        "%",
        "share of total_time of the GPU timeline",
    ),
)
