"""Messages of the findings on several ranks."""

from jarvis.text.messages import MessageTable

PARTS_NOTE = "ranks.note.parts"
"""The id of the note on ranks that lack collectives."""

MESSAGES = MessageTable(
    "ranks",
    {
        "gain": "{low_ms} of a {step_ms} step can be saved",
        "gain.range": "{low_ms} to {high_ms} of a {step_ms} step can be saved",
        "caveat": "Based on {ranks:count rank} of {world_size}{clocks}. Waiting at the edges of "
        "the recording is left out.",
        "caveat.clocks": "; their clocks agree within {p95_us:.1f} µs",
        "caveat.bounds": "The recordings cannot be replayed together, so waiting bounds the gain.",
        "verify": "Record all ranks again, and compare the median step.",
        "late.title": "Rank {rank} is late in {late_steps} of {steps:count step}: {gain}",
        # Of stored runs, whose late rank has the largest delay, also one behind compute.
        "late.issue": "The largest delay of a step is most often from rank {rank}. "
        "{others:count other rank} {others:either waits|wait} for it, together {caused_wait_ms} of "
        "GPU time, {caused_exposed_wait_ms} of it while {others:either that rank computes|they "
        "compute} nothing.{causes}",
        "late.waited": "In most steps, the others wait longest for rank {rank}. "
        "{others:count other rank} {others:either waits|wait} for it: in all steps, added up over "
        "the ranks, {caused_wait_ms}, {caused_exposed_wait_ms} of it without computing.{causes}",
        # Of stored runs, as above.
        "late.causes": " Per late step it takes longer than the others: {parts:joined , }.",
        "late.longer": " Where all ranks can be compared ({known:count step}), it takes longer "
        "than the others, per step: {parts:joined , }.",
        "late.cause": "{state} {extra_ms}",
        "late.cause.slower": "{state} {extra_ms} ({name} {operation_ms}: the same kernels take "
        "longer)",
        "late.cause.more": "{state} {extra_ms} ({name} {operation_ms}: more kernels, "
        "{kernels:short} instead of {usual_kernels:short})",
        "late.cause.copies": "{state} {extra_ms} ({name}: {bytes} in {kernels:short} instead of "
        "{usual_bytes} in {usual_kernels:short})",
        "late.cause.shapes": "{state} {extra_ms} ({name} {operation_ms}: other shapes or kernels)",
        "late.less": "but {less_ms} less in all else",
        "late.less_in": "but {less_ms} less in all else, most in {state}",
        "late.action.one_step": "Record more steps first: the cause is known for one step only and "
        "can be chance.",
        "late.action.no_step": "Record more steps: the cause is not known for these.",
        "late.action.data_loading": "Speed up its data loading: more workers, prefetching, pinned "
        "memory, or faster storage for this rank.",
        "late.action.synchronization": "Find what its host waits for, and remove waits that only "
        "this rank has.",
        "late.action.host": "Look for host work that only this rank does, such as logging, "
        "checkpoints or garbage collection, and at the load of its CPU.",
        "late.action.compute": "Compare its clocks, temperature, power limit and neighbors with "
        "those of the other GPUs, and the sizes that it computes.",
        "late.action.copy": "Look at the copies that only this rank does.",
        "slow.title": "The same kernels take {slower_pct} longer on rank {rank}: {gain}",
        "slow.issue": "Over {signatures:count signature} of operators, shapes and kernels, rank "
        "{rank} takes {slower_pct} more time than the median of the ranks. Kernels beside "
        "communication are not compared.",
        "slow.action": "Check clocks, power limit, temperature and other processes of this GPU; "
        "replace it if it stays slow.",
        "jitter.title": "Steps wait for different ranks: {gain}",
        # Of stored runs, as above.
        "jitter.issue": "The largest delays of {steps:count step} are from "
        "{late_ranks:count rank}, and from none of them persistently. Without waiting, the slowest "
        "rank of a step takes {excess_pct} of the step more than the median rank, on average."
        "{causes}",
        "jitter.waited": "In {steps:count step}, the others wait longest for "
        "{late_ranks:count different rank}, for none of them in most steps. Without its waiting, "
        "the slowest rank of a step takes {excess_ms} ({excess_pct} of the step) longer than the "
        "median rank, on average; the step gains less, as others do not wait for all of it."
        "{causes}",
        "jitter.causes": " Per step, the late ranks take longer than the others: "
        "{parts:joined , }.",
        "jitter.longer": " Where all ranks can be compared ({known:count step}), the late "
        "ranks take longer than the others, per step: {parts:joined , }.",
        "jitter.action": "Reduce what varies from step to step: prefetch more batches, call "
        "`gc.freeze` before the training loop, pin the processes to cores.",
        "work.title": "Rank {rank} computes {more_pct} more than the mean of the ranks: {gain}",
        "work.compared": "It does {tera_flops:,.2f} TFLOPs in a step; the mean of the ranks (in a "
        "pipeline, of its stage) is {mean_tera_flops:,.2f} TFLOPs.{tokens}",
        "work.rows": " Its products with one of the matrices have {row_count:count row} on "
        "average, such as tokens; the mean of the ranks is {mean_row_count:,}.",
        # Of stored runs.
        "work.issue": "It does {tera_flops:,.2f} TFLOPs, the mean is {mean_tera_flops:,.2f} "
        "TFLOPs in a step.",
        "work.action": "Divide the work evenly: sort or pack sequences by length, or balance the "
        "batches by tokens, and the tokens of experts.",
        "bubble.title": "Pipeline stages wait {bubble_pct} of the step for each other: {gain}",
        "bubble.issue": "In the median step, without computing: {parts:joined , }. With "
        "{stages:count stage} and {micro_batches:count micro-batch} in a step, {ideal_pct} is "
        "unavoidable if all stages take equally long.",
        "bubble.stage": "stage {stage} {bubble_ms}",
        "bubble.phases": "stage {stage} {bubble_ms} ({phases:joined , })",
        "bubble.bubble_before_ms": "{phase_ms} before its first micro-batch",
        "bubble.bubble_between_ms": "{phase_ms} between micro-batches",
        "bubble.bubble_after_ms": "{phase_ms} after its last one",
        "bubble.action": "Use more and smaller micro-batches, or an interleaved schedule. If one "
        "stage waits less than the others, move layers from it to them.",
        "exposed.title": "Transfers take {exposed_ms} of a step without compute: {gain}",
        "exposed.issue": "Transfer without compute, per step, after all ranks had arrived: "
        "{parts:joined , }. {hideable_ms} of it could run beside other compute of the step.",
        "exposed.ep": "of experts {exposed_ms}",
        "exposed.pp": "between stages {exposed_ms}",
        "exposed.dp": "of data parallelism {exposed_ms}",
        "exposed.tp": "of tensors {exposed_ms}",
        "exposed.action.ep": "Run the all-to-alls of experts beside the attention of another "
        "micro-batch.",
        "exposed.action.pp": "Send and receive while another micro-batch computes.",
        "exposed.action.dp": "Gather the parameters of a layer while the layer before computes.",
        "exposed.action.gradients": "Send gradients while the rest of the backward pass computes: "
        "wait for them only before the optimizer, and send each bucket as soon as it is full.",
        "exposed.action.tp": "Sums of tensors have no other compute to run beside: split them, by "
        "sequence parallelism or asynchronous tensor parallelism.",
        "link.title": "Collectives reach {pct_of_link_pct} of the link: {gain}",
        "link.issue": "{instances:count collective} of at least {min_bytes} in {communicator:name} "
        "move {bus_gb_per_s:,.1f} GB/s of {peak_gb_per_s:,.1f} GB/s after the last rank arrived.",
        "link.action": "Check the topology, the link and its errors, and the settings of the "
        "communication library.",
        "small.title": "{instances:count collective} take little more than their latency: {gain}",
        "small.issue": "They are {pct} of the exposed transfer, with messages of {mean_bytes} on "
        "average. Bandwidth hardly matters for them.",
        "small.action": "Bundle the messages into fewer collectives, or use larger buckets. "
        "Compression does not help.",
        "experts.title": "Rank {rank} receives {more_pct} more than the mean of the ranks in "
        "{instances:count all-to-all}: {gain}",
        # Of stored runs.
        "experts.issue": "It receives {most_bytes} in them, the mean is {mean_bytes}. The rank "
        "with the most bytes decides how long an all-to-all takes.",
        "experts.received": "It receives {most_bytes} in them, the mean is {mean_bytes}. The rank "
        "with the most bytes decides how long an all-to-all takes.{pair}",
        "experts.pair": " In the whole recording, it receives most from rank {sender}: "
        "{sent_bytes}.",
        "experts.action": "Balance the tokens of the experts: a loss or a bias for balance in the "
        "router, a capacity of each expert, or other ranks for the busiest experts.",
        "mismatch.title": "Ranks send different sizes in {instances:count collective}",
        "mismatch.issue": "In {communicator:name}, rank {rank} sends {own_bytes} where another "
        "rank sends {other_bytes}.",
        "mismatch.action": "Check the batches and the code paths of these ranks.",
        "note.missing": "{missing:count rank} of {world_size} {missing:either is|are} not "
        "recorded, so transfer is at most what is shown, and a rank that is not recorded may "
        "arrive last.",
        "note.parts": "The recording of {of_ranks:either rank|ranks} {ranks} lacks up to "
        "{instances:count collective} that others have, in {of_steps:either step|steps} {steps}: "
        "transfer is at most what is shown there.",
        "note.steps": "No steps are marked, so what a step gains is not known.",
        "note.few_steps": "{steps:count step} between the edges of the recording can be compared. "
        "That a rank is late step after step is only said of {least} steps or more; the tables "
        "show which ranks were late.",
        "note.unconnected": "No collective with known clocks connects {of_ranks:either rank|ranks} "
        "{ranks} with the first rank, so it is not known how their clocks differ; gains are those "
        "of the other ranks.",
        "note.clocks": "The clocks of the ranks cannot be compared, so waiting and gains are not "
        "known.",
    },
)
