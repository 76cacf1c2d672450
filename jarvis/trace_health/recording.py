"""Facts about the recording: events, arguments, stacks, GPU, steps, ranks, repairs."""

from collections.abc import Iterator

import polars as pl

from jarvis.perf_models.step_annotation import looks_like_step, parse
from jarvis.perf_report.timeline.steps import StepSource, step_marks
from jarvis.perf_report.work import COMMUNICATION, KIND
from jarvis.schemas.names import C
from jarvis.text.format import counted, listed, percent, quoted
from jarvis.trace import Trace, TraceInfo
from jarvis.trace.metadata import STEP_PREFIX
from jarvis.trace.repairs import Repair, RepairKind
from jarvis.trace.tables import (
    CPU_OP,
    GPU_CATEGORIES,
    PYTHON_FUNCTION,
    RUNTIME_CATEGORIES,
)
from jarvis.trace_health.facts import Fact, Severity, when

DROPPED_PCT = 1.0
"""Above this share of host events outside the call tree, a warning is shown."""

MAX_STEP_DIGITS = 19
"""Maximum digits of a step number, exclusive."""


def recording_facts(trace: Trace) -> Iterator[Fact]:
    """Yield the facts about recorded and missing data; operators and shapes may be captured."""
    recording = trace.recording
    yield _gpu_events(trace.gpu_events.height)
    yield _operators(trace.cpu_ops.height, trace.runtime.height)
    if not trace.info.gpu_only:
        known = trace.cpu_ops.height - trace.cpu_ops[C.input_dims].null_count()
        yield _shapes(100 * known / trace.cpu_ops.height)
        yield _stacks(recording)
        yield _overlaps(recording)
    yield _device(trace.info)
    yield _steps(recording)
    yield from _unread_steps(recording)
    yield _rank(recording)
    yield _processes(recording)
    yield from _repairs(trace.info.repairs)


def metadata_facts(info: TraceInfo) -> Iterator[Fact]:
    """Yield the facts about recorded and missing data that the metadata of a trace shows."""
    counts = info.event_counts
    yield from _repairs(info.repairs)
    yield _gpu_events(sum(counts.get(category, 0) for category in GPU_CATEGORIES))
    calls = sum(counts.get(category, 0) for category in RUNTIME_CATEGORIES)
    yield _operators(counts.get(CPU_OP, 0), calls)
    if not info.gpu_only and not info.has_shapes:
        yield _shapes(0.0)


def _gpu_events(count: int) -> Fact:
    return Fact(
        "gpu_events",
        "GPU events",
        f"{counted(count, 'GPU event')}." if count else "The trace contains no GPU work.",
        float(count),
        "events",
        when(not count, Severity.WARNING),
        "" if count else "There is no GPU time to report.",
        "" if count else "Record with GPU activity, on a GPU that the profiler supports.",
    )


def _operators(count: int, calls: int) -> Fact:
    found = f"{counted(count, 'operator call')}."
    if not count:
        found = (
            f"The trace contains only GPU events and {counted(calls, 'runtime call')}."
            if calls
            else "The trace contains only GPU events."
        )
    return Fact(
        "operators",
        "Operators",
        found,
        float(count),
        "calls",
        when(not count, Severity.WARNING),
        ""
        if count
        else "Kernels cannot be attributed to operators, so they have no shapes and no rooflines.",
        "" if count else "Record with CPU activity.",
    )


def _shapes(share_pct: float) -> Fact:
    known = share_pct > 0
    return Fact(
        "shapes",
        "Operators with input shapes",
        f"{percent(share_pct)} of the operator calls have input shapes."
        if known
        else "The trace contains no input shapes.",
        share_pct,
        "%",
        when(not known, Severity.WARNING),
        "" if known else "No perf model can be applied: no FLOPs, no efficiency.",
        "" if known else "Record with `record_shapes=True`.",
    )


def _stacks(trace: Trace) -> Fact:
    count = trace.info.event_counts.get(PYTHON_FUNCTION, 0)
    return Fact(
        "stacks",
        "Python stacks",
        f"{counted(count, 'Python call')}." if count else "The trace contains no Python stacks.",
        float(count),
        "calls",
        when(not count),
        "" if count else "Modules and entry points are not available.",
        "" if count else "Record with `with_stack=True`.",
    )


def _overlaps(trace: Trace) -> Fact:
    tree = trace.call_tree
    dropped = int(tree[C.is_dropped].sum())
    key, title = "overlapping_events", "Host events that overlap"
    if not dropped:
        return Fact(key, title, "Every host event is in the call tree.", 0.0, "events")
    share_pct = 100 * dropped / tree.height
    return Fact(
        key,
        title,
        f"{counted(dropped, 'host event')} ({percent(share_pct)}) outside the call tree, because "
        "of overlaps with neighbors.",
        float(dropped),
        "events",
        Severity.WARNING if share_pct > DROPPED_PCT else Severity.NOTE,
        "GPU work that they launch is not attributed to operators above them.",
        "The profiler causes such overlaps; another version may not.",
    )


def _device(info: TraceInfo) -> Fact:
    names = [name for name in info.device_names if name]
    if names:
        return Fact("device", "GPU", f"{listed([quoted(name) for name in names])}.")
    has_properties = info.compute_units is not None and info.memory_bytes is not None
    return Fact(
        "device",
        "GPU",
        "The trace does not name its GPU.",
        severity=Severity.NOTE,
        affects="Its peaks are chosen by its compute units and memory, if one known GPU has them."
        if has_properties
        else "No peaks can be chosen from the trace.",
        remedy="The analysis uses the GPU that you name.",
    )


def _steps(trace: Trace) -> Fact:
    marks = step_marks(trace)
    source = marks[C.source].first()
    count = 0 if source == StepSource.RECORDING else marks.height
    numbers = sorted(
        int(number)
        for name in marks[C.name].drop_nulls()
        if (number := name.removeprefix(STEP_PREFIX)) != name
        and number.isdecimal()
        and len(number) < MAX_STEP_DIGITS
    )
    span = f" ({numbers[0]} to {numbers[-1]})" if len(numbers) > 1 else ""
    what = "inference step" if source == StepSource.ENGINE else "profiler step"
    return Fact(
        "steps",
        "Steps",
        f"{counted(count, what)}{span}." if count else "The trace marks no steps.",
        float(count),
        "steps",
        when(not count),
        "" if count else "Times are of the whole recording, not of one step.",
        "" if count else "Call the profiler's `step()` after each step.",
    )


def _unread_steps(trace: Trace) -> Iterator[Fact]:
    names = trace.annotations[C.name].drop_nulls().unique().sort()
    unread = [name for name in names if looks_like_step(name) and parse(name) is None]
    if unread:
        yield Fact(
            "unread_steps",
            "Steps of unknown form",
            f"Not read, but named like inference steps: {counted(len(unread), 'annotation')}, such "
            f"as {quoted(unread[0])}.",
            float(len(unread)),
            "annotations",
            Severity.NOTE,
            "These annotations mark no steps, and perf models of attention cannot read them.",
            "Use an annotation form that Jarvis reads.",
        )


def _rank(trace: Trace) -> Fact:
    info = trace.info
    key, title = "rank", "Rank"
    if info.rank is not None:
        of = f" of {info.world_size:,}" if info.world_size is not None else ""
        return Fact(key, title, f"Rank {info.rank:,}{of}.", float(info.rank))
    if trace.gpu_events.filter(KIND == COMMUNICATION).is_empty():
        return Fact(key, title, "Not distributed.")
    return Fact(
        key,
        title,
        "The GPU communicates, but the trace does not contain its rank.",
        severity=Severity.NOTE,
        affects="Ranks cannot be distinguished.",
        remedy="Start the profiler after the process group.",
    )


def _processes(trace: Trace) -> Fact:
    launching = trace.runtime.join(
        trace.launches.select(pl.col(C.runtime_uid).alias(C.uid)), on=C.uid, how="semi"
    )[C.pid].n_unique()
    gpus = trace.gpu_events[C.device].drop_nulls().n_unique()
    key, title = "processes", "Processes that launch GPU work"
    if launching > 1:
        return Fact(
            key,
            title,
            f"The file merges the traces of {counted(launching, 'process')}.",
            float(launching),
            "processes",
            Severity.WARNING,
            "The timeline combines their GPUs, and ids that several ranks use can link work to the "
            "wrong rank.",
            "Analyze the trace of each rank separately.",
        )
    if gpus > 1:
        return Fact(
            key,
            title,
            f"The trace contains the work of {gpus} GPUs.",
            float(launching),
            "processes",
            Severity.NOTE,
            "The timeline combines them: it is idle only while all of them are.",
            "Record one process per GPU.",
        )
    return Fact(key, title, "At most one process and one GPU.", float(launching), "processes")


_FAULTS = {
    RepairKind.TRUNCATED: "The file ends in the middle of its events",
    RepairKind.DAMAGED_GZIP: "The compressed data is damaged",
    RepairKind.TEXT_IN_NAME: "Names contain unescaped quotes",
    RepairKind.CONTROL_CHARACTER: "Names contain control characters",
    RepairKind.INVALID_UTF8: "Names contain invalid UTF-8",
    RepairKind.TRAILING_COMMA: "There are trailing commas",
    RepairKind.MISSING_COMMA: "Commas are missing between entries",
    RepairKind.NOT_A_NUMBER: "Numbers are NaN or infinite",
    RepairKind.LOST_TEXT: "Invalid JSON was skipped",
    RepairKind.NOT_AN_EVENT: "Entries that are not events were skipped",
    RepairKind.NOT_A_SLICE: 'Calls and GPU work without the phase "X" were skipped',
    RepairKind.ODD_ARGUMENT: "Invalid operator arguments were dropped",
}
_LOSSES = (RepairKind.TRUNCATED, RepairKind.DAMAGED_GZIP, RepairKind.LOST_TEXT)


def _repairs(repairs: tuple[Repair, ...]) -> Iterator[Fact]:
    if not repairs:
        yield Fact("repairs", "Repairs while reading", "The file needed no repairs.", 0.0)
    for repair in repairs:
        has_lost = repair.lost_events > 0 or repair.kind in _LOSSES
        where = f", first at {quoted(repair.example)}" if repair.example.strip() else ""
        lost = f"; {counted(repair.lost_events, 'event')} lost" if repair.lost_events else ""
        yield Fact(
            f"repair_{repair.kind}",
            "Repairs while reading",
            f"{_FAULTS[repair.kind]}: {counted(repair.count, 'place')}{where}{lost}.",
            float(repair.count),
            "places",
            Severity.WARNING if has_lost else Severity.NOTE,
            "Events are missing, so times and counts cover only the part that was read."
            if has_lost
            else "Nothing was lost.",
            "Export the trace again, and wait for the export to end before copying the file.",
        )
