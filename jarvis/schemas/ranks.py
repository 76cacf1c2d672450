"""Tables of a distributed run: several ranks of a job."""

from jarvis.schemas.columns import (
    count,
    flag,
    integer,
    microseconds,
    milliseconds,
    nanoseconds,
    number,
    percent,
    size,
    text,
    uids,
)
from jarvis.schemas.names import C

_RANK = integer(C.rank, "Rank", "global rank in the job")
_COMM_ID = text(C.comm_id, "Communicator", "row of `communicators`")
_INSTANCE = integer(C.instance_id, "Instance", "row of `instances`")
_KIND = text(C.kind, "Kind", "kind of collective, as in `collectives`")
_UID = integer(C.uid, "UID", "position of the kernel in the trace of its rank")
_WAIT = "time before the last of the recorded ranks arrived"
_EMPTY = "empty where the clocks of the ranks are not known well enough"


RANKS = (
    _RANK,
    text(C.analysis_id, "Analysis", "id of the analysis of the rank"),
    text(C.file_name, "File", "trace of the rank"),
    text(C.device_name, "GPU", "name of the GPU"),
    text(C.host, "Host", "from the name of the file, if it has it"),
    integer(
        C.node,
        "Node",
        "number of the node, from 0: by the hosts of all ranks, else by the GPUs of a node; empty "
        "if neither is known",
    ),
    *(
        integer(name, label, f"place among the ranks {whose}, from 0")
        for name, label, whose in (
            (C.dp, "DP", "that sum their gradients"),
            (C.tp, "TP", "that divide tensors"),
            (C.pp, "PP", "of a pipeline, thus its stage"),
            (C.ep, "EP", "that divide experts"),
        )
    ),
    microseconds(
        C.clock_offset_us,
        "Clock offset",
        "what the clock of the rank is ahead of that of the first rank; empty if it has no "
        "collective in common with it",
    ),
    microseconds(C.clock_error_us, "Clock error", "standard error of the offset"),
    number(C.clock_drift_ppm, "Clock drift (ppm)", "ppm", "how much faster the clock is"),
    count(C.steps, "Steps", "marked steps in the recording"),
    milliseconds(C.window_ms, "Window", "from the first to the last GPU event"),
    milliseconds(C.compute_ms, "Compute", "compute kernels run"),
    milliseconds(C.exposed_comm_ms, "Exposed communication", "and no compute"),
    percent(
        C.hidden_comm_pct,
        "Communication hidden",
        "part of the time with communication in which compute runs, too; simultaneous "
        "communication counts once",
        ",.1f",
    ),
    milliseconds(C.exposed_copy_ms, "Exposed copies", "and no other GPU work"),
    milliseconds(C.idle_ms, "Idle", "no GPU work"),
    milliseconds(
        C.comm_ms,
        "In collectives",
        "sum of the durations of communication kernels; simultaneous ones each count in full",
    ),
    milliseconds(C.wait_ms, "Waiting", f"of that, {_WAIT}; without edges; {_EMPTY}"),
    milliseconds(
        C.edge_wait_ms,
        "Waiting at edges",
        "waiting in instances before which the ranks were not yet held together in the recording: "
        "it shows what happened before",
    ),
    milliseconds(C.exposed_wait_ms, "Exposed waiting", "waiting without edges and compute"),
    milliseconds(
        C.exposed_transfer_ms,
        "Exposed transfer",
        "rest of the instances with known waiting, beside which no compute runs",
    ),
    milliseconds(
        C.caused_wait_ms,
        "Caused waiting",
        "waiting of other ranks in instances at which this rank arrived last, without edges",
    ),
    milliseconds(C.caused_exposed_wait_ms, "Caused exposed waiting", "of that without compute"),
    count(C.times_last, "Times last", "instances without edges at which it arrived last"),
    number(
        C.speed_ratio,
        "Kernel time / median",
        "",
        "time of its kernels against the median of the ranks of the same GPU, for the same "
        "operators, shapes and kernels, without those beside communication; empty for fewer than "
        "three ranks or 50 such signatures",
        ".3f",
    ),
    milliseconds(
        C.gain_low_ms,
        "Step gain, at least",
        "what the median step gains at least if the rank were as the median of the ranks: its "
        f"kernels and its idle time; {_EMPTY}",
    ),
    milliseconds(C.gain_ms, "Step gain", "the same, where it is known exactly"),
    milliseconds(C.gain_high_ms, "Step gain, at most", "the same, at most"),
    text(
        C.gain_method,
        "Gain by",
        "`replay`: the recordings of all ranks are replayed together; `bounds`: from the waiting "
        "that the rank causes, as the recordings cannot be replayed together",
    ),
)
COMMUNICATORS = (
    text(C.comm_id, "Communicator", "description or name, and its ranks"),
    text(C.ranks, "Ranks", "global ranks; `*` if they are assumed to be all"),
    count(C.size, "Size", "number of ranks"),
    text(C.description, "Description", "description or name of the process group"),
    text(
        C.role,
        "Role",
        "`dp`, `tp`, `pp`, `ep` or `cp` (data, tensor, pipeline, expert or context parallelism) by "
        "the description, else by what the group sends; without a sign of either the number of "
        "ranks and their distance",
    ),
    text(
        C.node_span,
        "Nodes",
        "`intra_node` or `inter_node`, by the hosts in file names, else by the GPUs of a node; "
        "empty if these are not known",
    ),
    number(
        C.link_gbs,
        "Link peak (GB/s)",
        "GB/s",
        "what a GPU sends to the others at most, in one direction: inside a node of known GPUs by "
        "`hardware.toml`, between nodes the rate of the network, if it was given",
    ),
    count(C.traced_ranks, "Recorded ranks", "of its ranks, those with a trace"),
    text(C.kinds, "Kinds", "kinds of its collectives"),
    count(C.instance_count, "Instances", "collectives that were matched"),
    count(C.message_bytes, "Bytes", "sum of the messages of its instances"),
    milliseconds(C.comm_ms, "In collectives", "sum over its kernels of all recorded ranks"),
    milliseconds(C.wait_ms, "Waiting", f"of that, {_WAIT}; without edges; {_EMPTY}"),
)
INSTANCES = (
    integer(C.instance_id, "Instance", "number of the instance, by time"),
    _COMM_ID,
    integer(C.index, "Index", "position in its communicator"),
    integer(C.seq, "Sequence number", "number that PyTorch recorded"),
    _KIND,
    text(C.library, "Library", "library of the kernels"),
    text(C.dtype, "Dtype", "element type"),
    count(C.bytes, "Bytes", "message by the definition of nccl-tests; empty if not known"),
    integer(C.step, "Step", "recorded number of the step, else its position"),
    nanoseconds(
        C.first_ns, "First arrival", "on the common clock, from the first event of all ranks"
    ),
    nanoseconds(C.last_ns, "Last arrival", "likewise, of the recorded ranks"),
    integer(
        C.last_rank,
        "Last rank",
        "the rank that arrived last; empty if several arrived together, within the error "
        "of the clocks",
    ),
    integer(C.second_rank, "Second to last", "the rank that arrived before it"),
    microseconds(C.margin_us, "Margin", "from the second-to-last to the last arrival"),
    microseconds(C.skew_us, "Skew", "from the first to the last arrival"),
    microseconds(C.wait_us, "Waiting", f"sum over the ranks: {_WAIT}"),
    microseconds(C.exposed_wait_us, "Exposed waiting", "of that, without compute"),
    microseconds(
        C.transfer_us, "Transfer", "median over the ranks of the time after the last arrival"
    ),
    flag(
        C.transfer_is_bound,
        "At most",
        "ranks are missing, so the last arrival may be later and the transfer shorter",
    ),
    number(C.algo_gbs, "Algorithm bandwidth (GB/s)", "GB/s", "bytes / transfer"),
    number(C.bus_gbs, "Bus bandwidth (GB/s)", "GB/s", "bytes that cross a link / transfer"),
    microseconds(
        C.floor_us,
        "Latency floor",
        "transfer of a message of hardly any bytes in the same communicator: the 10th percentile "
        "up to 64 KiB; else, of five sizes or more, the intercept of a line of bytes and transfer",
    ),
    microseconds(C.end_spread_us, "Spread of ends", "from the first to the last end"),
    text(
        C.match,
        "Matched by",
        "`seq`: sequence number; `order`: position in the communicator; `resynced`: aligned with "
        "the rank with most events",
    ),
    text(
        C.clock_quality,
        "Clocks",
        "`fine`, `usable`, or `unknown`: then no waiting is computed for the kind",
    ),
    flag(
        C.is_edge,
        "Edge",
        "its ranks were not yet held together in the recording, or it is cut: waiting "
        "shows what happened before",
    ),
    uids(C.missing_ranks, "Missing ranks", "ranks of the group without a kernel"),
)
INSTANCE_RANKS = (
    _INSTANCE,
    _RANK,
    _UID,
    nanoseconds(C.start_ns, "Arrival", "on the common clock, from the first event of all ranks"),
    nanoseconds(C.end_ns, "End", "likewise"),
    nanoseconds(C.wait_ns, "Waiting", f"{_WAIT}; {_EMPTY}"),
    nanoseconds(C.exposed_wait_ns, "Exposed waiting", "of that, without compute on the rank"),
    nanoseconds(C.transfer_ns, "Transfer", "the rest of the duration"),
    nanoseconds(C.exposed_transfer_ns, "Exposed transfer", "of that, without compute on the rank"),
    size(C.in_bytes, "Bytes sent", "message that the rank sends"),
    size(C.out_bytes, "Bytes received", "message that it receives"),
)
UNMATCHED = (
    _RANK,
    _UID,
    _COMM_ID,
    _KIND,
    size(C.bytes, "Bytes", "message that the rank sends"),
    text(
        C.reason,
        "Why",
        "`no_partner`: no other recorded rank has it; `extra`: the ranks have different numbers; "
        "`before_common_window`, `after_common_window`: no other rank recorded then; "
        "`signature`: kinds or sizes of the ranks do not fit together; `bounds`: a rank leaves "
        "before another arrives",
    ),
)
CLOCKS = (
    _COMM_ID,
    _KIND,
    count(C.instance_count, "Instances", "instances with two recorded ranks or more"),
    flag(C.is_used, "Used", "the offsets of the clocks are estimated from it"),
    microseconds(C.residual_us, "Residual", "median disagreement of ends after alignment"),
    microseconds(C.p95_us, "95th percentile", "of that"),
    microseconds(C.skew_us, "Median skew", "median time from first to last arrival"),
    text(C.clock_quality, "Clocks", "`fine`, `usable` or `unknown`"),
    text(C.reason, "Why", "why they are unknown"),
)

LATENESS = (
    _INSTANCE,
    integer(C.rank, "Rank", "the rank that arrived last"),
    nanoseconds(
        C.lateness_ns,
        "Lateness",
        "its arrival against the mean of the ranks in the middle, of its pipeline stage; between "
        "stages against that of the earlier half of the ranks of its stage at the same call",
    ),
    nanoseconds(
        C.inherited_ns,
        "Inherited",
        "of that, what it was late already when the ranks were last held together",
    ),
    nanoseconds(C.own_lateness_ns, "Own", "the rest: what it took longer since then"),
    nanoseconds(
        C.new_ns,
        "New",
        "lateness beyond that of earlier instances since then, so that a delay counts once",
    ),
    integer(C.held_instance, "Held by", "instance that last held it"),
    integer(
        C.root_rank,
        "Root rank",
        "rank whose own time the lateness is from, where most of it is inherited",
    ),
    integer(C.root_instance, "Root instance", "instance at which it was late"),
    percent(C.explained_pct, "Explained", "part of the own time with a known state", ",.1f"),
)
LATENESS_CAUSES = (
    _INSTANCE,
    integer(C.rank, "Rank", "the rank that arrived last"),
    text(C.state, "State", "as in `timeline_states`; `unknown` outside of its window"),
    text(C.detail, "Detail", "as in `timeline_states`"),
    nanoseconds(C.state_ns, "Time", "in this state since the ranks were last held together"),
    nanoseconds(C.yardstick_ns, "Usual", "mean of the ranks in the middle"),
    nanoseconds(C.extra_ns, "Extra", "the difference; the sum over all states is the own lateness"),
    text(C.host_call, "Host call", "of the longest gap of this cause"),
    text(C.host_op, "Host operator", "that made this call"),
    text(C.host_frame, "Python function", "that made this call"),
    integer(
        C.uid,
        "UID",
        "position in the trace of the rank: the GPU event that ends this gap; empty for runs of "
        "earlier versions",
    ),
)
LATENESS_OPERATIONS = (
    _INSTANCE,
    integer(C.rank, "Rank", "the rank that arrived last"),
    text(C.detail, "Detail", "as in `lateness_causes`: category of compute, direction of copies"),
    text(C.name, "Operation", "operator; the kernel where no operator launched it"),
    integer(C.uid, "UID", "position of its longest kernel in the trace of the rank; if it has one"),
    nanoseconds(
        C.kernel_time_ns,
        "Kernel time",
        "of kernels, or copies, since the ranks were last held together; simultaneous ones each "
        "count in full",
    ),
    nanoseconds(C.yardstick_ns, "Usual", "mean of the ranks that it is compared with"),
    nanoseconds(C.extra_ns, "Extra", "the difference, of which the next three are the parts"),
    nanoseconds(
        C.slower_ns,
        "Slower",
        "kernels of the same name, shapes and types take longer; those beside communication count, "
        "too",
    ),
    nanoseconds(C.more_kernels_ns, "More kernels", "there are more of these kernels"),
    nanoseconds(
        C.other_shapes_ns, "Other shapes", "kernels, shapes or types that the others do not have"
    ),
    number(C.kernel_count, "Kernels", "", "kernels; of one that is cut, the part", ",.1f"),
    number(C.yardstick_kernel_count, "Usual kernels", "", "mean of the others", ",.1f"),
    count(
        C.yardstick_ranks,
        "Ranks compared",
        "of the ranks in the middle, up to 8, those with the nearest numbers",
    ),
    text(C.state, "State", "compute or copy; empty in runs of earlier versions, for compute"),
    size(C.bytes, "Bytes", "that the copies move; of one that is cut, the part"),
    size(C.yardstick_bytes, "Usual bytes", "mean of the others"),
)

RANK_STEPS = (
    _RANK,
    integer(C.step, "Step", "recorded number of the step, else its position"),
    nanoseconds(C.start_ns, "Start", "on the common clock, from the first event of all ranks"),
    milliseconds(C.duration_ms, "Step time", "as in `steps`, whose parts follow"),
    milliseconds(C.compute_ms, "Compute", "compute kernels run"),
    milliseconds(C.exposed_comm_ms, "Exposed communication", "and no compute"),
    milliseconds(C.exposed_copy_ms, "Exposed copies", "and no other GPU work"),
    milliseconds(C.idle_ms, "Idle", "no GPU work"),
    milliseconds(
        C.exposed_wait_ms,
        "Exposed waiting",
        f"of the collectives that the step launches, {_WAIT}, without compute and edges; {_EMPTY}",
    ),
    milliseconds(C.exposed_transfer_ms, "Exposed transfer", "likewise, the rest"),
    microseconds(
        C.launch_lead_us,
        "Launch lead",
        "how far the host is ahead of the GPU, as in `steps`; empty for ranks that an earlier "
        "version analyzed",
    ),
    milliseconds(
        C.lateness_ms,
        "Lateness",
        "sum of the new lateness at the instances of the step at which the rank arrived last",
    ),
    milliseconds(
        C.bubble_ms,
        "Bubble",
        "waiting in sends, receives and collectives with ranks of other pipeline stages, without "
        "compute, and without edges that are collectives; simultaneous waiting counts once; empty "
        "without stages or such collectives",
    ),
    milliseconds(
        C.bubble_before_ms,
        "Bubble, warm-up",
        "of that, until the stage has received its first micro-batch; empty without sends",
    ),
    milliseconds(C.bubble_between_ms, "Bubble, steady", "of that, the rest"),
    milliseconds(
        C.bubble_after_ms,
        "Bubble, cool-down",
        "of that, in collectives that begin after its last send or receive of the step",
    ),
)

RANK_CATEGORIES = (
    _RANK,
    text(C.detail, "Category", "of compute, as in `timeline_states`; empty without an operator"),
    milliseconds(
        C.time_ms,
        "Time",
        "in which the GPU computes it, in the window, divided by the marked steps, if any; of "
        "kernels that run at once, the longest counts",
    ),
    milliseconds(
        C.median_ms,
        "Median",
        "of the ranks with the same GPU in the same pipeline stage; empty for fewer than three",
    ),
    flag(
        C.is_outlier,
        "Outlier",
        "it differs from the median by more than 3 standard deviations (1.4826 times the median "
        "absolute deviation), 2% of the median, and 0.02 ms",
    ),
)

PAIRS = (
    integer(C.src, "From", "rank that sends"),
    integer(C.dst, "To", "rank that receives"),
    size(
        C.bytes,
        "Bytes",
        "sum of the messages; of an all-to-all the part of the rows for the receiver",
    ),
    count(C.count, "Calls", "sends, and all-to-alls in which the one sends to the other"),
    microseconds(
        C.transfer_us,
        "Transfer",
        "of these calls on the sender, after all their ranks had arrived, an all-to-all in full; "
        f"{_EMPTY}",
    ),
)

TABLES = {
    "ranks": RANKS,
    "communicators": COMMUNICATORS,
    "instances": INSTANCES,
    "instance_ranks": INSTANCE_RANKS,
    "unmatched": UNMATCHED,
    "clocks": CLOCKS,
    "rank_steps": RANK_STEPS,
    "rank_categories": RANK_CATEGORIES,
    "lateness": LATENESS,
    "lateness_causes": LATENESS_CAUSES,
    "lateness_operations": LATENESS_OPERATIONS,
    "pairs": PAIRS,
}
ABOUT = {
    "ranks": "The ranks of a distributed run, with the parts of their windows and of their "
    "communication.",
    "communicators": "The process groups of a distributed run, distinguished by their ranks and "
    "descriptions.",
    "instances": "The collectives of a distributed run, each with all its recorded ranks. Where "
    "ranks are missing, transfer is an upper bound and waiting a lower one.",
    "instance_ranks": "The kernel of each rank in each instance. Waiting and transfer add up to "
    "its duration exactly.",
    "unmatched": "Communication kernels that belong to no instance, with the reason. They count in "
    "the sums of their rank, not in waiting.",
    "rank_steps": "The marked steps of each rank. Parts of the step time are what the GPU does in "
    "it; waiting and transfer are of the collectives that it launches, so that they may end later.",
    "rank_categories": "What the GPU of each rank computes, by category, against the median of the "
    "ranks.",
    "lateness": "Why the last rank of an instance was last: its own extra time since its ranks "
    "were last held together, and what it inherited. Instances at edges, and those at which "
    "several ranks arrived last, are not in it.",
    "lateness_causes": "What the last rank did longer than the others, by the state of its GPU.",
    "lateness_operations": "Which operations the last rank computed longer than others, and why. "
    "Only for the delays of findings and the 20 delays for which others wait longest, of up to 8 "
    "ranks.",
    "pairs": "What ranks send to each other: sends, and all-to-alls with sizes by rank. A rank "
    "without a trace sends what others receive from it; of its all-to-alls nothing is known.",
    "clocks": "How well the ends of matched collectives agree on the common clock, by communicator "
    "and kind.",
}
