"""Write slices as a trace in the Chrome JSON format, which Perfetto opens.

Slices that overlap are put on further lanes, each a thread of its own, so that none is dropped.
Times are microseconds with three decimals. Perfetto reads them as floating-point numbers, so times
from EXACT_NS on are written relative to an ``origin_ns``.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, count, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orjson
import polars as pl
from isal import isal_zlib

from jarvis.core.errors import TooLargeTraceError
from jarvis.core.output import open_output
from jarvis.ranks.identity import MAX_RANK
from jarvis.reports.perfetto.lanes import MAX_DEPTH, assign_lanes
from jarvis.reports.perfetto.parts import TRACK, Part, Track, json_texts, read_arguments
from jarvis.schemas.names import C

ROWS_AT_ONCE = 50_000
"""Slices that are written together, which limits the memory for their texts."""

EXACT_NS = 2**43 * 1000
"""From here on, floating-point numbers of microseconds are not exact to the nanosecond."""

MAX_ADJUSTED_NS = 2**50
"""Up to here, the next floating-point number of microseconds is the same nanosecond."""

SECOND_NS = 10**9
LEVEL = 2
"""Compression level of isal: fast, and a tenth larger than gzip's default."""

_GZIP = 16 + zlib.MAX_WBITS
_MAX_ID = 2**31
_FIRST_TID = MAX_RANK + 2
"""Ids of the threads of several ranks, which have smaller process ids."""

_KEYS = (TRACK, C.uid, C.ts_ns, C.dur_ns)


class Written(NamedTuple):
    """What a file has: its slices, and how many of them are on a further lane of their track."""

    slices: int
    moved: int
    origin_ns: int


def write_document(
    out: Path,
    parts: list[Part],
    tracks: list[Track],
    arrows: pl.DataFrame,
    notes: Mapping[str, object],
) -> Written:
    """Write a gzip-compressed trace.

    Args:
        out: The file.
        parts: The slices; ``track`` is a position in ``tracks``.
        tracks: The tracks, in the order in which they are shown.
        arrows: ``cat, from_uid, to_uid`` between recorded slices.
        notes: Metadata of the file (``otherData``).
    """
    order, names = _placed(parts, tracks)
    origin_ns = _origin_ns(order)
    written = Written(order.height, int((order["lane"] > 0).sum()), origin_ns)
    head = {
        "otherData": {
            **notes,
            "slices": written.slices,
            "slices_on_further_lanes": written.moved,
            "origin_ns": origin_ns,
        }
    }
    _write(out, head, chain(names, _blocks(parts, order, arrows, origin_ns)))
    return written


class OfRank(NamedTuple):
    """The slices of a rank on the clock of all ranks, and their tracks in its process."""

    pid: int
    parts: list[Part]
    tracks: list[Track]
    arrows: pl.DataFrame


def write_ranks(
    out: Path,
    ranks: Iterable[OfRank],
    origin_ns: int,
    notes: Mapping[str, object],
    max_bytes: int,
) -> None:
    """Write a gzip-compressed trace of several ranks, one after the other.

    Args:
        out: The file.
        ranks: The ranks; the names of their processes differ.
        origin_ns: The time that counts as 0.
        notes: Metadata of the file (``otherData``).
        max_bytes: Limit of its size before it is compressed.

    Raises:
        TooLargeTraceError: It has more.
    """
    _write(
        out,
        {"otherData": {**notes, "origin_ns": origin_ns}},
        _of_ranks(ranks, origin_ns),
        max_bytes,
    )


def _of_ranks(ranks: Iterable[OfRank], origin_ns: int) -> Iterator[str]:
    ids, arrow_ids = count(_FIRST_TID), count(1)
    for position, rank in enumerate(ranks):
        order, names = _placed(rank.parts, rank.tracks, rank.pid, ids, position)
        yield from names
        yield from _blocks(rank.parts, order, rank.arrows, origin_ns, arrow_ids)


def _write(out: Path, head: object, blocks: Iterable[str], max_bytes: int | None = None) -> None:
    """Write the events as a document of metadata ``head``; raise TooLargeTraceError."""
    written, separator = 0, ""
    with open_output(out) as file:
        packer = isal_zlib.compressobj(LEVEL, isal_zlib.DEFLATED, _GZIP)
        file.write(packer.compress(orjson.dumps(head)[:-1] + b',"traceEvents":[\n'))
        for block in blocks:
            text = f"{separator}{block}".encode()
            separator, written = ",\n", written + len(text)
            if max_bytes is not None and written > max_bytes:
                raise TooLargeTraceError(max_bytes)
            file.write(packer.compress(text))
        file.write(packer.compress(b"\n]}\n"))
        file.write(packer.flush())


def _placed(
    parts: list[Part],
    tracks: list[Track],
    pid: int | None = None,
    free: Iterator[int] | None = None,
    position: int = 0,
) -> tuple[pl.DataFrame, list[str]]:
    """Return ``_ordered`` with ``pid`` and ``tid``, and the events that name them."""
    lanes, order = _with_lanes(_ordered(parts))
    pids, tids, names = _threads(tracks, lanes, pid, free or count(1), position)
    order = order.with_columns(tid=pl.Series(tids, dtype=pl.Int64)[order["lane_number"]])
    of_track = pl.Series([pids[track.process] for track in tracks], dtype=pl.Int64)
    return order.with_columns(pid=of_track[order[TRACK]]), names


def _ordered(parts: list[Part]) -> pl.DataFrame:
    """Return ``rank, part, row`` and the times of all slices: by time, the longest first."""
    keys = [
        part.rows.select(
            pl.lit(number, pl.Int32).alias("part"),
            pl.int_range(pl.len(), dtype=pl.Int64).alias("row"),
            pl.col(_KEYS).cast(pl.Int64),
        )
        for number, part in enumerate(parts)
    ]
    return (
        pl.concat(keys)
        .sort(
            C.ts_ns,
            C.dur_ns,
            C.uid,
            descending=[False, True, False],
            nulls_last=True,
            maintain_order=True,
        )
        .with_row_index("rank")
    )


def _with_lanes(order: pl.DataFrame) -> tuple[list[tuple[int, int]], pl.DataFrame]:
    """Return the lanes as (track, lane), and the slices with ``lane`` and its ``lane_number``."""
    track = order[TRACK].to_numpy()
    by_track = np.argsort(track, kind="stable")
    start = order[C.ts_ns].to_numpy()[by_track]
    end = start + order[C.dur_ns].to_numpy()[by_track]
    found = np.zeros(order.height, np.int32)
    working = [np.zeros(order.height, np.int32) for _ in range(3)]
    assign_lanes(np.ascontiguousarray(track[by_track]), start, end, MAX_DEPTH, found, *working)
    lane = np.empty(order.height, np.int32)
    lane[by_track] = found
    numbered = order.with_columns(pl.Series("lane", lane))
    lanes = numbered.select(TRACK, "lane").unique().sort(TRACK, "lane")
    lanes = lanes.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("lane_number"))
    pairs = list(lanes.select(TRACK, "lane").iter_rows())
    return pairs, numbered.join(lanes, on=[TRACK, "lane"], how="left", maintain_order="left")


def _threads(
    tracks: list[Track],
    lanes: list[tuple[int, int]],
    pid: int | None,
    numbers: Iterator[int],
    position: int,
) -> tuple[dict[str, int], list[int], list[str]]:
    """Return the id of each process, the thread id of each lane, and the events that name them.

    Recorded ids are used where they are unique numbers above 0, which means "idle" to Perfetto;
    further lanes, and tracks without such an id, have other ``numbers``. ``pid`` is that of all
    processes, if it is given; ``position`` is the place of the first.
    """
    pids = {} if pid is None else {track.process: pid for track in tracks}
    taken = set(pids.values())
    for track in tracks:
        number = _id(track.pid)
        if number is not None and track.process not in pids and number not in taken:
            pids[track.process] = number
            taken.add(number)
    tids: dict[tuple[int, int], int] = {}
    for place_of, track in enumerate(tracks):
        number = _id(track.tid)
        is_main = number is not None and number == pids.get(track.process)
        if number is not None and (is_main or number not in taken):
            tids[place_of, 0] = number
            taken.add(number)
    free = (number for number in numbers if number not in taken)
    for track in tracks:
        if track.process not in pids:
            pids[track.process] = next(free)
    events = [
        event
        for index, (process, number) in enumerate(_in_order(tracks, pids), position)
        for event in (
            _named("process_name", number, 0, {"name": process}),
            _named("process_sort_index", number, 0, {"sort_index": index}),
        )
    ]
    for index, lane in enumerate(lanes):
        track = tracks[lane[0]]
        if lane not in tids:
            tids[lane] = next(free)
        number, tid = pids[track.process], tids[lane]
        name = track.name if lane[1] == 0 else f"{track.name} (lane {lane[1] + 1})"
        events += [
            _named("thread_name", number, tid, {"name": name}),
            _named("thread_sort_index", number, tid, {"sort_index": index}),
        ]
    return pids, [tids[lane] for lane in lanes], events


def _in_order(tracks: Iterable[Track], pids: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    for process in dict.fromkeys(track.process for track in tracks):
        yield process, pids[process]


def _id(text: str | None) -> int | None:
    """Return the number of a process or thread; None for other texts, and for those too large."""
    if text is None or not text.isascii() or not text.isdecimal() or len(text) > 10:
        return None
    number = int(text)
    return number if 0 < number < _MAX_ID else None


def _named(kind: str, pid: int, tid: int, arguments: dict[str, object]) -> str:
    event = {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": arguments}
    return orjson.dumps(event).decode()


def _origin_ns(order: pl.DataFrame) -> int:
    """Return the time that counts as 0: that of the trace, unless times would be inexact."""
    first = order[C.ts_ns].min()
    last = order.select((pl.col(C.ts_ns) + pl.col(C.dur_ns)).max()).item()
    if not isinstance(first, int) or (first >= 0 and last < EXACT_NS):
        return 0
    return first // SECOND_NS * SECOND_NS


def _blocks(
    parts: list[Part],
    order: pl.DataFrame,
    arrows: pl.DataFrame,
    origin_ns: int,
    arrow_ids: Iterator[int] | None = None,
) -> Iterator[str]:
    """Yield the events as text, in the order of ``rank``."""
    order = order.with_columns(
        ts=_decimals(order[C.ts_ns] - origin_ns), dur=_durations(order[C.dur_ns])
    )
    ends = _arrow_ends(order, arrows, arrow_ids or count(1))
    for first in range(0, order.height, ROWS_AT_ONCE):
        chunk = order.slice(first, ROWS_AT_ONCE)
        lines = [
            _slice_lines(parts[number], own)
            for (number,), own in chunk.partition_by("part", as_dict=True).items()
        ]
        in_chunk = pl.col("rank").is_between(first, first + ROWS_AT_ONCE - 1)
        lines.append(ends.filter(in_chunk).select("rank", "line"))
        yield ",\n".join(pl.concat(lines).sort("rank", maintain_order=True)["line"])


def _slice_lines(part: Part, chosen: pl.DataFrame) -> pl.DataFrame:
    """Return ``rank, line`` of some slices of a part."""
    rows = part.rows[chosen["row"]]
    known = chosen[C.uid].cast(pl.String).alias("uid").to_frame()
    texts = [
        known.select(pl.lit('"uid":') + pl.col("uid")).to_series(),
        *read_arguments(part, rows),
    ]
    named = [text.alias(str(position)) for position, text in enumerate(texts)]
    arguments = pl.concat_str([str(n) for n in range(len(named))], separator=",", ignore_nulls=True)
    category = orjson.dumps(part.category).decode()
    line = pl.concat_str(
        pl.lit(f'{{"ph":"X","cat":{category},"name":'),
        "slice_name",
        pl.lit(',"pid":'),
        "pid",
        pl.lit(',"tid":'),
        "tid",
        pl.lit(',"ts":'),
        "ts",
        pl.lit(',"dur":'),
        "dur",
        pl.lit(',"args":{'),
        "arguments",
        pl.lit("}}"),
    )
    return (
        chosen.select("rank", "pid", "tid", "ts", "dur")
        .with_columns(json_texts(rows[C.name]).alias("slice_name"))
        .with_columns(pl.DataFrame(named).select(arguments.alias("arguments")).to_series())
        .select("rank", line.alias("line"))
    )


def _arrow_ends(order: pl.DataFrame, arrows: pl.DataFrame, ids: Iterator[int]) -> pl.DataFrame:
    """Return ``rank, line`` of both ends of each arrow, at the starts of its slices.

    They bind to the slice before them in the file. Perfetto draws no arrow back in time.
    """
    slices = order.drop_nulls(C.uid).select(C.uid, "rank", "pid", "tid", "ts")
    joined = (
        arrows.unique(maintain_order=True)
        .join(slices, left_on="from_uid", right_on=C.uid, maintain_order="left")
        .join(slices, left_on="to_uid", right_on=C.uid, maintain_order="left", suffix="_to")
        .filter(pl.col("rank") < pl.col("rank_to"))
    )
    numbered = pl.Series("id", list(islice(ids, joined.height)), dtype=pl.Int64)
    joined = joined.with_columns(numbered)
    return pl.concat(
        joined.select(
            pl.col(f"rank{end}").alias("rank"),
            pl.concat_str(
                pl.lit(f'{{"ph":"{phase}","cat":"'),
                C.cat,
                pl.lit('","name":"'),
                C.cat,
                pl.lit('","id":'),
                "id",
                pl.lit(',"pid":'),
                f"pid{end}",
                pl.lit(',"tid":'),
                f"tid{end}",
                pl.lit(',"ts":'),
                f"ts{end}",
                pl.lit(f"{more}}}"),
            ).alias("line"),
        )
        for phase, end, more in (("s", "", ""), ("f", "_to", ',"bp":"e"'))
    )


def _decimals(times_ns: pl.Series) -> pl.Series:
    """Return times in µs with three decimals."""
    parts = pl.DataFrame({"whole": times_ns // 1000, "rest": times_ns % 1000})
    rest = pl.col("rest").cast(pl.String).str.zfill(3)
    return parts.select(pl.format("{}.{}", "whole", rest)).to_series()


def _durations(times_ns: pl.Series) -> pl.Series:
    """Return durations in µs, with three decimals or a few more.

    Older versions of Perfetto compute ``int(us * 1000)``, which is a nanosecond less for one in a
    hundred durations. The next floating-point number gives the same nanosecond everywhere.
    """
    ns = times_ns.to_numpy()
    us = ns / 1000.0
    short = np.flatnonzero(((us * 1000.0).astype(np.int64) < ns) & (ns < MAX_ADJUSTED_NS))
    longer = [repr(value) for value in np.nextafter(us[short], np.inf).tolist()]
    return _decimals(times_ns).scatter(short, longer)
