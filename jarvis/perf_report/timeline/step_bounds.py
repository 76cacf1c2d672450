"""Bounds on the step time that shorter kernels, less idle time and hidden communication can save.

The host needs its own time whatever the kernels take. So shorter kernels can save at most the time
in which the host waits for the GPU; where the GPU sets the pace of the steps, what they take beyond
the host's own time; and the time that the GPU works after the last host event of a recording.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from jarvis.core.arrays import Int64s
from jarvis.core.expressions import contains
from jarvis.perf_report.intervals import (
    END,
    added_parts,
    covered_during,
    covered_ns,
    covered_until,
    greatest_ns,
    least_ns,
)
from jarvis.perf_report.timeline.step_account import StepAccount
from jarvis.perf_report.timeline.steps import TimedBy
from jarvis.perf_report.work import COMMUNICATION, GpuWork
from jarvis.schemas.names import C
from jarvis.trace import Trace
from jarvis.trace.links import GRAPH_LAUNCHES
from jarvis.trace.tables import THREAD_KEY

Span = tuple[int, int]
"""Start and end in ns."""

MIN_WAIT_NS = 20_000
"""Calls that need not wait, such as allocations, can wait for the GPU if they take longer."""

MAX_SKEW_NS = 5_000
"""GPU work that ends this long after a host call can still have been awaited by it: the clocks of
host and GPU differ by microseconds."""

FULL_QUEUE = 256
"""Minimum number of launches on their way to the GPU that can block the next one; the queues of
recorded traces hold a thousand and more."""

MIN_QUERIES = 3
"""So many queries of the GPU's state in a row on a thread are a wait."""

_WAITS = r"(?i)synchronize|memcpy"
_COPIES = r"(?i)memcpy"
_QUERIES = r"(?i)(Event|Stream)Query"
_LAUNCHES = r"(?i)launch"
_END_OF_STEP = (pl.col(C.start_ns) + pl.col(C.dur_ns)).alias(C.end_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBounds:
    """The time of the recorded steps and the most that can be saved of it, in ms.

    ``step_ms`` is the sum of their times (table ``steps``), as in their account; None if the input
    has no events: nothing bounds the savings then. The steps are from ``start_ns`` to ``end_ns``.
    ``kernels_ms`` bounds the savings of shorter kernels; ``idle_ms``, ``comm_ms`` and ``copies_ms``
    are idle time, exposed communication and exposed copies, as in the account. ``is_marked`` is
    False if the recording is the step; ``by_gpu`` is True if the GPU sets the pace of the steps, so
    that ``kernels_ms`` bounds what less GPU work of any kind saves. In the times of ``hidden``,
    shorter kernels save nothing (``hidden_work``).
    """

    steps: int = 0
    is_marked: bool = True
    by_gpu: bool = False
    start_ns: int = 0
    end_ns: int = 0
    step_ms: float | None = None
    kernels_ms: float = 0.0
    idle_ms: float = 0.0
    comm_ms: float = 0.0
    copies_ms: float = 0.0
    hidden: tuple[Span, ...] = ()


def step_bounds(trace: Trace, work: GpuWork, steps: pl.DataFrame) -> StepBounds:
    """Return the bounds of a trace.

    Args:
        trace: The trace.
        work: All its GPU work, with that of unrecorded launches.
        steps: Its steps (schema: ``steps``).
    """
    account = StepAccount.of(steps)
    if account is None:
        return StepBounds()
    timed = steps.drop_nulls(C.dur_ns)
    busy_ns = account.total_ns - account.idle_ns
    waits = host_waits(trace, work)
    kernels_ns = _for_the_gpu_ns(trace, work, timed, account, waits)
    hidden = hidden_work(work.window, waits)
    if trace.launches.is_empty():  # what the host does is not known
        kernels_ns, hidden = busy_ns, ()
    return StepBounds(
        steps=account.step_count,
        is_marked=account.is_marked,
        by_gpu=account.timed_by is TimedBy.GPU,
        start_ns=least_ns(timed[C.start_ns]) or 0,
        end_ns=greatest_ns(timed.select(_END_OF_STEP).to_series()) or 0,
        step_ms=account.total_ns / 1e6,
        kernels_ms=min(kernels_ns, busy_ns) / 1e6,
        idle_ms=account.idle_ns / 1e6,
        comm_ms=account.parts_ns[C.exposed_comm_ns] / 1e6,
        copies_ms=account.parts_ns[C.exposed_copy_ns] / 1e6,
        hidden=hidden,
    )


def _for_the_gpu_ns(
    trace: Trace, work: GpuWork, steps: pl.DataFrame, account: StepAccount, waits: pl.DataFrame
) -> int:
    """Return how much longer the steps take than the host needs for itself."""
    starts, ends = C.start_ns, _END_OF_STEP
    if account.timed_by is TimedBy.GPU:
        starts, ends = C.host_start_ns, pl.col(C.host_start_ns) + pl.col(C.host_dur_ns)
    spans = steps.select(first=starts, last=ends)
    first, last = (side.to_numpy() for side in spans)
    waiting_ns = int(covered_during(waits, first, last).sum()) if waits.height else 0
    if account.timed_by is TimedBy.GPU:
        host_ns = int(spans.select(pl.col("last") - pl.col("first")).sum().item())
        return max(account.total_ns - (host_ns - waiting_ns), 0)
    return waiting_ns if account.is_marked else waiting_ns + _tail_ns(trace, work.window)


def _tail_ns(trace: Trace, window: pl.DataFrame) -> int:
    """Return for how long the GPU works after the last host event of the recording."""
    host = pl.concat(events.select(END) for events in (trace.runtime, trace.cpu_ops))
    last_ns = greatest_ns(host.to_series()) or 0
    return covered_ns(window) - int(covered_until(window, np.array([last_ns]))[0])


def host_waits(trace: Trace, work: GpuWork) -> pl.DataFrame:
    """Return ``ts_ns, dur_ns`` of the time in which host calls can wait for the GPU.

    A call waits from its start to the end of the last GPU work in it that it did not launch
    itself: synchronizing calls, blocking copies, other calls of at least MIN_WAIT_NS, launches into
    a full queue, and queries in a row.
    """
    calls = trace.runtime.drop_nulls([C.ts_ns, C.dur_ns]).select(
        C.uid, C.name, C.ts_ns, END.alias(C.end_ns), *THREAD_KEY
    )
    events = work.events.select(C.launch_uid, C.ts_ns, END.alias(C.end_ns))
    if calls.is_empty() or events.is_empty():
        return pl.DataFrame(schema={C.ts_ns: pl.Int64, C.dur_ns: pl.Int64})
    is_long = pl.col(C.end_ns) - pl.col(C.ts_ns) >= MIN_WAIT_NS
    own = events.drop_nulls(C.launch_uid).group_by(C.launch_uid).agg(pl.col(C.end_ns).max())
    calls = calls.join(
        own.select(pl.col(C.launch_uid).alias(C.uid), own_ns=C.end_ns), on=C.uid, how="left"
    )
    names = calls[C.name]
    is_done = (pl.col("own_ns") <= pl.col(C.end_ns) + MAX_SKEW_NS).fill_null(True)
    candidates = calls.filter(
        pl.when(contains(names, _LAUNCHES) & ~names.is_in(GRAPH_LAUNCHES))
        .then(pl.Series(_outstanding(calls, events) >= FULL_QUEUE))
        .when(contains(names, _COPIES))
        .then(is_done | is_long)
        .otherwise((contains(names, _WAITS) | is_long) & ~contains(names, _QUERIES))
    )
    found = pl.concat([candidates.select(C.uid, C.ts_ns, C.end_ns), _query_runs(calls, own)])
    return _until_awaited(found, events)


def _outstanding(calls: pl.DataFrame, events: pl.DataFrame) -> Int64s:
    """Return how many launched GPU events have not ended at the end of each call; those of one
    launch count once."""
    launched = events.drop_nulls(C.launch_uid).group_by(C.launch_uid).agg(pl.col(C.end_ns).max())
    starts = calls.join(launched, left_on=C.uid, right_on=C.launch_uid, how="semi")[C.ts_ns]
    at = calls[C.end_ns].to_numpy()
    begun: Int64s = np.searchsorted(np.sort(starts.to_numpy()), at, side="right")
    ended: Int64s = np.searchsorted(np.sort(launched[C.end_ns].to_numpy()), at, side="right")
    return begun - ended


def _query_runs(calls: pl.DataFrame, own: pl.DataFrame) -> pl.DataFrame:
    """Return ``uid, ts_ns, end_ns`` of queries in a row on threads that launch GPU work."""
    launching = calls.drop_nulls("own_ns").select(THREAD_KEY).unique()
    of_threads = calls.join(launching, on=THREAD_KEY, how="semi", nulls_equal=True)
    is_query = contains(of_threads[C.name], _QUERIES)
    if not is_query.any():
        return of_threads.clear().select(C.uid, C.ts_ns, C.end_ns)
    return (
        of_threads.with_columns(is_query=is_query)
        .sort(*THREAD_KEY, C.ts_ns, maintain_order=True)  # faster: they are nearly in order
        .with_columns(run=pl.struct(*THREAD_KEY, "is_query").rle_id())
        .filter("is_query")
        .group_by("run")
        .agg(pl.col(C.uid).first(), pl.col(C.ts_ns).min(), pl.col(C.end_ns).max(), n=pl.len())
        .filter(pl.col("n") >= MIN_QUERIES)
        .select(C.uid, C.ts_ns, C.end_ns)
    )


def _until_awaited(calls: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Return ``ts_ns, dur_ns`` of each call to the last end of other calls' GPU work in it."""
    ordered = events.sort(C.end_ns)
    ends, owners = ordered[C.end_ns].to_numpy(), ordered[C.launch_uid].fill_null(-1)
    # The first of the events before that one call launched, for each event.
    firsts = np.flatnonzero(np.diff(owners.to_numpy(), prepend=-2))
    run_of = owners.rle_id().to_numpy()
    starts, stops = calls[C.ts_ns].to_numpy(), calls[C.end_ns].to_numpy()
    last = np.searchsorted(ends, stops + MAX_SKEW_NS, side="right") - 1
    is_own = (last >= 0) & (owners.to_numpy()[last] == calls[C.uid].to_numpy())
    last = np.where(is_own, firsts[run_of[last]] - 1, last)
    until = np.minimum(np.where(last >= 0, ends[last], starts), stops)
    waits = pl.DataFrame({C.ts_ns: starts, C.dur_ns: np.maximum(until - starts, 0)})
    return waits.filter(pl.col(C.dur_ns) > 0)


MIN_ALONE_NS = 10_000
"""A collective that ends so soon after other work need not be what the next kernel waits for."""

MIN_RETURN_NS = 10_000
"""Without a shorter wait, as of a launch into a full queue, the host launches hardly earlier."""

MAX_SPANS = 1_000
"""Maximum number of times, the longest ones; the manifest stores them."""


def hidden_work(window: pl.DataFrame, waits: pl.DataFrame) -> tuple[Span, ...]:
    """Return the disjoint times, in order, in which work beside communication is hidden.

    Where the GPU does nothing but communicate at the end of a collective, work that ended before
    waits for it: shorter kernels there shorten no step. The collective started while or before that
    work ran, so it would not end earlier either.
    Collectives of a stream are one as long as no work and no wait of the host ends between them,
    which could have started the next one. Work counts as hidden only from the last time on at which
    something can have waited for it: another collective starts, or a host call returns.

    Args:
        window: The GPU events of the timeline.
        waits: ``ts_ns, dur_ns`` of the time in which host calls wait for the GPU.
    """
    is_communication = pl.col(C.kind) == COMMUNICATION
    collectives, other = window.filter(is_communication), window.filter(~is_communication)
    if collectives.is_empty() or other.is_empty():
        return ()
    starts = sorted(collectives[C.ts_ns].to_list())
    is_long = pl.col(C.dur_ns) >= MIN_RETURN_NS
    returns = sorted(waits.filter(is_long).select(END).to_series().to_list())
    ends = sorted([*other.select(END).to_series().to_list(), *returns])
    busy_from, busy_to = (side.tolist() for side in added_parts(other))
    spans = []
    for block in _blocks(collectives, ends):
        (begin, _), (_, end) = block[0], block[-1]
        last = bisect_left(busy_from, end) - 1
        if last < 0 or not begin < busy_to[last] <= end - MIN_ALONE_NS:
            continue
        own = {start for start, _ in block}
        triggers = [at for at in _between(starts, begin, end) if at not in own]
        triggers += _between(returns, begin, end - MIN_ALONE_NS)
        spans.append((max([begin, *triggers]), end))
    return _union(spans)


def _blocks(collectives: pl.DataFrame, ends: list[int]) -> Iterator[list[Span]]:
    """Yield collectives of a stream, one after the other, that no other work has started."""
    for stream in collectives.sort(C.ts_ns).partition_by(C.stream, maintain_order=True):
        block: list[Span] = []
        for start, end in stream.select(C.ts_ns, END.alias(C.end_ns)).iter_rows():
            if block and _between(ends, block[-1][1], start):
                yield block
                block = []
            block.append((start, end))
        yield block


def _between(times: list[int], after: int, until: int) -> list[int]:
    return times[bisect_right(times, after) : bisect_right(times, until)]


def _union(spans: list[Span]) -> tuple[Span, ...]:
    joined = pl.DataFrame(spans, schema=[C.ts_ns, C.end_ns], orient="row").with_columns(
        (pl.col(C.end_ns) - pl.col(C.ts_ns)).alias(C.dur_ns)
    )
    parts = zip(*(np.asarray(side).tolist() for side in added_parts(joined)), strict=True)
    longest = sorted(parts, key=lambda span: (span[0] - span[1], span[0]))[:MAX_SPANS]
    return tuple(sorted(longest))
