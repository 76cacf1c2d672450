"""Pair the GPU events of a replayed graph with the calls that were captured into it.

Times, ids and streams of the two recordings cannot be compared: they may come from different
processes. The order of calls, kernel names and positions in the graph can.
"""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

from jarvis.perf_report.kernel_blocks import OTHER, block_of

Pair = tuple[int, int]

MERGED_COVERAGE = 0.99
"""Minimum share of replayed time with a captured call of a complete alignment."""

MIN_COVERAGE = 0.8
"""Minimum share of replayed time with a captured call; below, nothing is inferred."""

MIN_SIMILARITY = 0.8
"""Minimum share of kernel names that a graph and a capture have in common."""

MIN_CONSISTENT = 0.95
"""Minimum share of pairs that agree, of those that can be checked."""

MAX_LEFTOVER = 0.05
"""Maximum share of captured calls that no stream has next."""

COPY, FILL = "memcpy", "memset"
_FILL_KERNEL = re.compile(r"fillBuffer", re.IGNORECASE)
_COPY_KERNEL = re.compile(r"__amd_rocclr_copyBuffer", re.IGNORECASE)

_OP_BLOCKS = (
    ("attention", re.compile(r"attention|sdpa|fmha|mha_")),
    ("norm", re.compile(r"(rms|layer|group|batch)_?norm", re.IGNORECASE)),
    ("gemm", re.compile(r"::(mm|addmm|bmm|baddbmm|linear|matmul|_scaled_mm)$|gemm")),
    ("conv", re.compile(r"convolution|conv\dd")),
)
"""Blocks of operators by name, to check pairs whose captured call has no kernel name."""


class Rule(IntEnum):
    """How the events of a graph were paired, with the rules in the order in which they apply."""

    NODE_IDS = 1
    NAMES = 2
    STREAMS = 3
    OCCURRENCES = 4
    TYPES = 5


def token(name: str | None) -> str | None:
    """Return what is compared of a kernel or call: copies and fills replay in several forms."""
    if name is None:
        return None
    if name.startswith("Memcpy") or _COPY_KERNEL.search(name):
        return COPY
    if name.startswith("Memset") or _FILL_KERNEL.search(name):
        return FILL
    return name


@dataclass(frozen=True)
class Replayed:
    """The GPU events of one replay of a graph, by start.

    ``tokens`` of their names, ``durations_ns``, ``streams``, and ``node_ids`` (None: not recorded).
    """

    tokens: tuple[str, ...]
    durations_ns: tuple[int, ...]
    streams: tuple[int | None, ...]
    node_ids: tuple[int | None, ...]

    @cached_property
    def names(self) -> Counter[str]:
        """The number of events by token."""
        return Counter(self.tokens)


@dataclass(frozen=True)
class Captured:
    """The launch, copy and fill calls of a capture in host order.

    ``tokens`` of their kernels (None: not recorded), names and shapes of the operators around them.
    """

    tokens: tuple[str | None, ...]
    ops: tuple[str | None, ...]
    shapes: tuple[str | None, ...]

    def is_same(self, one: int, other: int) -> bool:
        """Return whether two calls have the same operator and shapes."""
        return self.ops[one] == self.ops[other] and self.shapes[one] == self.shapes[other]

    @cached_property
    def has_names(self) -> bool:
        """Whether the kernels of nearly all launches are recorded."""
        return self.tokens.count(None) <= MAX_LEFTOVER * len(self.tokens)

    @cached_property
    def names(self) -> Counter[str | None]:
        """The number of calls by token."""
        return Counter(self.tokens)


@dataclass(frozen=True)
class Alignment:
    """Positions of replayed events and captured calls that belong together, by replayed event.

    ``rule`` is None and ``reason`` states why if nothing was aligned. ``is_verified``: the pairs
    have equal names, or operators that fit the kernels.
    """

    rule: Rule | None
    pairs: tuple[Pair, ...] = ()
    is_verified: bool = True
    reason: str = ""


def similarity(replayed: Replayed, captured: Captured) -> float:
    """Return the share of kernel names in common, from 0 to 1, in any order."""
    common = sum(min(count, captured.names[name]) for name, count in replayed.names.items())
    return common / max(len(replayed.tokens), len(captured.tokens), 1)


def coverage(replayed: Replayed, pairs: Iterable[Pair]) -> float:
    """Return the share of the time of the events that have a captured call, from 0 to 1."""
    total = sum(replayed.durations_ns)
    return sum(replayed.durations_ns[at] for at, _ in pairs) / total if total else 0.0


def align(replayed: Replayed, captured: Captured) -> Alignment:
    """Return the pairs of the first rule that applies (``Rule``).

    1. Node ids: their rank is the order in which the nodes were added to the graph.
    2. One stream: the longest common subsequence of names.
    3. Several streams: each runs in order; a call belongs to the stream that has it next.
    4. Otherwise the n-th occurrence of a name to its n-th occurrence.
    5. Without names: by position, if operators fit the kernels; else only calls whose operator has
       the name of the kernel.
    """
    by_node = _by_node(replayed, captured)
    if by_node is not None:
        return by_node
    if not captured.has_names:
        return _by_type(replayed, captured)
    found = similarity(replayed, captured)
    if found < MIN_SIMILARITY:
        return Alignment(None, reason=f"{found:.0%} of the kernel names are the same")
    if len(set(replayed.streams)) == 1:
        pairs = _by_name(replayed, captured)
        if pairs is not None and coverage(replayed, pairs) >= MIN_COVERAGE:
            return Alignment(Rule.NAMES, tuple(pairs))
    else:
        pairs = _by_stream(replayed, captured)
        if pairs is not None:
            return Alignment(Rule.STREAMS, tuple(sorted(pairs)))
    return Alignment(Rule.OCCURRENCES, tuple(_by_occurrence(replayed.tokens, captured.tokens)))


def _by_node(replayed: Replayed, captured: Captured) -> Alignment | None:
    nodes = [node for node in replayed.node_ids if node is not None]
    if len(nodes) != len(captured.tokens) or len(set(nodes)) != len(replayed.tokens):
        return None
    ranked = sorted(range(len(nodes)), key=nodes.__getitem__)
    pairs = tuple(sorted((at, rank) for rank, at in enumerate(ranked)))
    fits = _consistent(replayed, captured, pairs)
    return None if fits is not None and fits < MIN_CONSISTENT else Alignment(Rule.NODE_IDS, pairs)


def _consistent(replayed: Replayed, captured: Captured, pairs: Iterable[Pair]) -> float | None:
    """Return the share of checkable pairs that fit, by name or operator; None if there are none."""
    checks = [
        fits
        for at, to in pairs
        if (fits := _fits(replayed.tokens[at], captured.tokens[to], captured.ops[to])) is not None
    ]
    return sum(checks) / len(checks) if checks else None


def _fits(kernel: str, captured_kernel: str | None, op: str | None) -> bool | None:
    if captured_kernel is not None:
        return kernel == captured_kernel
    if op is None:
        return None
    if op.startswith("triton_") or kernel.startswith("triton_"):
        return op in kernel
    expected = next((block for block, pattern in _OP_BLOCKS if pattern.search(op)), OTHER)
    found = block_of(kernel)
    return None if OTHER in (expected, found) else expected == found


def _by_name(replayed: Replayed, captured: Captured) -> list[Pair] | None:
    """Return the common subsequence of names, without pairs that could be others as well.

    If events are left over, an event may fit two calls. It is paired only if a search from the end
    finds the same call, or one with the same operator and shapes.
    """
    left, right = replayed.tokens, captured.tokens
    limit = round(2 * (1 - MIN_COVERAGE) * (len(left) + len(right)))
    pairs = common_subsequence(left, right, limit)
    if pairs is None or len(pairs) == len(left):
        return pairs
    reverse = common_subsequence(left[::-1], right[::-1], limit) or []
    other = {len(left) - 1 - at: len(right) - 1 - to for at, to in reverse}
    return [(at, to) for at, to in pairs if at in other and captured.is_same(to, other[at])]


def _by_stream(replayed: Replayed, captured: Captured) -> list[Pair] | None:
    """Return pairs by the next event of each stream; None if too many calls are left over."""
    queues: dict[int | None, list[int]] = defaultdict(list)
    for at, stream in enumerate(replayed.streams):
        queues[stream].append(at)
    heads = dict.fromkeys(queues, 0)
    pairs, skipped = [], 0
    for to, name in enumerate(captured.tokens):
        matching = [
            stream
            for stream, queue in queues.items()
            if heads[stream] < len(queue) and replayed.tokens[queue[heads[stream]]] == name
        ]
        if not matching:
            skipped += 1
            continue
        stream = max(
            matching, key=lambda s: _run_length(replayed, queues[s][heads[s] :], captured, to)
        )
        pairs.append((queues[stream][heads[stream]], to))
        heads[stream] += 1
    return pairs if skipped <= MAX_LEFTOVER * len(captured.tokens) else None


def _run_length(replayed: Replayed, queue: Sequence[int], captured: Captured, first: int) -> int:
    """Return how many events of a stream match the captured calls from a position on."""
    run = 0
    for at, name in zip(queue, captured.tokens[first:], strict=False):
        if replayed.tokens[at] != name:
            break
        run += 1
    return run


def _by_occurrence(left: Sequence[str], right: Sequence[str | None]) -> list[Pair]:
    places: dict[str | None, deque[int]] = defaultdict(deque)
    for to, name in enumerate(right):
        places[name].append(to)
    return [(at, places[name].popleft()) for at, name in enumerate(left) if places[name]]


def _by_type(replayed: Replayed, captured: Captured) -> Alignment:
    is_one_stream = len(set(replayed.streams)) == 1
    if len(replayed.tokens) == len(captured.tokens) and is_one_stream:
        pairs = tuple((at, at) for at in range(len(replayed.tokens)))
        fits = _consistent(replayed, captured, pairs)
        if fits is None or fits >= MIN_CONSISTENT:
            return Alignment(Rule.TYPES, pairs, is_verified=fits is not None)
    if is_one_stream and (pairs := _anchors(replayed, captured)):
        return Alignment(Rule.TYPES, pairs)
    return Alignment(
        None,
        reason=f"the captured calls have no kernel names, and {len(captured.tokens):,} calls do "
        f"not fit {len(replayed.tokens):,} kernels; record the same step without graphs, and pass "
        "that trace like a capture",
    )


def _anchors(replayed: Replayed, captured: Captured) -> tuple[Pair, ...]:
    """Return pairs whose kernel has the name of the captured operator."""
    names = {op for op in captured.ops if op and op.startswith("triton_")}
    left = [
        next((n for n in names if kernel.startswith(n)), at)
        for at, kernel in enumerate(replayed.tokens)
    ]
    right = [op if op in names else -1 - to for to, op in enumerate(captured.ops)]
    found = common_subsequence(left, right, len(left) + len(right)) or []
    return tuple(found)


def common_subsequence(
    left: Sequence[Hashable], right: Sequence[Hashable], max_edits: int
) -> list[Pair] | None:
    """Return the positions of a longest common subsequence, as pairs in order.

    Source: E. W. Myers, An O(ND) Difference Algorithm and Its Variations, Algorithmica 1 (1986).
    The time is that of the smaller sequence times the number of insertions and deletions. None if
    more than ``max_edits`` of them are needed.
    """
    start, end = 0, min(len(left), len(right))
    while start < end and left[start] == right[start]:
        start += 1
    tail = 0
    while tail < end - start and left[-1 - tail] == right[-1 - tail]:
        tail += 1
    middle = _edit_path(left[start : len(left) - tail], right[start : len(right) - tail], max_edits)
    if middle is None:
        return None
    return [
        *((i, i) for i in range(start)),
        *((i + start, j + start) for i, j in middle),
        *((len(left) - k, len(right) - k) for k in range(tail, 0, -1)),
    ]


def _edit_path(
    left: Sequence[Hashable], right: Sequence[Hashable], max_edits: int
) -> list[Pair] | None:
    """Return the matches on a shortest edit path, found breadth-first by number of edits.

    ``furthest[k]`` is the largest position of ``left`` reached on the diagonal ``k``, the position
    of ``left`` minus that of ``right``.
    """
    height, width = len(left), len(right)
    furthest = {1: 0}
    history = []
    for edits in range(min(max_edits, height + width) + 1):
        history.append(furthest.copy())
        for k in range(-edits, edits + 1, 2):
            i = _reached(furthest, k, edits)
            j = i - k
            while i < height and j < width and left[i] == right[j]:
                i, j = i + 1, j + 1
            furthest[k] = i
            if i >= height and j >= width:
                return _matches(history, height, width)
    return None


def _reached(furthest: dict[int, int], k: int, edits: int) -> int:
    """Return the position of ``left`` after the edit that leads to a diagonal."""
    if k == -edits or (k != edits and furthest[k - 1] < furthest[k + 1]):
        return furthest[k + 1]
    return furthest[k - 1] + 1


def _matches(history: list[dict[int, int]], i: int, j: int) -> list[Pair]:
    """Follow the path back from the end and return its matches in order."""
    pairs = []
    for edits in range(len(history) - 1, -1, -1):
        furthest, k = history[edits], i - j
        start = _reached(furthest, k, edits)
        while i > start:
            i, j = i - 1, j - 1
            pairs.append((i, j))
        down = k == -edits or (k != edits and furthest[k - 1] < furthest[k + 1])
        i, j = (i, j - 1) if down else (i - 1, j)
    return pairs[::-1]
