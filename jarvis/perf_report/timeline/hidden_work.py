"""The time under collectives in which shorter kernels shorten no step.

Where the GPU does nothing but communicate at the end of a collective, work that ended before waits
for it. The collective started while or before that work ran, so it would not end earlier either.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import numpy as np
import polars as pl

from jarvis.perf_report.intervals import END, added_parts
from jarvis.perf_report.work import COMMUNICATION
from jarvis.schemas.names import C

MIN_ALONE_NS = 10_000
"""A collective that ends so soon after other work need not be what the next kernel waits for."""

MIN_WAIT_NS = 10_000
"""Without a shorter wait, as of a launch into a full queue, the host launches hardly earlier."""

MAX_SPANS = 1_000
"""Maximum number of times, the longest ones; the manifest stores them."""

Span = tuple[int, int]
"""Start and end in ns."""


def hidden_work(window: pl.DataFrame, waits: pl.DataFrame) -> tuple[Span, ...]:
    """Return the disjoint times, in order, in which work beside communication is hidden.

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
    is_long = pl.col(C.dur_ns) >= MIN_WAIT_NS
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
