"""What to say about each cause of idle time, on both paths."""

from collections.abc import Mapping
from dataclasses import dataclass

from jarvis.perf_report.idle_gaps import IdleCause

WITH_STACKS = (
    "Record with `with_stack=True`, so that Python frames name what the host does meanwhile."
)
STEADY_STEPS = (
    "Record several steps after warm-up: `schedule(wait=1, warmup=3, active=3)` leaves first uses "
    "out."
)
WITHOUT_GRAPHS = (
    "Record one step with GPU graphs turned off, or start the profiler before the graph is "
    "captured and keep the trace of the capture: both name the kernels of the graph."
)
WITH_HOST = "Record with CPU activity too, so that host calls and launches are in the trace."


@dataclass(frozen=True, slots=True)
class CauseWords:
    """The words for one cause. ``is_idle`` is False where the GPU may have been busy."""

    label: str
    title: str
    what: str
    hypothesis: str
    algorithmic: str
    kernel: str
    verify: str
    capture: str | None = None
    is_idle: bool = True


CAUSES: Mapping[IdleCause, CauseWords] = {
    IdleCause.DATA_LOADING: CauseWords(
        label="Data loading",
        title="The GPU waits for data",
        what="the host loads the next batch",
        hypothesis="Batches are not ready when the step needs them: too few loading workers, "
        "slow storage, or decoding and augmentation in the process that launches.",
        algorithmic="Load in background workers and prefetch (`num_workers`, `prefetch_factor`, "
        "`persistent_workers`), and do decoding and augmentation once, ahead of the run.",
        kernel="Pin the host memory of batches and copy the next one without blocking while the "
        "current step computes; decode and augment on the GPU where it has time.",
        verify="With one batch held in memory and used for every step, this idle time must vanish; "
        "with the loader tuned the step must come close to that.",
        capture="Record several steps, so that the first fetch, which starts the workers, does not "
        "stand for all.",
    ),
    IdleCause.HOST_WORK: CauseWords(
        label="Host work",
        title="The host works before it launches",
        what="the host runs Python or operators that launch nothing",
        hypothesis="Preparation, tokenization, sampling, logging or scheduling runs in the process "
        "that launches, and the GPU has no work queued meanwhile.",
        algorithmic="Move that work to another process or thread, do it once ahead of the loop, or "
        "do it while the GPU computes the step before.",
        kernel="Queue the work of the next step before the host code runs, and move computations "
        "on tensors to the GPU.",
        verify="Record again: the named host call must no longer stand between two launches.",
        capture=WITH_STACKS,
    ),
    IdleCause.SYNCHRONIZATION: CauseWords(
        label="Synchronization",
        title="The host waits for the GPU, then the GPU for the host",
        what="the host had waited in a blocking call and so had queued nothing",
        hypothesis="A value is read on the host, as `.item()`, `.cpu()`, conditions on tensors and "
        "logging do, or the code synchronizes explicitly.",
        algorithmic="Keep the value on the GPU, read it every n-th step or one step late, and take "
        "explicit synchronization out of the step.",
        kernel="Copy into pinned memory without blocking and wait for an event where the value is "
        "used; replace conditions on tensors by masked kernels.",
        verify="Record again: the blocking call must be gone from the step, or last a few µs.",
        capture=WITH_STACKS,
    ),
    IdleCause.LAUNCH_BOUND: CauseWords(
        label="Launch-bound",
        title="The GPU is faster than the host can launch",
        what="the host works through operators one by one, each taking longer to launch than to "
        "run",
        hypothesis="The kernels are too short to hide the host's work for the next launch. Where "
        "Python stacks or shapes were recorded, part of that work is the profiler's own.",
        algorithmic="Compile the model, so that fewer and larger kernels run, or give each launch "
        "more work with a larger batch.",
        kernel="Replay steady parts of the step from a GPU graph, which launches them at once.",
        verify="Record again: fewer kernels, a higher mean time, less idle time.",
        capture="Record once with `with_stack=False` and `record_shapes=False`: what remains is "
        "the host's own launch time.",
    ),
    IdleCause.KERNEL_LOADING: CauseWords(
        label="Kernel loading",
        title="Launch calls take milliseconds",
        what="a launch call or the loading of a module takes far longer than a launch does, as on "
        "first use, which later steps do not repeat",
        hypothesis="Kernels are used for the first time: their code is loaded, compiled or tuned "
        "within the call. Steps after warm-up do not pay for it.",
        algorithmic="Warm up with the shapes of the run before measuring or serving; keep shapes "
        "few, so that later steps load nothing new.",
        kernel="Load modules eagerly at start, and keep the caches of compiled and tuned kernels "
        "between runs.",
        verify="Record steps after warm-up: these calls must take some µs.",
        capture=STEADY_STEPS,
    ),
    IdleCause.ALLOCATOR: CauseWords(
        label="Memory allocation",
        title="The GPU waits for memory calls",
        what="the host allocates or frees memory of the GPU or pinned memory",
        hypothesis="The caching allocator does not hold a fitting block: memory is nearly full or "
        "fragmented, shapes change, or memory is allocated within the step.",
        algorithmic="Preallocate, keep shapes and batch sizes steady, and do not empty the cache "
        "within a step.",
        kernel="Let the caching allocator grow its segments (`expandable_segments:True`), and "
        "reuse pinned buffers.",
        verify="Record again after warm-up: no memory calls within the step.",
        capture="Record with `profile_memory=True` for the sizes, and after warm-up.",
    ),
    IdleCause.COMMUNICATION: CauseWords(
        label="Waiting for communication",
        title="The GPU waits for communication",
        what="a collective or a barrier holds the host, or work that is queued behind one",
        hypothesis="Ranks wait for each other. One rank cannot tell a slow transfer from a late "
        "rank.",
        algorithmic="Take barriers out of the step and balance the work of the ranks.",
        kernel="Issue collectives asynchronously and wait only where their result is used.",
        verify="Record all ranks again and compare when they reach the collective.",
        capture="Record the same step on all ranks: only then the late one shows.",
    ),
    IdleCause.STALLED_QUEUE: CauseWords(
        label="Queued work that does not start",
        title="Work is queued, and the GPU seems to idle",
        what="work is queued already and does not start",
        hypothesis="The GPU ran something that the trace does not show: another process, or "
        "kernels that were not recorded; or the work waited for another device.",
        algorithmic="Settle first whether the GPU idles: nothing in the model needs to change for "
        "time that the profiler did not record.",
        kernel="Look at a hardware utilization monitor during the same step; no kernel needs to "
        "change before that.",
        verify="In a trace that holds all kernels the gap is filled, or it has another cause.",
        capture="Record again with nothing else on the GPU, several steps after warm-up.",
        is_idle=False,
    ),
    IdleCause.QUEUED: CauseWords(
        label="Between queued kernels",
        title="Gaps between kernels that are queued",
        what="the next work is queued and starts within some µs",
        hypothesis="Each kernel has a start and an end of its own, and kernels of different "
        "streams wait for each other.",
        algorithmic="Fuse small operators with a compiler, so that there are fewer gaps.",
        kernel="Replay from a GPU graph, which shortens the gaps, and keep dependent work on one "
        "stream.",
        verify="Record again: fewer kernels and a smaller sum of gaps.",
    ),
    IdleCause.UNLINKED_WORK: CauseWords(
        label="Work without a recorded launch",
        title="The GPU was busy with work that the timeline leaves out",
        what="GPU events run whose launch is not in the trace, so this is no true idle time",
        hypothesis="They were launched before the recording began, or by calls that the profiler "
        "did not record.",
        algorithmic="Nothing to fix here: the time is not idle.",
        kernel="Judge these kernels by name until a trace links them.",
        verify="In a trace with all launches the gap is gone.",
        capture="Begin the recording a few steps earlier, with CPU activity, so that the launches "
        "are in it.",
        is_idle=False,
    ),
    IdleCause.WINDOW_EDGE: CauseWords(
        label="Edge of the recording",
        title="The host was not recorded meanwhile",
        what="the host's record has not begun yet or is over",
        hypothesis="The profiler started or stopped within the step.",
        algorithmic="Nothing to fix before a trace shows it.",
        kernel="Nothing to fix before a trace shows it.",
        verify="In a trace of whole steps the gap has a cause.",
        capture=STEADY_STEPS,
        is_idle=False,
    ),
    IdleCause.UNKNOWN: CauseWords(
        label="Unknown",
        title="Idle time without a known cause",
        what="no recorded call explains it",
        hypothesis="Not known: the host ran code that the profiler does not see, or waited for "
        "something outside.",
        algorithmic="Find out first what the host does: see what to capture.",
        kernel="No kernel needs to change before that.",
        verify="In the new trace the gaps have a cause.",
        capture=WITH_STACKS,
    ),
}
"""The words for every cause; ``jarvis.perf_report.idle_gaps`` says when one applies."""

UNDER_RECORDED_GRAPH = (
    "Likely an under-recorded graph: the trace replays GPU graphs, and the GPU was probably "
    "running kernels of a replay that the profiler did not record."
)

RECORD_AGAIN = (
    "Record the step again before changing the model: the replay of a GPU graph was likely "
    "recorded only in part."
)
