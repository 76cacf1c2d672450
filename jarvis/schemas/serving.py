"""Tables of inference: steps, phases, layers; replayed graphs and their captures."""

from functools import partial

from jarvis.schemas.columns import (
    ARGUMENTS,
    Column,
    count,
    flag,
    integer,
    microseconds,
    milliseconds,
    names,
    number,
    percent,
    text,
    uids,
)
from jarvis.schemas.names import C


def _optional(name: str, label: str, meaning: str) -> Column:
    return count(name, label, f"{meaning}; empty if not known")


_us = partial(microseconds, fmt=",.1f")
_percent = partial(percent, fmt=",.1f")

INFERENCE_STEPS = (
    integer(C.step, "Step", "position of the step in the recording, from 0"),
    integer(
        C.part,
        "Part",
        "position of a part of a step, from 0: the replays of one graph in a row, and what "
        "is before and after them; empty for whole steps",
    ),
    text(
        C.source,
        "Source",
        "what marks it: `engine` for annotations of an inference engine, `profiler` for marks of "
        "the profiler, `graph` for replays of one graph in a row, `calls` for calls of the same "
        "modules in a row, `recording` if nothing does",
    ),
    text(C.engine, "Engine", "engine whose form the annotation has"),
    text(C.name, "Name", "annotation that marks the step"),
    text(
        C.phase,
        "Phase",
        "`prefill`, `decode`, `mixed` or `diffusion`; of parts `encode`, `denoise` and "
        "`image_decode`; empty if not known",
    ),
    flag(
        C.is_cut,
        "Cut",
        "GPU work of launches in the step is not recorded, so its figures are too small",
    ),
    text(
        C.launch_mode,
        "Launch mode",
        "`eager`: no GPU graphs; `graph`: nearly all GPU time is replayed by one graph launch; "
        "`piecewise`: by several; `mixed`: otherwise",
    ),
    count(C.graph_launches, "Graph launches", "launches of GPU graphs"),
    _optional(C.ctx_requests, "Context requests", "requests in their context phase"),
    _optional(C.gen_requests, "Generation requests", "requests in their generation phase"),
    _optional(C.ctx_tokens, "Context tokens", "tokens of requests in their context phase"),
    _optional(C.gen_tokens, "Generated tokens", "tokens of requests in their generation phase"),
    _optional(C.kv_tokens, "KV tokens", "keys that attention reads, those of the cache included"),
    _optional(C.padded_requests, "Padded requests", "batch to which the engine pads the requests"),
    text(C.resolution, "Resolution", "width and height of generated pictures"),
    milliseconds(
        C.host_start_ms, "Host start", "start of the mark, after the first start of GPU work"
    ),
    milliseconds(C.host_end_ms, "Host end", "end of the mark, likewise"),
    milliseconds(
        C.gpu_start_ms, "GPU start", "first start of the step's GPU work after carried-in work"
    ),
    milliseconds(C.gpu_end_ms, "GPU end", "last end of the step's GPU work"),
    milliseconds(
        C.step_time_ms,
        "Step time",
        "from the end of the GPU work of the step before, or the start of its own, to the end of "
        "its own, without carried-in work; see `timed_by` of the table `steps`",
    ),
    milliseconds(
        C.busy_ms, "Busy", "time in which GPU work of the step runs, from its GPU start on"
    ),
    milliseconds(
        C.gap_before_ms,
        "Gap before",
        "from the end of the GPU work of the step before; 0 if they overlap",
    ),
    milliseconds(
        C.gap_inside_ms, "Gap inside", "between GPU start and end, no GPU work of the step runs"
    ),
    milliseconds(
        C.carried_in_ms,
        "Carried in",
        "time in which the GPU finished work from before the recording; not in the step time",
    ),
    count(C.gpu_event_count, "GPU events", "GPU events that the step launches"),
    count(C.kernel_count, "Kernels", "those of them that are not copies"),
    count(C.short_kernel_count, "Short kernels", "kernels below 10 µs"),
    milliseconds(C.short_kernels_ms, "Short kernels time", "sum of their durations"),
    milliseconds(C.comm_ms, "Communication", "sum of the durations of communication kernels"),
    milliseconds(C.exposed_comm_ms, "Exposed communication", "communication runs and no compute"),
    _percent(C.modelled_pct, "Modeled", "share of kernel time with a perf model"),
    number(C.flops, "FLOPs", "", "sum of those of calls with a perf model", ",.4g"),
    number(C.bytes, "Bytes", "bytes", "sum of those of calls with a perf model", ",.4g"),
    text(
        C.cost_source,
        "Costs from",
        "`perf models` of calls with shapes, or `config`: FLOPs and bytes are those of the model's "
        "configuration; empty if less than 90% of the kernel time is modeled and neither is known",
    ),
    milliseconds(
        C.lower_bound_ms,
        "Lower bound",
        "sum over the blocks of the configuration of the longer of FLOPs over peak and bytes over "
        "bandwidth; empty without a configuration",
    ),
    number(C.tokens_per_s, "Tokens/s", "1/s", "tokens over the step time", ",.0f"),
    milliseconds(
        C.itl_ms, "ITL", "inter-token latency: the step time of steps that generate tokens"
    ),
    _percent(
        C.mfu_pct,
        "MFU",
        "FLOPs of matrix units over what their peak does in the step time; empty if less than "
        "90% of the kernel time is modeled, or a peak is not known",
    ),
    _percent(
        C.mbu_pct,
        "MBU",
        "bytes over what the peak bandwidth moves in the step time; empty likewise",
    ),
    _percent(C.padding_pct, "Padding", "share of padding in the batch; empty if not known"),
)

INFERENCE_LAYERS = (
    text(C.phase, "Phase", "phase of the steps, as in `inference_steps`"),
    integer(
        C.kind, "Kind", "kind of layer, from 0, by the kernels that repeat; empty for the rest"
    ),
    _optional(C.layer_count, "Layers", "layers of the kind in one sequence of kernels"),
    integer(C.position, "Position", "position in the period, from 0"),
    text(C.block, "Block", "block of a model that the kernel belongs to, by its name"),
    text(C.kernel, "Kernel", "kernel at this position; the first one if they differ"),
    text(
        C.operation,
        "Operation",
        "operation with most of the time at this position; empty for replayed kernels without a "
        "capture",
    ),
    integer(C.operation_uid, "Operation UID", "row of the operations table"),
    text(C.shapes, "Shapes", "sides of a matrix product, else the shapes of the arguments"),
    text(C.module, "Module", "class of the innermost module around the operation"),
    text(
        C.population,
        "Population",
        "`fast` and `slow` if the layers have two times in a regular order, `varies` if in none; "
        "else empty",
    ),
    count(C.count, "Calls", "kernels at this position in all layers and steps"),
    _us(C.mean_us, "Mean", "mean duration"),
    _us(C.p50_us, "p50", "median duration"),
    _us(C.p95_us, "p95", "95th percentile of the durations"),
    _us(C.max_us, "Max", "longest duration"),
    _percent(
        C.pct_roofline,
        "Efficiency",
        "roofline time over kernel time of all calls of the operation; empty without perf model",
    ),
    _percent(C.share_pct, "Share", "share of the GPU time of the phase"),
    _percent(
        C.sequence_pct,
        "Share of sequence",
        "share of the GPU time of the kernels that are launched in a row with it; empty outside "
        "layers",
    ),
    text(
        C.layer_module,
        "Layer module",
        "class of the modules that change from layer to layer; empty if no modules are recorded",
    ),
    _optional(C.module_count, "Layer modules", "instances of that class in one sequence"),
)
INFERENCE_LAYER_TIMES = (
    text(C.phase, "Phase", "phase of the steps, as in `inference_steps`"),
    integer(C.kind, "Kind", "kind of layer, as in `inference_layers`"),
    integer(C.layer, "Layer", "position of the period among those of its kind in a step, from 0"),
    text(C.block, "Block", "block of a model that the kernels belong to"),
    _us(C.kernel_time_us, "Time", "time of the kernels of the block, the mean of the steps"),
)
INFERENCE_EVENTS = (
    integer(C.uid, "UID", "position of the GPU event in the trace"),
    integer(C.step, "Step", "step that launches it, as in `inference_steps`"),
    integer(
        C.graph_launch_uid,
        "Graph launch",
        "launch call of the graph that replays it; empty for others",
    ),
    text(C.phase, "Phase", "phase of the step"),
    text(C.block, "Block", "block of a model that it belongs to, by its name"),
    integer(C.kind, "Kind", "kind of its layer; empty outside layers"),
    integer(C.layer, "Layer", "its layer, as in `inference_layer_times`"),
    integer(C.position, "Position", "its position in the period, from 0"),
)
INFERENCE_PHASES = (
    text(C.phase, "Phase", "phase of the steps or parts, as in `inference_steps`"),
    count(C.step_count, "Steps", "steps or parts of the phase"),
    milliseconds(C.time_ms, "Time", "sum of their step times"),
    _percent(C.share_pct, "Share", "share of the time of all steps"),
    _optional(C.tokens, "Tokens", "tokens of both kinds of requests"),
    number(C.tokens_per_s, "Tokens/s", "1/s", "tokens over the time", ",.0f"),
    milliseconds(C.mean_ms, "Mean", "mean step time"),
    milliseconds(C.p50_ms, "p50", "median step time"),
    milliseconds(C.p95_ms, "p95", "95th percentile of the step times"),
    _percent(C.mfu_pct, "MFU", "over the time; empty if one of a step is not known"),
    _percent(C.mbu_pct, "MBU", "over the time; empty likewise"),
    text(C.top_blocks, "Top blocks", "blocks with most GPU time, and their shares of it"),
)
TABLES = {
    "inference_steps": INFERENCE_STEPS,
    "inference_phases": INFERENCE_PHASES,
    "inference_layers": INFERENCE_LAYERS,
    "inference_layer_times": INFERENCE_LAYER_TIMES,
    "inference_events": INFERENCE_EVENTS,
}


_GRAPH = text(C.graph_key, "Graph", "equal for replays of the same graph")

GRAPH_LAUNCHES = (
    integer(C.launch_uid, "Launch", "position of the launch call in the trace"),
    _GRAPH,
    integer(C.graph_id, "Graph id", "id that the profiler recorded"),
    text(C.step, "Step", "annotation of the step around the launch"),
    uids(C.streams, "Streams", "streams of its GPU work"),
    count(C.kernel_count, "Kernels", "GPU events of the replay"),
    milliseconds(C.time_ms, "Time", "sum of their durations"),
    microseconds(C.host_time_us, "Host time", "host time of the launch call"),
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
    percent(C.coverage_pct, "Coverage", "their share of the time of the replay", ",.1f"),
    count(C.replayed_only_count, "Only replayed", "events without a captured call"),
    count(C.captured_only_count, "Only captured", "captured calls without an event"),
    text(C.confidence, "Chosen by", "what the choice of the capture is based on"),
    text(C.reason, "Reason", "why there is no capture, or what limits the match"),
)
GRAPH_KERNEL_MAP = (
    _GRAPH,
    count(C.position, "Position", "position of the event in the replay, from 0"),
    text(C.kernel, "Kernel", "name of the event"),
    text(C.block, "Block", "part of the model that the kernel belongs to, by its name"),
    integer(C.kind, "Layer kind", "kind of layer, as in `inference_layers`"),
    integer(C.layer, "Layer", "layer of its kind, as in `inference_layer_times`"),
    integer(C.dispatch, "Call", "position of the captured call, from 0"),
    text(C.operation, "Operator", "operator around the captured call"),
    *ARGUMENTS,
    names(C.nn_module_chain, "Modules", "modules around it, outermost first"),
    text(C.entry_point, "Called from", "nearest Python frame around it, outside frameworks"),
)
CAPTURES = {"graph_launches": GRAPH_LAUNCHES, "graph_kernel_map": GRAPH_KERNEL_MAP}
ABOUT_CAPTURES = {
    "graph_launches": "Each launch of a graph with GPU work, and the capture that its events were "
    "matched with, if there are captures (`--capture-folder`).",
    "graph_kernel_map": "What the events of each graph inherit from the captured calls: operator, "
    "arguments, modules. Graphs and captures may come from different processes, so only order and "
    "names are compared.",
}
