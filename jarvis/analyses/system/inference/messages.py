"""Messages about steps of inference, their layers and their replayed graphs."""

from jarvis.text.messages import MessageTable

MESSAGES = MessageTable(
    "inference",
    {
        "of_phase": " of {phase}",
        "title.shapes": "Shapes missing: {share_pct} of the GPU time is replayed from graphs",
        "issue.shapes": "{launches:count graph launch} {launches:either replays|replay} {time_ms} "
        "of GPU work ({share_pct} of all). The trace has only names and times of these kernels, no "
        "operators and shapes, so their efficiency is not known.",
        "kernel.shapes": "{engine}: record the capture of the graphs with {capture}, and analyze "
        "it together with the steps (`--capture-folder`).",
        "hypothesis.shapes": "Operators run while the engine captures its graphs, at start; a "
        "replay launches only their kernels.",
        "verify.shapes": "Analyze replay and captures together: the table of graph launches "
        "must list them as merged.",
        "capture.shapes": "{engine}: record the capture of the graphs with {capture}; record the "
        "steps with {recording}. Options can differ between versions. Analyze both with "
        "`--capture-folder`.",
        "title.coverage": "Captures do not cover all replayed work",
        "issue.coverage": "Of {of:count graph launch}: {states:list}. {time_ms} of replayed work "
        "has no captured call, so its efficiency is not known.",
        "coverage.gaps": "{launches} merged, with gaps ({coverage_pct} of the time at least)",
        "coverage.none": "{launches} not merged ({reason})",
        "kernel.coverage": "Record the captures that are missing, and analyze the trace again.",
        "hypothesis.coverage": "The captures are of another model, batch size or release than the "
        "recording, or some are missing.",
        "capture.coverage": "Pass the captures of the same engine, model and batch sizes, of all "
        "graphs that the steps replay.",
        "of_kind": " (kind {kind})",
        "title.layers": "{layers:either Layer|Layers} {numbers:list 4}{of_phase}{of_kind} "
        "{layers:either takes|take} longer than the others",
        "title.groups": "{layers:either Group|Groups} {numbers:list 4} of {per_period} layers"
        "{of_phase}{of_kind} {layers:either takes|take} longer than the others",
        "number": "{layer}",
        "evidence.layers": "{layers:list 8}",
        "evidence.layer": "{layer} ({time_us})",
        "issue.layers": "{layers:either Layer|Layers} {numbers:list 4} of {of} "
        "{layers:either takes|take up to} {slowest_us}, the median layer {median_us}: {excess_ms} "
        "more in {replays:count run}.{grown}",
        "issue.groups": "{layers:either Group|Groups} {numbers:list 4} of {of}, each of "
        "{per_period} layers, {layers:either takes|take up to} {slowest_us}, the median group "
        "{median_us}: {excess_ms} more in {replays:count run}.{grown}",
        "issue.grown": " Most of it is in {kernel} at position {position}: {grown_us} instead of "
        "{usual_us}.",
        "algorithmic.layers": "Compare what {layers:either this layer does|these layers do} with "
        "the others: layers of equal shapes take equal time.",
        "kernel.layers": "Check whether this kernel runs with another configuration or other "
        "memory there.",
        "hypothesis.layers": "The same layers are slow on average over all replays: their weights, "
        "caches or expert loads differ.",
        "hypothesis.layers.once": "Only one replay is recorded, so it may be an interruption that "
        "no other step has.",
        "caveat.layers": "The saving assumes that these layers can be as fast as the median one; "
        "layers that do more are slower for a reason.",
        "verify.layers": "Record the trace again: {layers:either this layer|these layers} must "
        "approach {median_us}.",
        "capture.layers": "Record several steps: they show whether the same layers are slow in "
        "each.",
        "title.short": "Many short kernels in the steps",
        "issue.short": "{kernels:count kernel} below {limit_us:.0f} µs take {time_ms} ({share_pct} "
        "of the GPU time of the steps).{pairs} At most {most_ms} of this GPU time can be "
        "saved: if each took {floor_ms}, like the shortest tenth{fused}.",
        "issue.pairs": " Some libraries fuse neighboring kernels, here {pairs:list 4}: the shorter "
        "kernel of each pair takes {pairs_ms} in all.",
        "issue.fused": ", and each pair were one kernel",
        "pair": "{count} times {first} and {second}",
        "evidence.pairs": "{pairs:list 4}",
        "algorithmic.short": "Fuse kernels that follow each other in a layer: fewer kernels, not "
        "faster ones, save this time.",
        "kernel.short": "Check whether the engine has fused kernels for normalization, rotary "
        "embedding, cache writes and quantization.",
        "kernel.short.pairs": "Use one kernel for each of these pairs, if the engine has it.",
        "hypothesis.short": "Each of them has so little work, such as a few tokens, that the fixed "
        "cost of a kernel dominates.",
        "caveat.short": "At most, every kernel is as short as the shortest tenth; a fused kernel "
        "does the work of both.",
        "verify.short": "Record the trace again: the steps must have fewer than {kernels} short "
        "kernels.",
        "title.padding": "Padded batches",
        "issue.padding": "{steps:count step} {steps:either computes|compute} {rows:count row} for "
        "{tokens:count token}: {padding_pct} of the rows are padding on average. Operations with a "
        "perf model take {time_ms} there.",
        "algorithmic.padding": "Let the scheduler fill the batches, or capture graphs for the "
        "batch sizes that occur most.",
        "hypothesis.padding": "Graphs are captured for a few batch sizes, and a step uses the next "
        "larger one.",
        "caveat.padding": "Products that only read weights take as long with fewer rows: the "
        "middle estimate has only operations that compute limits.",
        "verify.padding": "Record the trace again: tokens and batch of the steps must be closer.",
        "title.routing": "Routing to experts takes long",
        "issue.routing": "{kernels:count kernel} for routing ({names:names}) take {time_ms}, "
        "{share_pct} of {whole_ms} for routing and experts together.",
        "algorithmic.routing": "Larger batches or fewer, larger experts need less routing for "
        "each token.",
        "kernel.routing": "Use fused kernels for top-k, sorting and permutation, if the engine has "
        "them.",
        "hypothesis.routing": "Few tokens for many experts: sorting and counting them takes about "
        "as long for few as for many.",
        "title.reduction": "Reductions of split attention take long",
        "issue.reduction": "{kernels:count kernel} that combine split keys ({names:names}) take "
        "{time_ms}, {share_pct} of {whole_ms} for attention.",
        "algorithmic.reduction": "Batch more requests: then attention fills the GPU with fewer "
        "splits.",
        "kernel.reduction": "Reduce the number of splits for these lengths and batches.",
        "hypothesis.reduction": "Few requests with long contexts: their keys are split, so that "
        "attention fills the GPU.",
        "title.head": "Last product and sampling take long",
        "issue.head": "{kernels:count kernel} behind the last layer ({names:names}) take "
        "{time_ms}, {share_pct} of {whole_ms} in these steps.",
        "algorithmic.head": "Compute logits only for tokens that are sampled, and quantize or "
        "split the last product.",
        "kernel.head": "Use one fused sampling kernel, and request a product for these shapes.",
        "hypothesis.head": "The vocabulary is large beside the layers: its weights are read in "
        "each step.",
        "evidence.names": "{names:names}",
        "caveat.share": "The saving is what exceeds a share of {threshold_pct}, an assumption.",
        "verify.share": "Record the trace again: these kernels must take less than {time_ms}.",
        "title.piecewise": "Gaps between the graphs of a step",
        "issue.piecewise": "{steps:count step} {steps:either replays|replay} {graphs:count graph} "
        "in all, and the GPU idles for {idle_ms} ({share_pct} of their time) in {gaps:count gap} "
        "between them.{between}",
        "between": " Between them runs {blocks:list}.",
        "algorithmic.piecewise": "Capture what runs between the graphs, so that a step replays "
        "fewer of them.",
        "kernel.piecewise": "Use kernels that can be captured where the graphs are split, such as "
        "attention with lengths in GPU memory.",
        "hypothesis.piecewise": "What runs between the graphs is not captured: the host launches "
        "it, and the next graph after it.",
        "verify.piecewise": "Record the trace again: the steps must have fewer graph launches and "
        "gaps.",
        "title.eager": "Compiled steps without a graph",
        "issue.eager": "{steps:count step} with compiled kernels {steps:either replays|replay} no "
        "graph, and the GPU idles for {idle_ms} ({share_pct} of their time) in {gaps:count gap}.",
        "algorithmic.eager": "Turn on the engine's graphs for these batch sizes.",
        "kernel.eager": "No kernel needs to change: a graph launches them at once.",
        "hypothesis.eager": "Graphs are off, or none is captured for this batch size.",
        "verify.eager": "Record the trace again: these steps must have graph launches and fewer "
        "gaps.",
        "caveat.idle": "The saving is part of the idle time, which has findings of its own, and "
        "not counted twice.",
    },
)
