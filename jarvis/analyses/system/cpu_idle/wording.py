"""Messages about idle time and each of its causes."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from jarvis.perf_report.timeline.idle_gaps import IdleCause
from jarvis.text.messages import Message, MessageTable, Templates, action
from jarvis.text.quantities import QUANTITIES, idle_quantity

WITH_STACKS = action(
    "Record with `with_stack=True`, so that Python frames show what the host does meanwhile.",
    "not has_stacks",
)
STEADY_STEPS = (
    action(
        "Record several steps after warm-up: `schedule(wait=1, warmup=3, active=3)` skips first "
        "uses.",
        "not is_served",
    ),
    action("Record several steps after the engine has warmed up.", "is_served"),
)
REPLAY_FROM_GRAPH = (
    action(
        "Replay steady parts of the step from a GPU graph, which launches them at once.",
        "not has_graph_replay",
        "not has_host_reads",
    ),
    action(
        "Replay steady parts of the step from a GPU graph, once they read no values on the host "
        "(`.item()`, conditions on tensors), which a graph cannot contain.",
        "not has_graph_replay",
        "has_host_reads",
    ),
)


REPLAYED = action(
    "{replayed_pct} of the kernels are already replayed from GPU graphs: look at the host work "
    "between the replays, and capture more of the step in one graph.",
    "has_graph_replay",
)
COMPILE = action(
    "Compile the model, so that fewer and larger kernels run.", "not has_compiled_code"
)
BROADEN = action(
    "Remove graph breaks and dynamic shapes, so that the compiler fuses more.", "has_compiled_code"
)


@dataclass(frozen=True, slots=True)
class CauseWords:
    """The templates for one cause. ``is_idle`` is False if the GPU may have been busy."""

    cause: IdleCause
    title: str
    what: str
    hypothesis: Templates
    algorithmic: Templates
    kernel: Templates
    verify: str
    capture: Templates = ()
    is_idle: bool = True

    @property
    def quantity(self) -> str:
        """Return the name of its idle time in evidence."""
        return idle_quantity(self.cause)

    @property
    def label(self) -> str:
        """Return its name in tables."""
        return QUANTITIES[self.quantity].label

    @property
    def templates(self) -> Mapping[str, Templates]:
        """Return its texts by key of ``MESSAGES``."""
        texts = {field.name: getattr(self, field.name) for field in fields(self)}
        del texts["cause"], texts["is_idle"]
        return {f"{self.cause}.{name}": text for name, text in texts.items()}

    def message(self, field: str) -> Message:
        """Return the message of a text that has one (``title``, ...)."""
        return MESSAGES(f"{self.cause}.{field}")

    def texts(self, field: str, **values: Any) -> tuple[Message, ...]:
        """Return the messages of a text that may have several, or none."""
        return MESSAGES.texts(f"{self.cause}.{field}", **values)


_CAUSES = (
    CauseWords(
        IdleCause.DATA_LOADING,
        title="The GPU waits for data",
        what="the host loads the next batch",
        hypothesis=[
            "Batches are not ready when the step needs them.",
            action("The loader has too few workers, or storage is slow.", "has_loader_workers"),
            action(
                "The loader has no workers: it loads, decodes and augments in the launching "
                "process.",
                "has_loader_without_workers",
            ),
        ],
        algorithmic=[
            action(
                "Load in background workers and prefetch (`num_workers`, `prefetch_factor`, "
                "`persistent_workers`).",
                "has_loader_without_workers",
            ),
            action(
                "Use more workers and prefetch more batches (`num_workers`, `prefetch_factor`).",
                "has_loader_workers",
            ),
            "Do decoding and augmentation once, before the run.",
        ],
        kernel=[
            action(
                "Pin the host memory of batches, so that a copy does not block.",
                "copies_are_pageable(H2D)",
            ),
            action(
                "Copy the next batch on a separate stream while the current step computes.",
                "copies_share_compute_stream(H2D)",
            ),
            "Decode and augment on the GPU if it has spare time.",
        ],
        verify="With one cached batch used for every step, this idle time must vanish; with a "
        "tuned loader the step must come close to that.",
        capture=action(
            "Record several steps, because the first fetch, which starts the workers, is not "
            "representative.",
            "has_loader_workers",
            "not has_several_steps",
        ),
    ),
    CauseWords(
        IdleCause.HOST_WORK,
        title="The host works before it launches",
        what="the host runs Python or operators",
        hypothesis="Work before the next launch, such as the preparation of inputs or logging, "
        "runs in the launching process, and the GPU has no work queued meanwhile.",
        algorithmic="Move that work to another process or thread, do it once before the loop, or "
        "do it while the GPU computes the previous step.",
        kernel="Queue the work of the next step before the host code runs.",
        verify="Record again: the named host call must no longer run between two launches.",
        capture=WITH_STACKS,
    ),
    CauseWords(
        IdleCause.SYNCHRONIZATION,
        title="The host waits for the GPU, then the GPU for the host",
        what="the host was blocked in a call and had queued no work",
        hypothesis="The host reads results of the GPU, or the code synchronizes explicitly.",
        algorithmic=[
            action(
                "Keep the value on the GPU, and read it every n-th step or one step late.",
                "has_host_reads",
            ),
            "Remove the blocking call from the step.",
        ],
        kernel=[
            action("Copy into pinned memory without blocking.", "copies_are_pageable(D2H)"),
            action("Replace conditions on tensors by masked kernels.", "has_host_reads"),
            "Wait for an event where the result is used, not for all work of the GPU.",
        ],
        verify="Record again: the blocking call must be gone from the step, or last a few µs.",
        capture=WITH_STACKS,
    ),
    CauseWords(
        IdleCause.LAUNCH_BOUND,
        title="Launch-bound: the GPU waits for the next launch",
        what="the host has not launched the next work yet",
        hypothesis=[
            "The kernels are too short to hide the host's work for the next launch.",
            action("Recording Python stacks adds to that work.", "has_stacks"),
            action("Recording shapes adds to that work.", "has_shapes"),
        ],
        algorithmic=[
            COMPILE,
            BROADEN,
            "Give each launch more work with a larger batch.",
        ],
        kernel=[*REPLAY_FROM_GRAPH, REPLAYED],
        verify="Record again: there must be fewer kernels, a higher mean time and less idle time.",
        capture=[
            action(
                "Record once with `with_stack=False` and `record_shapes=False`: what remains is "
                "the host's own launch time.",
                "has_stacks",
                "has_shapes",
            ),
            action(
                "Record once with `with_stack=False`: what remains is the host's own launch time.",
                "has_stacks",
                "not has_shapes",
            ),
            action(
                "Record once with `record_shapes=False`: what remains is the host's own launch "
                "time.",
                "not has_stacks",
                "has_shapes",
            ),
        ],
    ),
    CauseWords(
        IdleCause.KERNEL_LOADING,
        title="Launch calls take milliseconds",
        what="a launch call or the loading of a module takes far longer than a launch, as on "
        "first use, which later steps do not repeat",
        hypothesis="Kernels are used for the first time: their code is loaded, compiled or tuned "
        "within the call. Steps after warm-up avoid this cost.",
        algorithmic="Warm up with the shapes of the run before measuring or serving; use few "
        "shapes, so that later steps load nothing new.",
        kernel="Load modules eagerly at startup, and reuse the caches of compiled and tuned "
        "kernels between runs.",
        verify="Record steps after warm-up: these calls must take some µs.",
        capture=STEADY_STEPS,
    ),
    CauseWords(
        IdleCause.ALLOCATOR,
        title="The GPU waits for memory calls",
        what="the host allocates or frees memory of the GPU or pinned memory",
        hypothesis="The caching allocator has no fitting block: memory is nearly full or "
        "fragmented, shapes change, or memory is allocated within the step.",
        algorithmic="Preallocate, keep shapes and batch sizes steady, and do not empty the cache "
        "within a step.",
        kernel="Let the caching allocator grow its segments (`expandable_segments:True`), and "
        "reuse pinned buffers.",
        verify="Record again after warm-up: there must be no memory calls within the step.",
        capture="Record with `profile_memory=True` for the sizes, and after warm-up.",
    ),
    CauseWords(
        IdleCause.COMMUNICATION,
        title="The GPU waits for communication",
        what="a collective or a barrier blocks the host, or blocks queued work",
        hypothesis="Ranks wait for each other. One rank cannot distinguish a slow transfer from a "
        "late rank.",
        algorithmic=[
            action("Remove barriers from the step.", "has_barriers"),
            "Balance the work of the ranks.",
        ],
        kernel="Issue collectives asynchronously and wait only where their result is used.",
        verify="Record all ranks again and compare when they reach the collective.",
        capture="Record the same step on all ranks: only then is the late one visible.",
    ),
    CauseWords(
        IdleCause.STALLED_QUEUE,
        title="Work is queued, and the GPU seems to idle",
        what="work is already queued but does not start",
        hypothesis="The GPU ran something that the trace does not show: another process, or "
        "kernels that were not recorded; or the work waited for another device.",
        algorithmic="First determine whether the GPU idles: the model needs no change for time "
        "that the profiler did not record.",
        kernel="Check a hardware utilization monitor during the same step; no kernel needs to "
        "change before that.",
        verify="In a trace with all kernels, the gap must be filled or have another cause.",
        capture="Record again with nothing else on the GPU, several steps after warm-up.",
        is_idle=False,
    ),
    CauseWords(
        IdleCause.QUEUED,
        title="Gaps between kernels that are queued",
        what="the next work is queued and starts within some µs",
        hypothesis=[
            "Each kernel has startup and end overhead.",
            action("Kernels of different streams wait for each other.", "has_several_streams"),
        ],
        algorithmic="Fuse small operators with a compiler, so that there are fewer gaps.",
        kernel=[
            action(
                "Replay from a GPU graph, which shortens the gaps.",
                "not has_graph_replay",
            ),
            action("Keep dependent work on one stream.", "has_several_streams"),
        ],
        verify="Record again: there must be fewer kernels and a smaller sum of gaps.",
    ),
    CauseWords(
        IdleCause.UNLINKED_WORK,
        title="The GPU was busy with work that the timeline excludes",
        what="GPU events run whose launch is not in the trace, so this is not real idle time",
        hypothesis="They were launched before the recording began, or by calls that the profiler "
        "did not record.",
        algorithmic="Nothing to fix here: the time is not idle.",
        kernel="Identify these kernels by name until a trace links them to operators.",
        verify="In a trace with all launches, the gap must be gone.",
        capture=[
            "Start the recording a few steps earlier, so that it includes the launches.",
            action("Record with CPU activity.", "not has_host_calls"),
        ],
        is_idle=False,
    ),
    CauseWords(
        IdleCause.CARRIED_IN,
        title="The GPU finished work from before the recording",
        what="the first work is queued behind work from before the recording, so this is not real "
        "idle time",
        hypothesis="The recording began while the GPU still ran earlier work, which is not in the "
        "trace.",
        algorithmic="Nothing to fix here: the time is not idle and belongs to no recorded step.",
        kernel=(),
        verify="In a trace that begins when the GPU has no work, the gap must be gone.",
        capture="Record several steps and look at the later ones, or begin the recording when the "
        "GPU has no work.",
        is_idle=False,
    ),
    CauseWords(
        IdleCause.WINDOW_EDGE,
        title="The host was not recorded meanwhile",
        what="the recording of the host has not started yet or has ended",
        hypothesis="The profiler started or stopped within the step.",
        algorithmic="Nothing to fix until a trace shows the cause.",
        kernel="Nothing to fix until a trace shows the cause.",
        verify="In a trace of whole steps, the gap must have a cause.",
        capture=STEADY_STEPS,
        is_idle=False,
    ),
    CauseWords(
        IdleCause.UNKNOWN,
        title="Idle time without a known cause",
        what="no recorded call explains it",
        hypothesis="Unknown: the host ran code that the profiler does not see, or waited for "
        "something external.",
        algorithmic=[
            action("First find out what the host does: see what to capture.", "not has_stacks"),
            action(
                "First find out what the host does: Python stacks do not show it, but a system "
                "profiler does.",
                "has_stacks",
            ),
        ],
        kernel=(),
        verify="In the new trace, the gaps must have a cause.",
        capture=WITH_STACKS,
    ),
)

CAUSES: Mapping[IdleCause, CauseWords] = {words.cause: words for words in _CAUSES}
"""The texts of every cause; ``jarvis.perf_report.timeline.idle_gaps`` defines when one applies."""

MESSAGES = MessageTable(
    "cpu_idle",
    {
        **{key: texts for words in _CAUSES for key, texts in words.templates.items()},
        "title": "The GPU idles",
        "title.other": "The GPU idles for other causes",
        "issue": "The GPU idles for {idle_ms}, {idle_pct} of {whole}: no kernel, copy or "
        "communication runs.",
        "issue.other": "The GPU idles for another {idle_ms}, {idle_pct} of {whole}, in gaps that "
        "no other finding covers.",
        "issue.cause": "The GPU idles for {idle_ms} ({idle_pct} of {whole}) in {gaps:count gap} in "
        "which {what}{first_uses}{host_call}.{without_stacks}{slow_steps}",
        "issue.carried_in": "For {idle_ms} ({idle_pct} of the GPU window, {gaps:count gap}) the "
        "GPU finishes work that was launched before the recording: {what}{host_call}.",
        "algorithmic.every_step": "The excluded time needs no fix. If the host waits in this call "
        "in each step, it cannot prepare the next step while the GPU works: use the overlap "
        "scheduling of the engine.",
        "step": "step",
        "recording": "recording",
        "average": " on average over {steps:count step}",
        "title.before": "The GPU starts late in the {whole}: {cause:lower}",
        "title.after": "The GPU has finished long before the {whole} ends: {cause:lower}",
        "issue.before": "The GPU starts {share_pct} into the {whole}{average}: {idle_ms} of "
        "{step_ms} pass before its first work, while {what}{host_call}.",
        "issue.after": "The GPU finishes {share_pct} before the end of the {whole}{average}: "
        "{idle_ms} of {step_ms} follow its last work, while {what}{host_call}.",
        "call": "{name}",
        "call.of": "{name} of {operator:name}",
        "where": "{name}{during}",
        "where.call": "{call}{frame}{during}",
        "where.in": " in {frame:name}",
        "where.during": " during {annotation:name}",
        "issue.without_stacks": " The trace was recorded without stacks, so there is no source "
        "line.",
        "issue.slow_steps": " Slow for this reason: {names:names} (up to {excess_ms} over the "
        "median).",
        "what.no_workers": "the host loads the next batch, without worker processes",
        "copy.D2H": ", which copies {size_bytes:size} to the host{memory}",
        "copy.H2D": ", which copies {size_bytes:size} to the device{memory}",
        "memory.pageable": " (pageable memory)",
        "memory.pinned": " (pinned memory)",
        "hypothesis.item": "A single value is read on the host, as `.item()`, conditions on "
        "tensors and logging do.",
        "hypothesis.scalar": "The host needs a value of a few bytes from the GPU, such as the size "
        "of a result.",
        "hypothesis.tensor": "A tensor is read on the host, as `.cpu()` and `.tolist()` do.",
        "hypothesis.send": "The host waits for a tensor that it sends to the GPU.",
        "hypothesis.explicit": "The code synchronizes explicitly.",
        "kernel.prevented": action(
            "A GPU graph cannot contain blocking calls, so first remove these: {calls:list}.",
            "not has_graph_replay",
        ),
        "title.few_launches": "The launch queue runs empty for a while",
        "what.few_launches": "the host has not launched the next work yet, while most of the "
        "{kernels:count kernel} are queued in time",
        "algorithmic.few_launches": "The host is behind the GPU in these gaps only: give each "
        "launch there more work.",
        "hypothesis.few_launches": "Most kernels are queued in time. Before these gaps the queue "
        "is empty, as after a synchronization, or the host is slower than the GPU.",
        "title.after_waits": "The launch queue is empty after waits for the GPU",
        "hypothesis.after_waits": "Most kernels are queued in time. In these calls the host waits "
        "until earlier work of the GPU has finished, so when it goes on, none is queued.",
        "algorithmic.after_waits": "Remove these waits from the step where the host needs no "
        "result. Each one that remains empties the queue again.",
        "algorithmic.zero_grad": "Set gradients to None (`zero_grad(set_to_none=True)`), which "
        "launches nothing.",
        "what.model_code": "the host runs mostly model code before it launches",
        "hypothesis.model_code": "The model's own Python and operators take this long before they "
        "launch the next kernel, and no work is queued meanwhile.",
        "algorithmic.model_code": [
            action(
                "Compile the model, so that less Python runs before a launch.",
                "not has_compiled_code",
            ),
            BROADEN,
            "Let the host run ahead of the GPU: do not synchronize between steps.",
        ],
        "kernel.model_code": REPLAY_FROM_GRAPH,
        "issue.first_uses": ", which first uses of kernels may lengthen",
        "evidence.place": "{count:count gap} mostly in {place} ({time_ms})",
        "call.beside": "; the longest gap ({longest_gap_ms}) coincides with {call} ({length_ms})"
        "{copy}",
        "call.only": ", mostly in {place}",
        "call.most": "; the largest part, {time_ms} in {gaps:count gap}, mostly in {place}",
        "call.after.all": "; {gaps:either it follows|all follow} waits for the GPU: {waits:list}",
        "call.after": "; {time_ms} of it in {gaps:count gap} follow waits for the GPU: "
        "{waits:list}",
        "wait": "{call} ({wait_ms} in {waits:count call}, then {gaps:count gap} of {time_ms})",
        "call.blocking": "; meanwhile the host waits {length_ms} in the blocking call {call}{copy}",
        "call.blocking_copy": "; meanwhile the host waits {length_ms} in the blocking copy "
        "{call}{copy}",
        "evidence.list": "{items:list}",
        "evidence.host_call": "{count:count gap} in {call} ({count:either a call of|a call of up "
        "to} {longest_ms})",
        "evidence.wait": "{name} ({time_ms})",
        "caveat.window": "Idle time is counted between the first and the last GPU event of the "
        "trace, so it depends on what was recorded; open the trace in a timeline viewer such as "
        "Perfetto to see each gap.",
        "caveat.doubtful": "No saving can be estimated: the GPU may have been busy.",
        "caveat.short_kernels": "The saving is part of the idle time and not counted twice.",
        "verify.steps": "Record several steps after warm-up; idle time below {target_pct:.0f}% is "
        "the goal.",
        "verify.short_kernels": "Record the trace again: there must be fewer kernels, a higher "
        "mean time and less idle time.",
        "algorithmic.without_host": action(
            "First find out why the GPU waits: record the same step with CPU activity.",
            "not has_host_calls",
        ),
        "hypothesis.without_host": "The trace has no host calls, so the reason why the GPU waits "
        "is not known.",
        "capture.without_host": action(
            "Record with CPU activity too, so that host calls and launches are in the trace.",
            "not has_host_calls",
        ),
        "algorithmic.unknown": [
            COMPILE,
            BROADEN,
            "Enlarge the batch, so that each launch does more work.",
            action(
                "Remove reads of single values, such as `.item()`, from the step.", "has_host_reads"
            ),
        ],
        "hypothesis.unknown": "The host does not feed the GPU fast enough: launch overhead, "
        "synchronization or host work between launches.",
        "kernel.launches": [
            *REPLAY_FROM_GRAPH,
            REPLAYED,
            action("Prepare input data in background workers.", "has_loader_without_workers"),
        ],
        "hypothesis.under_recorded": "Likely an under-recorded graph: the trace replays GPU "
        "graphs, and the GPU was probably running kernels of a replay that the profiler did not "
        "record.",
        "algorithmic.under_recorded": "Record the step again before changing the model: the replay "
        "of a GPU graph was likely recorded only in part.",
        "capture.under_recorded": "Record one step with GPU graphs disabled, or start the "
        "profiler before the graph is captured and use the trace of the capture: both name the "
        "kernels of the graph.",
        "title.short_kernels": "Many short kernels",
        "title.mostly_short_kernels": "Most kernels are shorter than a launch",
        "issue.short_kernels": "{short:,} of {kernels:count kernel} ({share_pct}) are shorter than "
        "{limit_us:.0f} µs, {mean_us:number} µs on average over all.",
        "algorithmic.short_kernels": [
            "Fuse small operators with a compiler, and batch small tensors together.",
            action("Use a multi-tensor optimizer.", "has_backward"),
        ],
        "pattern.idle": "{idle_pct} of {whole} is idle",
        "pattern.short_kernels": "{share_pct} of the kernels are shorter than {limit_us:.0f} µs",
        "pattern.kernel_count": "{kernels:count kernel}",
        "pattern.mean_kernel_time": "{mean_us:number} µs per kernel on average",
    },
)
