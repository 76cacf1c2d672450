"""What host calls and GPU streams wait for: GPU work, events, and places in the launch queue."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from jarvis.core.arrays import Bools, Int64s
from jarvis.schemas.names import C
from jarvis.simulation.edges import US, Constants, sample_percentile
from jarvis.simulation.events import Calls, GpuEvents, Recording, runs

QUEUED_NS = 2 * US
"""An event that starts within the usual gap and this time was queued behind its predecessor."""

CLOCK_ERROR_NS = 50 * US
"""Difference of the clocks of host and GPU that a recording can have."""

MAX_COMPARED_STREAMS = 256
"""The streams with the most work that a call is compared with."""

COPY_TOLERANCE_NS = US // 2
"""A copy call that returns that long before the end of its copy at most waits for it."""

LONG_MEMORY_CALL_NS, MEMORY_CALL_RETURNS_NS = 20 * US, 30 * US
"""Allocation, release and loading of modules wait for work if they take that long and return that
soon after its end."""

QUERY_RETURNS_NS = 15 * US
"""A run of queries awaits the last work that ended that long before its end at most."""

LONG_LAUNCH_NS, LONG_LAUNCHES = 50 * US, 10
"""A launch that takes that long, and that many times the median, may wait for a free place."""

MIN_OUTSTANDING, MIN_STALLED, MAX_SPREAD = 256, 5, 0.05
"""A queue is full if that many launches are outstanding at the end of that many long launches, with
at most that interquartile range relative to the median."""


@dataclass(frozen=True)
class Pairs:
    """Pairs of a source and a target, as positions of GPU events or calls."""

    src: Int64s
    dst: Int64s


@dataclass(frozen=True)
class Streams:
    """The work of each stream in the order of its launches.

    ``launched`` is the time of the launch. Work without one counts as launched when it starts, or
    with the work that it is queued behind, but not after the next work of its stream.
    ``first_work`` is the first event of each call by start, or -1.
    """

    gpu: GpuEvents
    launched: Int64s
    slices: dict[int, slice]
    first_work: Int64s

    def last_before(self, stream: int, times: Int64s) -> Int64s:
        """Return the last event of a stream launched before each of ``times``, or -1."""
        part = self.slices[stream]
        index = np.searchsorted(self.launched[part], times, side="left") - 1
        return np.where(index >= 0, index + part.start, -1)

    def ended_by(self, stream: int, events: Int64s, times: Int64s) -> Int64s:
        """Return the events; instead of one that ends just after its time, by the error of the
        clocks, the last one of the stream that ends before."""
        part = self.slices[stream]
        ended = np.searchsorted(self.gpu.end[part], times, side="right") - 1 + part.start
        is_skewed = (events >= 0) & (self.gpu.end[events] > times)
        is_skewed &= (self.gpu.end[events] - times <= CLOCK_ERROR_NS) & (ended >= part.start)
        return np.where(is_skewed, np.minimum(ended, events), events)

    def first_after(self, stream: int, times: Int64s) -> Int64s:
        """Return the first event of a stream launched at or after each of ``times``, or -1."""
        part = self.slices[stream]
        index = np.searchsorted(self.launched[part], times, side="left") + part.start
        return np.where(index < part.stop, index, -1)

    def busiest(self) -> Iterator[int]:
        """Return the streams with the most events."""
        ranked = sorted(self.slices, key=lambda s: (self.slices[s].start - self.slices[s].stop, s))
        return iter(sorted(ranked[:MAX_COMPARED_STREAMS]))


def streams(calls: Calls, gpu: GpuEvents, constants: Constants) -> Streams:
    """Return the streams of a recording."""
    launched = np.where(gpu.launch >= 0, calls.start[gpu.launch] if len(calls) else 0, gpu.start)
    queued = queued_behind(gpu, constants) & (gpu.launch < 0)
    launched = _not_during_syncs(calls, gpu, launched)
    known = np.maximum.accumulate(np.where(queued, 0, np.arange(len(gpu))))
    launched = launched[known]
    slices = runs(gpu.stream)
    for part in slices.values():
        launched[part] = np.minimum.accumulate(launched[part][::-1])[::-1]
    return Streams(gpu, launched, slices, _first_work(calls, gpu))


def _not_during_syncs(calls: Calls, gpu: GpuEvents, launched: Int64s) -> Int64s:
    """Return the launch times, those of work without a launch not in a call that synchronizes."""
    callers = np.flatnonzero(~calls.is_mark)
    if not callers.size:
        return launched
    call = callers[np.maximum(np.searchsorted(calls.start[callers], launched, side="right") - 1, 0)]
    is_inside = (calls.start[call] <= launched) & (launched <= calls.end[call])
    is_inside &= (calls.syncs_device | calls.syncs_stream)[call] & (gpu.launch < 0)
    return np.where(is_inside, calls.start[call] - 1, launched)


def queued_behind(gpu: GpuEvents, constants: Constants) -> Bools:
    """Return which events start as soon as the one before them on their stream has ended."""
    before = gpu.predecessor
    distance = gpu.start - gpu.end[before]
    queued: Bools = (before >= 0) & (distance >= 0) & (distance <= constants.gap + QUEUED_NS)
    return queued


@dataclass(frozen=True)
class Waits:
    """Host calls that wait: ``awaited`` pairs of GPU event and call; ``is_waiting`` per call."""

    awaited: Pairs
    is_waiting: Bools

    def constants(self, known: Constants, calls: Calls, gpu: GpuEvents) -> Constants:
        """Return the constants with those of waiting calls."""
        src, dst = self.awaited.src, self.awaited.dst
        ends = np.full(len(calls), -1, np.int64)
        np.maximum.at(ends, dst, gpu.end[src])
        inside = (ends > calls.start) & (ends <= calls.end)
        before = self.is_waiting & (ends >= 0) & (ends <= calls.start)
        return replace(
            known,
            sync=sample_percentile((calls.end - ends)[inside], 10, known.sync),
            call=sample_percentile((calls.end - calls.start)[before], 10, known.call),
        )


def host_waits(recording: Recording, work: Streams) -> Waits:
    """Return the calls that wait for GPU work, each with the work that it awaits."""
    calls, gpu = recording.calls, recording.gpu
    if not len(calls) or not len(gpu):
        none = np.empty(0, np.int64)
        return Waits(Pairs(none, none), np.zeros(len(calls), np.bool_))
    memory = _memory_calls(calls, work)
    copies = _blocking_copies(calls, gpu)
    after_work = _copies_after_work(calls, work, copies)
    pairs = [
        copies,
        after_work,
        memory,
        _query_runs(calls, work),
        *_device_syncs(calls, work),
        *_stream_syncs(recording, work),
    ]
    is_waiting = calls.syncs_device | calls.syncs_stream | calls.queries
    for waiting in (copies, after_work, memory):
        is_waiting[waiting.dst] = True
    awaited = Pairs(
        np.concatenate([p.src for p in pairs]).astype(np.int64),
        np.concatenate([p.dst for p in pairs]).astype(np.int64),
    )
    return Waits(awaited, is_waiting)


def _blocking_copies(calls: Calls, gpu: GpuEvents) -> Pairs:
    copies = np.flatnonzero(gpu.is_copy & (gpu.launch >= 0))
    call = gpu.launch[copies]
    waits = calls.copies[call] & (calls.end[call] >= gpu.end[copies] - COPY_TOLERANCE_NS)
    return Pairs(copies[waits], call[waits])


def _copies_after_work(calls: Calls, work: Streams, copies: Pairs) -> Pairs:
    """Return the last work before each blocking copy call that is not known to await its own copy.

    ROCm often records no copy of ``hipMemcpyWithStream``, or one that ends just after the call, by
    the error of the clocks. The stream is that of the launch before it on its thread. The work
    counts also if it ended before the call, which would await it without the waits before.
    """
    gpu, first = work.gpu, work.first_work
    is_late = (first >= 0) & (gpu.end[first] - calls.end > CLOCK_ERROR_NS)
    is_wanted = calls.copies_blocking & ~is_late
    is_wanted[copies.dst] = False
    rows = np.flatnonzero(is_wanted)
    launch = _neighbor(calls, first >= 0, -1)[rows]
    rows, launch = rows[launch >= 0], launch[launch >= 0]
    stream = gpu.stream[first[launch]]
    last = np.full(rows.size, -1, np.int64)
    for code in np.unique(stream).tolist():
        own = stream == code
        before = work.last_before(code, calls.start[rows[own]])
        last[own] = work.ended_by(code, before, calls.end[rows[own]])
    is_known = last >= 0
    return Pairs(last[is_known], rows[is_known])


def _device_syncs(calls: Calls, work: Streams) -> Iterator[Pairs]:
    """Yield the last work of each stream of the device before each call that waits for a device."""
    waiting = np.flatnonzero(calls.syncs_device)
    launch = _neighbor(calls, work.first_work >= 0, -1)[waiting]
    device = np.where(launch >= 0, work.gpu.device[work.first_work[launch]], -1)
    for stream in work.busiest():
        last = work.last_before(stream, calls.start[waiting])
        last = work.ended_by(stream, last, calls.end[waiting])
        own = work.gpu.device[work.slices[stream].start]
        is_awaited = (last >= 0) & ((device == own) | (device < 0))
        yield Pairs(last[is_awaited], waiting[is_awaited])


def _stream_syncs(recording: Recording, work: Streams) -> Iterator[Pairs]:
    """Yield the work that calls wait for which wait for a stream or an event.

    The stream is the recorded one; without a record it is each whose last work ends in the call,
    else that of the launch before it on its thread: other waits may have let its work end before.
    """
    calls, gpu = recording.calls, recording.gpu
    waiting = np.flatnonzero(calls.syncs_stream)
    recorded = dict(recording.syncs.select("correlation", C.stream).drop_nulls().iter_rows())
    stream_of = np.array([recorded.get(int(c), -1) for c in calls.correlation[waiting]], np.int64)
    launch = _neighbor(calls, work.first_work >= 0, -1)[waiting]
    launched_on = np.where(launch >= 0, gpu.stream[work.first_work[launch]], -1)
    is_known = stream_of >= 0
    for stream in work.busiest():
        last = work.last_before(stream, calls.start[waiting])
        end = gpu.end[last]
        ends_inside = (last >= 0) & (end > calls.start[waiting]) & (end <= calls.end[waiting])
        is_known |= ends_inside
        is_stream = gpu.stream_id[work.slices[stream].start] == stream_of
        is_awaited = (last >= 0) & np.where(stream_of >= 0, is_stream, ends_inside)
        yield Pairs(last[is_awaited], waiting[is_awaited])
    for stream in work.busiest():
        rows = waiting[~is_known & (launched_on == stream)]
        last = work.last_before(stream, calls.start[rows])
        ended = last >= 0
        ended &= gpu.end[last] <= calls.start[rows]
        yield Pairs(last[ended], rows[ended])


def _memory_calls(calls: Calls, work: Streams) -> Pairs:
    is_long = calls.manages_memory & (calls.end - calls.start > LONG_MEMORY_CALL_NS)
    return _latest_end(calls, work, np.flatnonzero(is_long), MEMORY_CALL_RETURNS_NS)


def _query_runs(calls: Calls, work: Streams) -> Pairs:
    return _latest_end(calls, work, np.flatnonzero(calls.queries), QUERY_RETURNS_NS)


def _latest_end(calls: Calls, work: Streams, rows: Int64s, within_ns: int) -> Pairs:
    """Return the last work that ends inside each call, shortly before its end."""
    order = np.argsort(work.gpu.end, kind="stable")
    index = np.searchsorted(work.gpu.end[order], calls.end[rows], side="right") - 1
    event = order[np.maximum(index, 0)]
    end = work.gpu.end[event]
    is_awaited = (index >= 0) & (end > calls.start[rows]) & (calls.end[rows] - end <= within_ns)
    is_awaited &= work.launched[event] < calls.start[rows]
    return Pairs(event[is_awaited], rows[is_awaited])


def event_waits(recording: Recording, work: Streams) -> Pairs:
    """Return pairs of GPU events: the second waits for an event recorded after the first."""
    calls, gpu = recording.calls, recording.gpu
    waiting = np.flatnonzero(calls.waits_event)
    if not waiting.size or not len(gpu):
        return Pairs(waiting[:0], waiting[:0])
    first = work.first_work
    following = _neighbor(calls, first >= 0, 1)[waiting]
    waiting, following = waiting[following >= 0], following[following >= 0]
    target = first[following]
    record = _neighbor(calls, calls.records, -1)[waiting]
    launch = _neighbor(calls, first >= 0, -1)
    before_record = np.where(record >= 0, launch[record], -1)
    stream = np.where(before_record >= 0, gpu.stream[first[before_record]], -1)
    time = np.where(record >= 0, calls.start[record], calls.start[waiting])
    source = np.full(waiting.size, -1, np.int64)
    for code in np.unique(stream[stream >= 0]).tolist():
        rows = (stream == code) & (code != gpu.stream[target])
        source[rows] = work.last_before(code, time[rows])
    unknown = np.flatnonzero(source < 0)
    source[unknown] = _latest_elsewhere(work, calls.start[waiting[unknown]], target[unknown])
    _use_records(recording, work, waiting, source, target)
    possible = (source >= 0) & (gpu.end[source] <= gpu.start[target])
    return Pairs(source[possible], target[possible])


def _latest_elsewhere(work: Streams, times: Int64s, target: Int64s) -> Int64s:
    """Return the work on another stream of the device that was launched last before ``times`` and
    ended before the target started, or -1."""
    gpu = work.gpu
    found = np.full(target.size, -1, np.int64)
    latest = np.full(target.size, -1, np.int64)
    for stream in work.busiest():
        last = work.last_before(stream, times)
        possible = (last >= 0) & (gpu.stream[target] != stream)
        possible &= gpu.device[last] == gpu.device[target]
        possible &= gpu.end[last] <= gpu.start[target]
        possible &= work.launched[last] > latest
        found[possible] = last[possible]
        latest[possible] = work.launched[last[possible]]
    return found


def _use_records(
    recording: Recording, work: Streams, waiting: Int64s, source: Int64s, target: Int64s
) -> None:
    """Replace sources and targets by those of recorded waits: streams and record call."""
    calls, gpu = recording.calls, recording.gpu
    known = recording.syncs.drop_nulls(["correlation", "wait_on_stream", "record_correlation"])
    if known.is_empty():
        return
    of_wait = {int(c): row for row, c in enumerate(calls.correlation[waiting])}
    of_call = {int(c): row for row, c in enumerate(calls.correlation)}
    codes = {
        (int(gpu.device[part.start]), int(gpu.stream_id[part.start])): stream
        for stream, part in work.slices.items()
    }
    columns = ("correlation", C.stream, "wait_on_stream", "record_correlation")
    for wait, on, awaited, record in known.select(columns).iter_rows():
        row, call = of_wait.get(wait), of_call.get(record)
        if row is None or call is None:
            continue
        device = int(gpu.device[target[row]])
        src, dst = codes.get((device, awaited)), codes.get((device, on))
        if src is not None and dst is not None:
            source[row] = work.last_before(src, calls.start[call : call + 1])[0]
            position = waiting[row]
            target[row] = work.first_after(dst, calls.start[position : position + 1])[0]


def queue_waits(calls: Calls, work: Streams) -> Pairs:
    """Return pairs of a GPU event, whose start frees a place, and the launch call that gets it."""
    found = [_device_queue(calls, work, device) for device in np.unique(work.gpu.device)]
    empty = np.empty(0, np.int64)
    return Pairs(
        np.concatenate([empty, *(p.src for p in found)]),
        np.concatenate([empty, *(p.dst for p in found)]),
    )


def _device_queue(calls: Calls, work: Streams, device: int) -> Pairs:
    gpu, first = work.gpu, work.first_work
    launches = np.flatnonzero((first >= 0) & (gpu.device[first] == device))
    event = first[launches]
    duration = calls.end[launches] - calls.start[launches]
    none = Pairs(launches[:0], launches[:0])
    if launches.size <= MIN_OUTSTANDING:
        return none
    begun = np.searchsorted(np.sort(gpu.start[event]), calls.end[launches], side="right")
    outstanding = np.arange(1, launches.size + 1) - begun
    threshold = max(LONG_LAUNCH_NS, LONG_LAUNCHES * float(np.median(duration)))
    stalled = outstanding[(duration > threshold) & (outstanding >= MIN_OUTSTANDING)]
    if stalled.size < MIN_STALLED:
        return none
    lower, median, upper = np.percentile(stalled, [25, 50, 75], method="lower")
    if upper - lower > MAX_SPREAD * median:
        return none
    depth = int(median) + 1
    return Pairs(event[:-depth], launches[depth:])


def nearest_ends(work: Streams, rows: Int64s, within_ns: int) -> Int64s:
    """Return for each row the work on another stream of its device that ended last before its
    start, was not launched later and ended within ``within_ns`` of the start; -1 if none is.

    Of each row, only the last few ends before its start are looked at.
    """
    gpu, launched = work.gpu, work.launched
    order = np.argsort(gpu.end, kind="stable")
    ends = gpu.end[order]
    index = np.searchsorted(ends, gpu.start[rows], side="right") - 1
    found = np.full(rows.size, -1, np.int64)
    for back in range(_ENDS_LOOKED_AT):
        place = np.maximum(index - back, 0)
        event = order[place]
        fits = (index - back >= 0) & (found < 0)
        fits &= gpu.start[rows] - ends[place] <= within_ns
        fits &= (gpu.stream[event] != gpu.stream[rows]) & (gpu.device[event] == gpu.device[rows])
        is_known = (gpu.launch[event] >= 0) & (gpu.launch[rows] >= 0)
        fits &= ~is_known | (launched[event] <= launched[rows])
        found[fits] = event[fits]
    return found


_ENDS_LOOKED_AT = 8


def _first_work(calls: Calls, gpu: GpuEvents) -> Int64s:
    """Return the first GPU event of each call by start, or -1."""
    first = np.full(len(calls), -1, np.int64)
    linked = np.flatnonzero(gpu.launch >= 0)
    latest_first = linked[np.argsort(-gpu.start[linked], kind="stable")]
    first[gpu.launch[latest_first]] = latest_first
    return first


def _neighbor(calls: Calls, is_wanted: Bools, direction: int) -> Int64s:
    """Return the wanted call next to each call on its thread, or -1; ``direction`` 1 is after."""
    order = np.argsort(calls.thread, kind="stable")[::-direction]
    thread = calls.thread[order]
    index = np.arange(order.size)
    # Walked against the direction, the last wanted call passed is the nearest one.
    passed = np.maximum.accumulate(np.where(is_wanted[order], index, -1))
    before = np.concatenate([[-1], passed[:-1]]).astype(np.int64)
    is_same = (before >= 0) & (thread[before] == thread)
    found = np.full(order.size, -1, np.int64)
    found[order] = np.where(is_same, order[before], -1)
    return found
