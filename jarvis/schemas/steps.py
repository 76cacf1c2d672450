"""Tables of the steps of a recording, of what the GPU does when, and of simulated steps."""

import polars as pl

from jarvis.schemas.columns import (
    Column,
    count,
    flag,
    integer,
    microseconds,
    nanoseconds,
    number,
    text,
)
from jarvis.schemas.names import C
from jarvis.schemas.tables import IDLE_GAPS

TIMELINE_STATES = (
    nanoseconds(C.start_ns, "Start", "start on the clock of the trace"),
    nanoseconds(C.dur_ns, "Duration", "until the state or its detail changes"),
    text(C.state, "State", "compute, communication, copy or idle"),
    text(
        C.detail,
        "Detail",
        "of compute the op category of the longest kernel that runs; of communication its process "
        "group; of a copy its direction; of idle time its cause; empty if not known",
    ),
)
_STEP = integer(C.step, "Step", "position of the step in the recording, from 0")
STEPS = (
    _STEP,
    text(
        C.source,
        "Source",
        "what marks the steps: `engine` for annotations of an inference engine, `profiler` for "
        "marks of the profiler; `recording` if none are marked, so that the recording is one step",
    ),
    text(C.name, "Name", "annotation that marks the step"),
    integer(
        C.number,
        "Recorded number",
        "number that the profiler gave the step, the same on all ranks of a job; empty "
        "if the mark has none",
        optional=True,
    ),
    count(C.tokens, "Tokens", "if the annotation has them"),
    text(
        C.timed_by,
        "Timed by",
        "`marks`: a step lasts from the start to the end of its mark. `gpu`: from the end of the "
        "GPU work of the step before (of the first step from the start of its own) to the end of "
        "its own GPU work; for engines, and where the steps together take longer by the GPU than "
        "by their marks, because the host runs ahead",
        optional=True,
    ),
    nanoseconds(C.start_ns, "Start", "start of the step, after carried-in work if there is any"),
    nanoseconds(
        C.dur_ns,
        "Step time",
        "to the end of the step, without carried-in work. Empty for a step without GPU work if "
        "steps are timed by the GPU",
    ),
    nanoseconds(C.compute_ns, "Compute", "kernels and fills run, communication kernels excluded"),
    nanoseconds(C.exposed_comm_ns, "Exposed communication", "communication runs and no compute"),
    nanoseconds(C.exposed_copy_ns, "Exposed copies", "copies run, no compute or communication"),
    nanoseconds(
        C.idle_before_ns,
        "Idle before",
        "until the first GPU event in the step; the whole step if there is none",
    ),
    nanoseconds(C.idle_between_ns, "Idle between", "between the first and the last GPU event"),
    nanoseconds(C.idle_after_ns, "Idle after", "after the last GPU event"),
    nanoseconds(
        C.carried_in_ns,
        "Carried in",
        "time in which the GPU finished work from before the recording; not in the step time",
    ),
    nanoseconds(C.host_start_ns, "Host start", "start of the mark"),
    nanoseconds(C.host_dur_ns, "Host time", "duration of the mark"),
    nanoseconds(C.gpu_start_ns, "GPU start", "first start of GPU work that the step launches"),
    nanoseconds(C.gpu_dur_ns, "GPU time", "from there to the last end of this work"),
    count(C.gpu_event_count, "GPU events", "GPU events that the step launches"),
    microseconds(
        C.launch_lead_us,
        "Launch lead",
        "median, over the compute kernels that the step launches, of the time from the start of "
        "the launch call to the start of the kernel: how far the host is ahead of the GPU. Some "
        "µs mean that each kernel starts as soon as it is launched, so the host sets the pace",
        optional=True,
    ),
    nanoseconds(C.excess_ns, "Excess", "step time over the median; empty below three steps"),
    flag(C.is_slow, "Slow", "the step is clearly slower than the median"),
    text(C.slow_part, "Slow part", "part of a slow step that exceeds its median most"),
    text(
        C.slow_cause, "Slow cause", "if that is idle time, the cause of at least half of the excess"
    ),
    text(C.slow_call, "Slow call", "host call in the longest gap of that cause"),
)
OF_GAPS = (
    C.next_name,
    C.launcher_name,
    C.host_call,
    C.host_call_us,
    C.host_op,
    C.host_frame,
    C.host_annotation,
    C.host_copy_uid,
)
"""Columns that the gaps of steps have in common with those between all GPU work."""

STEP_GAPS = (
    _STEP,
    text(
        C.place,
        "Place",
        "before the first GPU event in the step, between GPU events, or after the last one",
    ),
    nanoseconds(C.start_ns, "Start", "start on the clock of the trace"),
    nanoseconds(C.dur_ns, "Duration", "until GPU work starts or the step ends"),
    number(C.percent_of_step, "% of step", "%", "share of the step time", ",.1f"),
    text(C.cause, "Cause", "most likely cause, as in `idle_gaps`"),
    *(column for column in IDLE_GAPS if column.name in OF_GAPS),
)


_INT32, _UINT8 = pl.Int32(), pl.UInt8()

SIM_NODES = (
    Column(
        C.what,
        "What",
        _UINT8,
        meaning="0 start and 1 end of a host call, 2 start and 3 end of GPU work, 4 step mark, "
        "5 begin and 6 end of the recording",
    ),
    integer(C.uid, "Event", "the event; negative for marks, begin and end"),
    nanoseconds(C.t_ns, "Time", "recorded time after the first event"),
    Column(C.thread, "Thread", _INT32, meaning="number of the host thread, or -1"),
    Column(C.device, "Device", _INT32, meaning="of GPU work, or -1"),
    integer(C.stream, "Stream", "of GPU work, or -1"),
)
SIM_EDGES = (
    Column(C.src, "From", _INT32, meaning="node that is awaited, by its row in `sim_nodes`"),
    Column(C.dst, "To", _INT32, meaning="node that waits"),
    Column(
        C.kind,
        "Kind",
        _UINT8,
        meaning="0 duration, 1 host order, 2 launch, 3 stream order, 4 event wait, "
        "5 synchronization, 6 launch queue, 7 begin, 8 end, 9 work without a recorded launch",
    ),
    nanoseconds(C.w_ns, "Weight", "minimum time between the nodes"),
    nanoseconds(C.nominal_ns, "Usual", "usual time of edges of its kind"),
    flag(C.is_binding, "Binding", "the edge explains the recorded time best"),
    flag(C.is_inferred, "Inferred", "only nearness in time suggests the edge"),
)
SIM_SPANS = (
    integer(C.uid, "Event", "the host event"),
    text(C.name, "Name", "operator, annotation, Python frame or runtime call"),
    text(
        C.cause,
        "Cause",
        "`data_loading`, `allocator`, `kernel_loading`, `synchronization`, `operator`, "
        "`annotation` or `python`",
    ),
    Column(C.thread, "Thread", _INT32, meaning="number of the host thread"),
    nanoseconds(C.start_ns, "Start", "on the clock of the trace"),
    nanoseconds(C.end_ns, "End", "on the clock of the trace"),
)
SIMULATION = {"sim_nodes": SIM_NODES, "sim_edges": SIM_EDGES, "sim_spans": SIM_SPANS}
ABOUT_SIMULATION = {
    "sim_nodes": "The moments of the recording that step times are simulated from, in an order in "
    "which each comes after those that it waits for.",
    "sim_edges": "What each moment waits for, and the minimum time after it. The edge that "
    "explains a moment best has the recorded time, so that a replay without changes is the "
    "recording; the others have the usual time of their kind in the trace.",
    "sim_spans": "Host time by its owner, for changes of host time: operators, annotations, Python "
    "frames of 0.1 ms or more, and calls with a cause of their own. At most 200,000, the longest.",
}
