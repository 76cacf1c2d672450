"""Tables of replayed graphs and their captures."""

from jarvis.schemas.columns import ARGUMENTS, NAMES, UIDS, Column, count, integer, number, text
from jarvis.schemas.names import C

_KEY = text(C.graph_key, "Graph", "equal for replays of the same graph")

GRAPH_LAUNCHES = (
    integer(C.launch_uid, "Launch", "position of the launch call in the trace"),
    _KEY,
    integer(C.graph_id, "Graph id", "id that the profiler recorded"),
    text(C.step, "Step", "annotation of the step around the launch"),
    Column(C.streams, "Streams", UIDS, meaning="streams of its GPU work"),
    count(C.kernel_count, "Kernels", "GPU events of the replay"),
    number(C.time_ms, "Time (ms)", "ms", "sum of their durations"),
    number(C.host_time_us, "Host time (µs)", "µs", "host time of the launch call"),
    text(C.capture_file, "Capture", "file with the captured calls; empty if none fits"),
    integer(C.window, "Window", "position of the capture in its file, from 0"),
    integer(C.batch, "Batch", "tokens that the graph was captured for"),
    text(
        C.mode,
        "Mode",
        "FULL, PIECEWISE if the file has several captures, or EAGER for a step without graphs",
    ),
    text(C.rule, "Paired by", "what paired the events with captured calls"),
    count(C.matched_count, "Matched", "events with a captured call"),
    number(C.coverage_pct, "Coverage (%)", "%", "their share of the time of the replay", ",.1f"),
    count(C.replayed_only_count, "Only replayed", "events without a captured call"),
    count(C.captured_only_count, "Only captured", "captured calls without an event"),
    text(C.confidence, "Chosen by", "what the choice of the capture is based on"),
    text(C.reason, "Reason", "why there is no capture, or what limits the match"),
)
GRAPH_KERNEL_MAP = (
    _KEY,
    count(C.position, "Position", "position of the event in the replay, from 0"),
    text(C.kernel, "Kernel", "name of the event"),
    text(C.block, "Block", "part of the model that the kernel belongs to, by its name"),
    integer(C.kind, "Layer kind", "kind of layer, as in `inference_layers`"),
    integer(C.layer, "Layer", "layer of its kind, as in `inference_layer_times`"),
    integer(C.dispatch, "Call", "position of the captured call, from 0"),
    text(C.operation, "Operator", "operator around the captured call"),
    *ARGUMENTS,
    Column(C.nn_module_chain, "Modules", NAMES, meaning="modules around it, outermost first"),
    text(C.entry_point, "Called from", "nearest Python frame around it, outside frameworks"),
)
TABLES = {"graph_launches": GRAPH_LAUNCHES, "graph_kernel_map": GRAPH_KERNEL_MAP}
ABOUT = {
    "graph_launches": "Each launch of a graph with GPU work, and the capture that its events were "
    "matched with, if there are captures (`--capture-folder`).",
    "graph_kernel_map": "What the events of each graph inherit from the captured calls: operator, "
    "arguments, modules. Graphs and captures may come from different processes, so only order and "
    "names are compared.",
}
