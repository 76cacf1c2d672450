"""Tables of replayed graphs and their captures."""

from jarvis.schemas.columns import ARGUMENTS, INTEGER, NAMES, UIDS, Column, count, number, text
from jarvis.schemas.names import C

_KEY = text(C.graph_key, "Graph", "equal for replays of the same graph")

GRAPH_LAUNCHES = (
    Column(C.launch_uid, "Launch", INTEGER, meaning="position of the launch call in the trace"),
    _KEY,
    Column(C.graph_id, "Graph id", INTEGER, meaning="id that the profiler recorded"),
    text(C.step, "Step", "annotation of the step around the launch"),
    Column(C.streams, "Streams", UIDS, meaning="streams of its GPU work"),
    count(C.kernel_count, "Kernels", "GPU events of the replay"),
    number(C.time_ms, "Time (ms)", "ms", "sum of their durations"),
    number(C.host_time_us, "Host time (µs)", "µs", "host time of the launch call"),
    text(C.capture_file, "Capture", "file with the captured calls; empty if none fits"),
    Column(C.window, "Window", INTEGER, meaning="position of the capture in its file, from 0"),
    Column(C.batch, "Batch", INTEGER, meaning="tokens that the graph was captured for"),
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
    Column(C.kind, "Layer kind", INTEGER, meaning="kind of layer, as in `inference_layers`"),
    Column(C.layer, "Layer", INTEGER, meaning="layer of its kind, as in `inference_layer_times`"),
    Column(C.dispatch, "Call", INTEGER, meaning="position of the captured call, from 0"),
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
