"""Tables of Jarvis for the analyses and the dashboard."""

from dataclasses import replace

from jarvis.schemas.columns import (
    ARGUMENTS,
    KERNELS,
    POPULATIONS,
    Column,
    count,
    flag,
    integer,
    microseconds,
    names,
    nanoseconds,
    number,
    percent,
    size,
    text,
    uids,
)
from jarvis.schemas.names import C
from jarvis.schemas.sheets import (
    BOUND_MEANING,
    EX_UID,
    HOST,
    KERNEL_TIME,
    NAME,
    OP_CATEGORY,
    THREAD,
)

OPERATIONS = (
    integer(C.uid, "UID", EX_UID.meaning),
    text(C.name, "Operation", NAME.meaning),
    text(C.op_category, "Op category", OP_CATEGORY.meaning),
    text(C.direction, "Direction", "forward or backward pass, if known from the op category"),
    text(C.process_name, "Process", THREAD[0].meaning),
    text(C.thread_name, "Thread", THREAD[2].meaning),
    *ARGUMENTS,
    count(C.operation_count, "Count", "calls with these arguments"),
    microseconds(C.kernel_time_us, "Kernel time", f"{KERNEL_TIME}; sum over the calls"),
    microseconds(C.kernel_time_us_mean, "Mean kernel time", "mean over the calls"),
    microseconds(
        C.kernel_time_us_std,
        "Std of kernel time",
        "sample standard deviation over the calls; empty for one call",
    ),
    Column(
        C.populations,
        "Groups of calls",
        POPULATIONS,
        "µs",
        meaning="groups of calls whose kernel times lie apart, shortest first: their number, sum, "
        "mean, least and longest time, whether they are outliers, and the kernel or the modules "
        "that only these calls have; empty if all calls are one group",
        optional=True,
    ),
    microseconds(C.host_time_us, "Host time", f"{HOST}; sum over the calls"),
    count(C.kernel_count, "Kernels", "GPU events of all calls: kernels, copies, fills"),
    microseconds(C.comm_time_us, "Communication time", "busy time of communication kernels inside"),
    flag(C.has_perf_model, "Perf model", "FLOPs or bytes of the call are known"),
    text(
        C.model_origin,
        "Model origin",
        "`tracelens` if TraceLens has the perf model too, `jarvis` if only Jarvis has it, "
        "`extension` for a user's model, `report` if FLOPs and bytes come from an imported report",
    ),
    number(
        C.flops,
        "FLOPs",
        "FLOP",
        "floating-point work of one call, the mean where calls differ",
        ",.0f",
    ),
    number(
        C.bytes,
        "Bytes",
        "bytes",
        "minimum memory traffic of one call: each input read and each output written once; not "
        "measured, caches can make the real traffic smaller or larger",
        ",.0f",
    ),
    number(C.flops_per_byte, "FLOPs/byte", "FLOP/byte", "arithmetic intensity: FLOPs / bytes"),
    text(C.compute, "Compute peak", "compute unit and precision whose peak applies"),
    number(C.tflops_per_s, "TFLOP/s", "TFLOP/s", "FLOPs of all calls / kernel time of all calls"),
    number(C.tb_per_s, "TB/s", "TB/s", "bytes of all calls / kernel time of all calls"),
    number(C.peak_tflops, "Peak TFLOP/s", "TFLOP/s", "compute peak of the hardware description"),
    number(C.peak_tb_per_s, "Peak TB/s", "TB/s", "bandwidth peak of the hardware description"),
    microseconds(
        C.roofline_time_us,
        "Roofline time",
        "longer of FLOPs / compute peak and bytes / bandwidth peak, of one call",
    ),
    text(C.bound, "Bound", BOUND_MEANING),
    percent(
        C.pct_roofline,
        "Efficiency",
        "roofline time of all calls / kernel time of all calls; over 100 means that the model or "
        "the peak does not apply, for instance because of cached data",
        ",.1f",
    ),
    text(C.roofline_note, "Efficiency note", "why efficiency is missing, or how it was determined"),
    text(C.params, "Parameters", "parameters of the perf model as JSON"),
    Column(
        C.kernels,
        "GPU kernels",
        KERNELS,
        meaning="GPU work of all calls by kernel name and stream, longest first",
    ),
    names(
        C.launcher_names, "Launched by", "operators that launch the kernels, as in the ops sheets"
    ),
    uids(
        C.launcher_uids,
        "Launcher UIDs",
        "position in the trace of the launching operators of the example call",
    ),
    names(
        C.module_path,
        "Module path",
        "modules around the example call (in a backward pass of its forward op), outermost "
        "first; empty without Python stacks",
    ),
    text(
        C.entry_point,
        "Entry point",
        "nearest Python frame outside the framework around the example call or its forward op",
    ),
    flag(
        C.is_in_fsdp,
        "In FSDP",
        "a function of FSDP makes the example call, so its copies serve a collective",
        optional=True,
    ),
    number(
        C.percent_of_compute,
        "% of compute",
        "%",
        "kernel time / computation time; sums exceed 100 if kernels run at the same time",
        ",.2f",
    ),
    number(
        C.percent_of_total,
        "% of total",
        "%",
        "kernel time / total time of the GPU timeline",
        ",.2f",
    ),
    microseconds(
        C.saved_step_us,
        "Saving of all steps",
        "what all recorded steps together gain if only this operation reaches the target "
        "efficiency: the recording is replayed with its GPU events shorter; 0 if the steps do not "
        "wait for them; empty if they get shorter by less than 0.02% of the steps, without a "
        "reliable efficiency, or if step times are not simulated",
        ",.1f",
        optional=True,
    ),
    microseconds(
        C.path_us,
        "On the critical path",
        "time of its GPU events on the chain of moments that the end of the recorded steps waited "
        "for; empty if step times are not simulated",
        ",.1f",
        optional=True,
    ),
)
GPU_WORK = (
    integer(C.uid, "UID", "position of the GPU event in the trace"),
    text(C.kind, "Kind", "compute, communication or copy"),
    text(C.cat, "Event category", "category of the event in the trace"),
    text(C.name, "Kernel", "name of the kernel, copy or fill"),
    nanoseconds(C.ts_ns, "Start", "start on the clock of the trace"),
    nanoseconds(C.dur_ns, "Duration", "duration"),
    integer(C.device, "Device", "device index"),
    integer(C.stream, "Stream", "stream index"),
    flag(C.linked, "Linked", "a runtime call in the trace launched it"),
    integer(C.launch_uid, "Launch UID", "that runtime call"),
    integer(C.launcher_uid, "Launcher UID", "operator that made the call"),
    text(C.launcher_name, "Launcher", "name of that operator, or of the call if there is none"),
    integer(C.operation_uid, "Operation UID", "row of the operations table, if any"),
    size(C.bytes, "Bytes", "size of a copy"),
    text(C.direction, "Direction", "H2D, D2H, D2D or other for copies"),
    text(C.src_kind, "Source memory", "memory that a copy reads, such as Pageable"),
    text(C.dst_kind, "Destination memory", "memory that a copy writes"),
)
MEMORY_COPIES = (
    text(C.direction, "Direction", "H2D, D2H, D2D or other"),
    count(C.count, "Count", "copies in the window of the GPU timeline"),
    microseconds(C.total_time_us, "Total time", "sum of their durations"),
    microseconds(C.avg_time_us, "Mean time", "mean duration"),
    microseconds(C.max_time_us, "Longest", "longest duration"),
    microseconds(
        C.exposed_time_us,
        "Exposed time",
        "time in which such a copy runs, but no computation and no communication",
    ),
    count(C.total_bytes, "Bytes", "bytes copied; empty if not recorded"),
    number(C.avg_bytes, "Mean bytes", "bytes", "bytes of one copy", ",.0f"),
)
COLLECTIVES = (
    integer(C.uid, "UID", "position of the kernel in the trace"),
    text(C.name, "Kernel", "name of the communication kernel"),
    text(C.collective, "Collective", "kind of collective, if recorded"),
    nanoseconds(C.ts_ns, "Start", "start on the clock of the trace"),
    microseconds(C.dur_us, "Duration", "duration, including waiting for other ranks"),
    integer(C.stream, "Stream", "stream index"),
    text(C.dtype, "Dtype", "element type"),
    text(C.group, "Process group", "name of the process group"),
    integer(C.group_size, "Group size", "ranks that take part"),
    number(C.message_mb, "Message (MiB)", "MiB", "larger of the messages sent and received"),
    *(
        replace(column, optional=True)
        for column in (
            integer(C.device, "Device", "device index"),
            nanoseconds(C.end_ns, "End", "end on the clock of the trace"),
            integer(C.correlation, "Correlation", "id of the launch"),
            integer(C.external_id, "External id", "id of the launching operator"),
            text(
                C.kind,
                "Kind",
                "kind of collective in one spelling, such as all_reduce; `unknown` if nothing "
                "names it",
            ),
            text(
                C.kind_source,
                "Kind from",
                "`args` if a collective is recorded, `host` if the call around the launch names "
                "it, else `name`, the kernel's",
            ),
            text(C.library, "Library", "library of the kernel by its name; empty if not known"),
            flag(
                C.also_computes,
                "Also computes",
                "the kernel does work of its own besides the communication",
            ),
            text(
                C.args_source,
                "Arguments from",
                "`kernel` or `host`: the event that records the collective; empty if none does",
            ),
            text(C.pg_desc, "Group description", "description of the process group"),
            text(
                C.process_group_ranks,
                "Recorded ranks",
                "ranks of the group as recorded; PyTorch cuts lists after 30 ranks",
            ),
            text(
                C.pg_ranks,
                "Ranks",
                "global ranks of the group as a JSON list; a cut list is completed from its first "
                "rank and its stride; empty if the ranks are not known",
            ),
            integer(C.group_rank, "Rank in the group", "this rank in the group"),
            integer(
                C.seq,
                "Sequence number",
                "number of the collective in its group; point-to-point calls are counted "
                "separately",
            ),
            text(C.comms_id, "Communicator id", "id of the communicator, equal on its ranks"),
            count(C.in_msg_nelems, "Elements sent", "elements that this rank sends"),
            count(C.out_msg_nelems, "Elements received", "elements that this rank receives"),
            size(
                C.in_bytes,
                "Bytes sent",
                "message that this rank sends; without recorded elements from the shapes of the "
                "annotation around the launch",
            ),
            size(C.out_bytes, "Bytes received", "message that it receives"),
            text(C.in_split_size, "Elements sent to each", "elements for each rank of the group"),
            text(C.out_split_size, "Elements received from each", "elements from each rank"),
            integer(C.src_rank, "Source rank", "sender of a point-to-point call"),
            integer(C.dst_rank, "Target rank", "receiver of such a call"),
            flag(C.is_async, "Asynchronous", "the call returns before it is done"),
            nanoseconds(
                C.launch_start_ns,
                "Launch",
                "start of the call that launched the kernel, on the clock of the trace",
            ),
            text(C.launch_tid, "Launch thread", "thread of that call"),
            integer(C.graph_id, "Graph id", "replayed graph that it belongs to"),
            integer(C.graph_node_id, "Graph node", "its node in that graph"),
            integer(C.step, "Step", "row in `steps` that launches it"),
            nanoseconds(C.exposed_ns, "Exposed", "time in which no compute runs"),
            nanoseconds(C.overlap_ns, "Hidden", "time beside compute"),
        )
    ),
)
IDLE_GAPS = (
    nanoseconds(C.start_ns, "Start", "start on the clock of the trace"),
    nanoseconds(C.dur_ns, "Duration", "until the next GPU event starts"),
    text(C.cause, "Cause", "most likely cause, a hypothesis; `unknown` if none fits"),
    integer(C.prev_uid, "UID before", "GPU event that ended last"),
    text(C.prev_name, "Kernel before", "its name"),
    integer(C.next_uid, "UID after", "GPU event that ends the gap"),
    text(C.next_name, "Kernel after", "its name"),
    integer(C.launch_uid, "Launch UID", "call that launched it"),
    text(C.launch_name, "Launch call", "name of that call"),
    integer(C.launcher_uid, "Launcher UID", "operator that made the call"),
    text(C.launcher_name, "Launcher", "name of that operator, or of the call if there is none"),
    microseconds(
        C.launch_lead_us, "Launch lead", "from the start of the launch call to the end of the gap"
    ),
    microseconds(
        C.host_time_us,
        "Host time",
        "from the start of the launch call before to the end of this one, or to the end of the gap",
    ),
    text(C.host_call, "Host call", "call of the launching thread that the cause is derived from"),
    microseconds(C.host_call_us, "Host call", "duration of that call"),
    text(C.host_op, "Host operator", "operator that made that call"),
    text(
        C.host_frame,
        "Python function",
        "innermost one outside the framework that made that call; without a call, that runs for at "
        "least half of the gap",
        optional=True,
    ),
    text(
        C.host_annotation,
        "Annotation",
        "innermost one, other than of a step, around at least half of the gap",
        optional=True,
    ),
    integer(C.host_copy_uid, "Copy UID", "copy that the host call waits for", optional=True),
    microseconds(
        C.unlinked_us,
        "Unlinked work",
        "time in the gap in which GPU events without a recorded launch run",
    ),
)
_HOST_BUSY = (
    nanoseconds(C.runtime_ns, "Runtime calls", "time in runtime calls"),
    nanoseconds(C.operator_ns, "Operators", "time in operators, outside runtime calls"),
    nanoseconds(C.python_ns, "Python only", "time in Python frames only"),
)
HOST_THREADS = (
    integer(C.thread, "Thread", "number of the thread, most operator time first"),
    text(C.process_name, "Process", "name of the process, if recorded"),
    text(C.thread_name, "Thread name", "name of the thread, if recorded"),
    text(C.pid, "Process ID", "process id in the trace"),
    text(C.tid, "Thread ID", "thread id in the trace"),
    count(C.call_count, "Calls", "recorded calls: runtime, operators, Python frames, annotations"),
    count(C.kept_count, "Calls stored", "those in `host_slices`"),
    *_HOST_BUSY,
)
HOST_SLICES = (
    integer(C.uid, "UID", "position of the call in the trace"),
    integer(C.thread, "Thread", "number in `host_threads`"),
    text(C.kind, "Kind", "runtime, operator, python or annotation"),
    text(C.name, "Call", "name of the call"),
    nanoseconds(C.ts_ns, "Start", "start on the clock of the trace"),
    nanoseconds(C.dur_ns, "Duration", "duration"),
    ARGUMENTS[0],
)
HOST_BINS = (
    integer(C.thread, "Thread", "number in `host_threads`"),
    nanoseconds(C.start_ns, "Start", "start of the span"),
    nanoseconds(C.dur_ns, "Duration", "length of the span, the same for all"),
    *_HOST_BUSY,
)
_NODE_TIME = nanoseconds(
    C.gpu_ns,
    "GPU time",
    "sum of the durations of the GPU events launched below the node; simultaneous events each "
    "count in full",
)
_NODE_LAUNCHES = count(C.launches, "Launches", "GPU events: kernels, copies, fills")
CALL_TREE = (
    text(
        C.view,
        "View",
        "`classes`: modules of one class merged; `modules`: each module by itself; `python`: with "
        "all Python frames",
    ),
    integer(C.node, "Node", "number of the node; a view is in preorder"),
    integer(C.parent, "Parent", "node above; empty for the root of a view"),
    integer(C.subtree_end, "Subtree end", "number of the next node not below it"),
    integer(C.depth, "Depth", "nodes above it"),
    text(
        C.kind,
        "Kind",
        "root, module, python, op, runtime (a call outside operators), kernel (any GPU event), "
        "rest (calls too short for their own row), unlinked (no recorded launch)",
    ),
    text(C.name, "Name", "name of the call or the kernel"),
    _NODE_TIME,
    nanoseconds(
        C.self_ns, "Self GPU time", "GPU time launched by the node itself, not by a call below it"
    ),
    nanoseconds(
        C.backward_ns,
        "Backward GPU time",
        "GPU time launched by the backward pass, including that under its module",
    ),
    nanoseconds(C.modelled_ns, "Modeled GPU time", "GPU time of operations with a perf model"),
    _NODE_LAUNCHES,
    count(C.calls, "Calls", "calls of the node with GPU work below them"),
    count(C.module_count, "Modules", "modules merged in the node"),
)
CALL_TREE_OPERATIONS = (
    integer(C.node, "Node", "kernel or rest in `call_tree`"),
    integer(C.operation_uid, "Operation UID", "row of the operations table"),
    _NODE_TIME,
    _NODE_LAUNCHES,
    number(
        C.calls,
        "Calls",
        "",
        "calls of the operation; calls with kernels at several nodes are split by GPU time",
    ),
)
OTHER_DEFINITIONS = (
    text(C.quantity, "Quantity", "what is measured"),
    text(C.tool, "Tool", "the tool, with the setting that changes its value"),
    number(C.value, "Its value", "", "its value; empty if it has none for this trace"),
    text(C.unit, "Unit", "unit of both values"),
    number(C.ours, "Our value", "", "value of the GPU timeline"),
    text(C.reason, "Why", "what the tool counts, or why it has no value for this trace"),
)
OPERATION_MODELS = (
    integer(C.uid, "UID", "uid of the row in `operations`"),
    flag(C.modelled, "Modeled", "a perf model covers the call"),
    text(C.failure, "Failure", "why the perf model failed"),
    text(C.uncovered, "Not covered", "why the perf model does not cover the call"),
    text(C.compute, "Compute peak", "compute unit and precision; an empty text if not known"),
    flag(C.crosses_link, "Crosses link", "most of its time is copies over the link"),
)
ROOFLINE_CALLS = (
    text(C.sheet, "Sheet", "table with the call's row"),
    integer(C.row, "Row", "position of that row in the table"),
    microseconds(C.kernel_time_us, "Kernel time", KERNEL_TIME),
    number(C.flops, "FLOPs", "FLOP", "floating-point work by the sheet's convention", ",.0f"),
    number(C.bytes, "Bytes", "bytes", "memory traffic by the sheet's convention", ",.0f"),
    text(C.compute_spec, "Compute peak", "compute unit and precision whose peak applies"),
)
PERF_MODEL_FAILURES = (
    text(C.name, "Operation", "operator whose perf model failed"),
    ARGUMENTS[0],
    text(C.reason, "Reason", "error of the perf model"),
)
_SCOPE = (
    text(C.scope_kind, "Kind of frame", "module, function, operator, or sequence for none"),
    text(C.scope_name, "Frame", "module, function or operator that the steps run in"),
)
_STEP_NAMES = names(C.step_names, "Steps", "operators of one instance, in order")
_INSTANCES = count(C.instance_count, "Instances", "number of times that the steps run")
_LAUNCHES = count(C.kernel_count, "Kernels", "GPU events of all instances")
_EXAMPLE = integer(C.example_uid, "Example UID", "first call of the first instance")
_STEP = (
    integer(C.position, "Position", "index of the step, from 0"),
    integer(C.operation_uid, "Operation UID", "row of the operations table of the step"),
    text(C.name, "Operation", NAME.meaning),
    *ARGUMENTS[:2],
    text(C.kernel, "Kernel", "longest kernel of the step's first call"),
    count(C.calls, "Calls", "calls of this operation at this position"),
    microseconds(C.kernel_time_us, "Kernel time", f"{KERNEL_TIME}; sum over these calls"),
    number(C.bytes, "Bytes", "bytes", "minimum memory traffic of one call", ",.0f"),
)
FUSION_CHAINS = (
    integer(C.chain, "Chain", "number of the chain, most time first"),
    *_SCOPE,
    _STEP_NAMES,
    _INSTANCES,
    count(
        C.scope_calls,
        "Calls",
        "calls of the module, function or operator that contain the instances",
        optional=True,
    ),
    _LAUNCHES,
    microseconds(C.kernel_time_us, "Kernel time", f"{KERNEL_TIME}; sum over all instances"),
    text(C.product_name, "Product", "matrix product whose epilogue the steps could be, or empty"),
    text(C.product_dims, "Product shapes", "shapes of that product's first call"),
    text(C.product_types, "Product dtypes", "dtypes of that product's first call"),
    text(C.product_kernel, "Product kernel", "longest kernel of that product's first call"),
    microseconds(C.product_time_us, "Product time", "kernel time of these products"),
    count(C.kept_count, "Reused", "instances whose product's result is also used elsewhere"),
    count(C.attention_count, "Before attention", "instances whose result attention reads next"),
    microseconds(C.attention_time_us, "Before attention", "kernel time of these instances"),
    percent(C.modelled_pct, "Modeled", "share of that time whose memory traffic is known"),
    number(
        C.step_bytes, "Bytes now", "bytes", "minimum memory traffic of all steps together", ",.0f"
    ),
    number(
        C.fused_bytes,
        "Bytes when fused",
        "bytes",
        "inputs from outside the chain and output of its last step, of all instances; for an "
        "epilogue, traffic added to the product's kernel; empty if a shape or dtype is not known",
        ",.0f",
    ),
    number(C.flops, "FLOPs", "FLOP", "floating-point work of all instances", ",.0f"),
    text(C.compute, "Compute peak", "compute unit and precision whose peak applies"),
    flag(C.is_bounded, "Whole frame", "the frame contains only such chains"),
    flag(
        C.has_data_flow,
        "Data flow",
        "each step has an operand of the shape of the previous step's result",
    ),
    ARGUMENTS[0],
    _EXAMPLE,
)
FUSION_STEPS = (integer(C.chain, "Chain", "row of the table of chains"), *_STEP)
ATTENTION_GROUPS = (
    integer(C.group, "Group", "number of the group, most time first"),
    *_SCOPE,
    _STEP_NAMES,
    _INSTANCES,
    _LAUNCHES,
    microseconds(C.kernel_time_us, "Kernel time", f"{KERNEL_TIME}; sum over all instances"),
    count(C.batch, "Batch", "sequences; times the heads if the heads are not known"),
    count(C.heads, "Heads", "attention heads; empty if batch and heads are one dimension"),
    count(C.n_q, "Queries", "queries per sequence"),
    count(C.n_kv, "Keys", "keys and values per sequence"),
    count(C.d_qk, "Head dim", "length of a query vector"),
    count(C.d_v, "Value dim", "length of a value vector"),
    text(C.dtype, "Dtype", "element type of the queries"),
    number(C.fused_flops, "FLOPs fused", "FLOP", "work of one fused kernel for one call", ",.0f"),
    number(C.fused_bytes, "Bytes fused", "bytes", "memory traffic of that kernel", ",.0f"),
    text(C.compute, "Compute peak", "compute unit and precision whose peak applies"),
    _EXAMPLE,
)
ATTENTION_STEPS = (integer(C.group, "Group", "row of the table of unfused attention"), *_STEP)
TRACE_HEALTH = (
    text(C.key, "Key", "identifier of the fact"),
    text(C.title, "Fact", "topic of the fact"),
    text(C.summary, "Finding", "the fact as a sentence"),
    number(C.value, "Value", "", "the number in it, if any"),
    text(C.unit, "Unit", "unit of the value"),
    text(C.severity, "Severity", "ok, note or warning"),
    text(C.affects, "What it affects", "results that are wrong or missing because of it"),
    text(C.remedy, "How to capture better", "how to change the next recording"),
)
