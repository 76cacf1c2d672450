"""Tables of the dependency graph that step times are simulated with."""

import polars as pl

from jarvis.schemas.columns import Column, flag, integer, nanoseconds, text
from jarvis.schemas.names import C

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
    nanoseconds(C.w_ns, "Weight", "least time between the nodes"),
    nanoseconds(C.nominal_ns, "Usual", "what is usual for its kind"),
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
TABLES = {"sim_nodes": SIM_NODES, "sim_edges": SIM_EDGES, "sim_spans": SIM_SPANS}
ABOUT = {
    "sim_nodes": "The moments of the recording that step times are simulated from, in an order in "
    "which each comes after those that it waits for.",
    "sim_edges": "What each moment waits for, and how long after it happens at least. The edge "
    "that explains a moment best has the recorded distance, so that the unchanged replay is the "
    "recording; the others have what is usual in the trace.",
    "sim_spans": "Host time by its owner, for changes of host time: operators, annotations, Python "
    "frames of 0.1 ms or more, and calls with a cause of their own. At most 200,000, the longest.",
}
