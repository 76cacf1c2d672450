"""The table ``inference_layers``: the kernels of the layers that repeat in a step."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from jarvis.core.arrays import Bools, Float64s, Int64s
from jarvis.perf_report.kernel_blocks import block_of
from jarvis.perf_report.serving.repetition import Repeats, graph_launches, repeats
from jarvis.perf_report.serving.steps import inference_marks
from jarvis.perf_report.timeline.steps import launched
from jarvis.perf_report.work import GpuWork
from jarvis.schemas.names import C
from jarvis.trace import Trace

MIN_NAMED_SHARE = 0.7
"""If kernels with equal names repeat for less of the time, those of equal blocks are compared:
libraries choose different kernels for equal layers."""

_ANCHORS = ("attention", "kv_write")
"""Blocks whose main kernel runs once in each layer, best first."""

VARIES = "varies"
_SEQUENCE = "sequence"


@dataclass(frozen=True, slots=True)
class LayerKind:
    """Layers that repeat in all sequences of kernels of a phase with these names.

    ``durations_us`` is by sequence, repeat and position in the period; ``names`` are those of the
    first repeat. ``anchor`` is the main kernel of attention, else of the cache write, which runs
    once in a layer. ``share_pct`` is of the GPU time of the phase, ``sequence_pct`` of that of the
    sequences.
    """

    phase: str | None
    names: tuple[str, ...]
    durations_us: Float64s
    anchor: str | None
    share_pct: float
    sequence_pct: float

    @property
    def layers_per_period(self) -> int:
        """Return how often the anchor is in a period; 1 without one."""
        return 1 if self.anchor is None else self.names.count(self.anchor)

    @property
    def layers(self) -> int:
        """Return the number of layers in a sequence."""
        return int(self.durations_us.shape[1]) * self.layers_per_period

    @property
    def times_us(self) -> Float64s:
        """Return the time by repeat and position, the mean of the sequences."""
        times: Float64s = self.durations_us.mean(axis=0)
        return times


@dataclass(frozen=True, slots=True)
class Layers:
    """The kinds of layers, the GPU time outside them by phase and block, in µs, and the GPU events
    of the steps (schema: ``inference_events``)."""

    kinds: tuple[LayerKind, ...]
    outside: pl.DataFrame
    events: pl.DataFrame

    def rows(self) -> pl.DataFrame:
        """Return the table (schema: ``inference_layers``)."""
        rows = [row for kind, of in enumerate(self.kinds) for row in _rows(kind, of)]
        inside = pl.DataFrame(rows, schema=_ROWS, orient="row")
        return pl.concat([inside, self.outside], how="diagonal_relaxed")

    def anchors(self) -> list[pl.Series]:
        """Return by kind the uids of one GPU event in each layer of the first sequence."""
        found = []
        for number, kind in enumerate(self.kinds):
            at = [n for n, name in enumerate(kind.names) if name == kind.anchor] or [0]
            rows = self.events.filter(pl.col(C.kind) == number, pl.col(C.position).is_in(at))
            is_first = pl.all_horizontal(
                pl.col(name).eq_missing(pl.col(name).first())
                for name in (C.step, C.graph_launch_uid)
            )
            found.append(rows.filter(is_first)[C.uid])
        return found

    def times(self) -> pl.DataFrame:
        """Return the times of single layers (schema: ``inference_layer_times``)."""
        found = [pl.DataFrame(schema=_TIMES), *map(_times, range(len(self.kinds)), self.kinds)]
        return pl.concat(found)


_ROWS = {
    C.phase: pl.String,
    C.kind: pl.Int64,
    C.layer_count: pl.Int64,
    C.position: pl.Int64,
    C.block: pl.String,
    C.kernel: pl.String,
    C.population: pl.String,
    C.count: pl.Int64,
    C.mean_us: pl.Float64,
    C.p50_us: pl.Float64,
    C.p95_us: pl.Float64,
    C.max_us: pl.Float64,
    C.share_pct: pl.Float64,
    C.sequence_pct: pl.Float64,
}
_PLACES = {C.uid: pl.Int64, C.kind: pl.Int64, C.layer: pl.Int64, C.position: pl.Int64}
_TIMES = {
    C.phase: pl.String,
    C.kind: pl.Int64,
    C.layer: pl.Int64,
    C.block: pl.String,
    C.kernel_time_us: pl.Float64,
}


def inference_layers(trace: Trace, work: GpuWork, steps: pl.DataFrame) -> Layers:
    """Return the layers in the steps of a trace.

    A sequence is the GPU work that one graph launch replays, or what else a step launches on the
    stream with most of its work. Sequences with the same kernels are taken together.

    Args:
        trace: The trace.
        work: All its GPU work, with that of unrecorded launches.
        steps: Result of ``inference_steps``.
    """
    graphs = graph_launches(trace, work)
    phases = steps.filter(pl.col(C.part).is_null()).select(C.step, C.phase)
    events = (
        launched(inference_marks(trace, graphs), trace, work)
        .join(phases, on=C.step)
        .with_columns(pl.col(C.name).cast(pl.String))
    )
    blocks = {name: block_of(name) for name in events[C.name].unique()}
    block = pl.col(C.name).replace_strict(blocks, return_dtype=pl.String)
    events = _with_sequences(events.with_columns(**{C.block: block}), graphs)
    kinds: list[LayerKind] = []
    outside, inside = [], [pl.DataFrame(schema=_PLACES)]
    for (phase,), of_phase in events.group_by(C.phase, maintain_order=True):
        found, rest, places = _of_phase(None if phase is None else str(phase), of_phase)
        inside.append(places.with_columns(pl.col(C.kind) + len(kinds)))
        kinds += found
        outside.append(rest)
    empty = pl.DataFrame(schema={name: _ROWS[name] for name in (C.phase, C.block, C.share_pct)})
    return Layers(
        tuple(kinds),
        pl.concat([empty, *outside]),
        events.select(
            C.uid,
            C.step,
            pl.when(pl.col(_SEQUENCE) >= 0).then(_SEQUENCE).alias(C.graph_launch_uid),
            C.phase,
            C.block,
        ).join(pl.concat(inside), on=C.uid, how="left", maintain_order="left"),
    )


def _with_sequences(events: pl.DataFrame, graphs: pl.DataFrame) -> pl.DataFrame:
    """Return events with ``sequence``, null for those on other streams, in order."""
    is_replayed = pl.col(C.launch_uid).is_in(graphs[C.launch_uid].implode())
    eager = events.filter(~is_replayed).group_by(C.step, C.stream).agg(pl.col(C.dur_ns).sum())
    main = (
        eager.sort(C.dur_ns, C.stream, descending=[True, False])
        .unique(C.step, keep="first")
        .select(C.step, main_stream=C.stream)
    )
    of_graph = pl.when(is_replayed).then(pl.col(C.launch_uid))
    is_main = pl.col(C.stream).eq_missing(pl.col("main_stream"))
    # Launches have uids from 0 on, so negative numbers are free.
    sequence = pl.coalesce(of_graph, pl.when(is_main).then(-1 - pl.col(C.step)))
    return (
        events.join(main, on=C.step, how="left")
        .with_columns(sequence.alias(_SEQUENCE))
        .sort(C.ts_ns, C.uid)
    )


def _of_phase(
    phase: str | None, events: pl.DataFrame
) -> tuple[list[LayerKind], pl.DataFrame, pl.DataFrame]:
    """Return the kinds of layers of a phase, the rest of its GPU time by block, and the places of
    the events in the layers (``_PLACES``)."""
    total_ns = int(events[C.dur_ns].sum()) or 1
    alike: dict[tuple[str, ...], list[pl.DataFrame]] = {}
    for _, sequence in events.drop_nulls(_SEQUENCE).group_by(_SEQUENCE, maintain_order=True):
        alike.setdefault(tuple(sequence[C.name]), []).append(sequence)
    kinds: list[LayerKind] = []
    inside = [pl.DataFrame(schema=_PLACES)]
    for names, sequences in alike.items():
        durations = np.stack([sequence[C.dur_ns].to_numpy() for sequence in sequences])
        of_blocks = sequences[0][C.block].to_list()
        for part in _repeats(names, of_blocks, durations.sum(axis=0)):
            span = slice(part.start, part.stop)
            shape = (len(sequences), part.count, part.period)
            first = slice(part.start, part.start + part.period)
            kinds.append(
                LayerKind(
                    phase,
                    names[first],
                    durations[:, span].reshape(shape) / 1e3,
                    _anchor(names[first], of_blocks[first], durations[:, first].sum(axis=0)),
                    100 * float(durations[:, span].sum()) / total_ns,
                    100 * float(durations[:, span].sum() / durations.sum()),
                )
            )
            places = pl.int_range(part.stop - part.start)
            inside += [
                sequence[span].select(
                    C.uid,
                    pl.lit(len(kinds) - 1, pl.Int64).alias(C.kind),
                    (places // part.period).alias(C.layer),
                    (places % part.period).alias(C.position),
                )
                for sequence in sequences
            ]
    placed = pl.concat(inside)
    rest = events.join(placed, on=C.uid, how="anti").group_by(C.block)
    by_block = rest.agg((100 * pl.col(C.dur_ns).sum() / total_ns).alias(C.share_pct)).select(
        pl.lit(phase, pl.String).alias(C.phase), C.block, C.share_pct
    )
    return kinds, by_block.sort(C.share_pct, C.block, descending=[True, False]), placed


def _repeats(names: tuple[str, ...], of_blocks: list[str], times: Int64s) -> list[Repeats]:
    """Return what repeats by names, or by blocks if that covers too little and less than those."""
    by_name, by_block = (
        repeats(pl.Series(texts, dtype=pl.String).rank("dense").cast(pl.Int64).to_numpy(), times)
        for texts in (names, of_blocks)
    )

    def covered(parts: list[Repeats]) -> float:
        return float(sum(times[part.start : part.stop].sum() for part in parts))

    is_enough = covered(by_name) >= MIN_NAMED_SHARE * times.sum()
    return by_name if is_enough or covered(by_name) >= covered(by_block) else by_block


def _anchor(names: tuple[str, ...], of_blocks: list[str], times: Int64s) -> str | None:
    """Return the main kernel of attention, else of the cache write, that runs once in a layer."""
    for anchor in _ANCHORS:
        sums: dict[str, int] = {}
        for name, block, time in zip(names, of_blocks, times.tolist(), strict=True):
            if block == anchor:
                sums[name] = sums.get(name, 0) + time
        if sums:
            return max(sums, key=lambda name: (sums[name], name))
    return None


def _rows(number: int, kind: LayerKind) -> Iterator[tuple[object, ...]]:
    """Yield the rows of ``_ROWS`` of a kind: by position, and by group of layers if there are two
    regular ones."""
    total_us = float(kind.durations_us.sum()) or 1.0
    for position, name in enumerate(kind.names):
        of_position = kind.durations_us[:, :, position]
        is_slow = slow_group(of_position.mean(axis=0))
        groups: list[tuple[str | None, Float64s]] = [(None, of_position)]
        if is_slow is not None:
            groups = (
                [("fast", of_position[:, ~is_slow]), ("slow", of_position[:, is_slow])]
                if is_regular(is_slow)
                else [(VARIES, of_position)]
            )
        for population, times in groups:
            yield (
                kind.phase,
                number,
                kind.layers,
                position,
                block_of(name),
                name,
                population,
                times.size,
                float(times.mean()),
                float(np.median(times)),
                float(np.quantile(times, 0.95)),
                float(times.max()),
                kind.share_pct * float(times.sum()) / total_us,
                kind.sequence_pct * float(times.sum()) / total_us,
            )


def _times(number: int, kind: LayerKind) -> pl.DataFrame:
    """Return the times of the layers of a kind by block (``_TIMES``)."""
    times_us = kind.times_us
    repeats_, positions = np.indices(times_us.shape)
    blocks = np.array([block_of(name) for name in kind.names], dtype=object)
    rows = pl.DataFrame(
        {
            C.layer: repeats_.ravel(),
            C.block: blocks[positions.ravel()],
            C.kernel_time_us: times_us.ravel(),
        },
        schema_overrides={C.block: pl.String},
    )
    summed = rows.group_by(C.layer, C.block, maintain_order=True).agg(
        pl.col(C.kernel_time_us).sum()
    )
    labels = (
        pl.lit(kind.phase, pl.String).alias(C.phase),
        pl.lit(number, pl.Int64).alias(C.kind),
    )
    return summed.select(*labels, C.layer, C.block, C.kernel_time_us)


MIN_LAYERS = 8
MIN_MEMBERS = 3
MIN_RATIO = 0.25
"""Minimum difference of the means of two groups, as a share of the smaller one."""

MIN_BETWEEN = 0.8
"""Minimum share of the variance that is between two groups."""

ODD_DEVIATIONS = 4
"""A layer is odd if it exceeds the median by more than so many median absolute deviations, and by
MIN_RATIO."""


def slow_group(times: Float64s) -> Bools | None:
    """Return which layers belong to the slower one of two groups of times; None if there is one
    group."""
    count = times.size
    if count < MIN_LAYERS:
        return None
    order = np.argsort(times, kind="stable")
    ordered = times[order]
    sizes = np.arange(MIN_MEMBERS, count - MIN_MEMBERS + 1)
    sums = np.cumsum(ordered)
    low = sums[sizes - 1] / sizes
    high = (sums[-1] - sums[sizes - 1]) / (count - sizes)
    between = sizes * (count - sizes) / count * (high - low) ** 2
    best = int(np.argmax(between))
    total = float(((times - times.mean()) ** 2).sum())
    is_apart = high[best] - low[best] >= MIN_RATIO * low[best] > 0
    if not is_apart or between[best] < MIN_BETWEEN * total:
        return None
    is_slow = np.zeros(count, dtype=bool)
    is_slow[order[sizes[best] :]] = True
    return is_slow


def is_regular(is_slow: Bools) -> bool:
    """Return whether the slower layers follow each other, or are all odd or all even ones."""
    slow, fast = np.flatnonzero(is_slow), np.flatnonzero(~is_slow)
    has_one_parity = any(np.unique(group % 2).size == 1 for group in (slow, fast))
    is_contiguous = any(np.ptp(group) == group.size - 1 for group in (slow, fast))
    return has_one_parity or is_contiguous


def odd_layers(totals: Float64s) -> list[int]:
    """Return the layers that take far longer than the median one: beyond the usual deviations, and
    by as much as the layers of another kind (MIN_RATIO), since equal layers deviate very little."""
    median = np.median(totals)
    deviation = np.median(np.abs(totals - median))
    limit = max(median + ODD_DEVIATIONS * deviation, (1 + MIN_RATIO) * median)
    return [int(layer) for layer in np.flatnonzero(totals > limit)]
