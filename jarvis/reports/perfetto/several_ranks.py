"""Write the recorded slices of several ranks on their common clock as one trace file."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import polars as pl

from jarvis.core.errors import RankChoiceError
from jarvis.core.product import product_version
from jarvis.ranks.identity import as_ranges
from jarvis.ranks.run import DistributedRun
from jarvis.reports.perfetto.document import SECOND_NS, OfRank, write_ranks
from jarvis.reports.perfetto.parts import Track, numbers
from jarvis.reports.perfetto.recorded import of_run
from jarvis.run import Run
from jarvis.schemas.names import C

MAX_BYTES = 500_000_000
"""Maximum size of the file before it is compressed."""


def write_ranks_trace(run: DistributedRun, members: Mapping[int, Path], out: Path) -> None:
    """Write the GPU events and host calls that the runs of ranks have, each rank as a process.

    Process ids are one more than ranks, since 0 means idle to Perfetto.

    Args:
        run: The distributed run.
        members: The run directories of the chosen ranks.
        out: The file.

    Raises:
        RankChoiceError: The clocks of a rank and of the others cannot be compared.
        TooLargeTraceError: The file would have more than MAX_BYTES.
    """
    clocks = {rank: _clock(run, rank, Run.load(root)) for rank, root in members.items()}
    if unknown := [rank for rank, clock in clocks.items() if clock is None]:
        raise RankChoiceError(
            f"The clock of these ranks is not known: {as_ranges(unknown)}. Choose other ranks."
        )
    known = {rank: clock for rank, clock in clocks.items() if clock is not None}
    first_ns = min(
        clock.common_ns(_first_ns(Run.load(members[rank]))) for rank, clock in known.items()
    )
    notes = {
        "distributed_run": run.manifest.distributed_id,
        "ranks": as_ranges(members),
        "written_by": f"jarvis {product_version()}",
    }
    origin_ns = first_ns // SECOND_NS * SECOND_NS
    ranks = (_of_rank(run, rank, members[rank], clock) for rank, clock in sorted(known.items()))
    write_ranks(out, ranks, origin_ns, notes, MAX_BYTES)


class _Clock:
    """What moves the times of a rank to the common clock."""

    def __init__(self, own_ns: int, shift_ns: int, drift_ppm: float) -> None:
        self._own_ns, self._shift_ns, self._drift_ppm = own_ns, shift_ns, drift_ppm

    def common_ns(self, own_ns: int) -> int:
        """Return a time of the rank on the common clock."""
        return own_ns + self._shift_ns - round((own_ns - self._own_ns) * self._drift_ppm / 1e6)

    def on_common(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return slices with ``ts_ns`` and ``dur_ns`` on the common clock: those that touch or are
        inside each other still do."""
        start, end = (self._common(pl.col(C.ts_ns) + each) for each in (0, pl.col(C.dur_ns)))
        return rows.with_columns(start.alias(C.ts_ns), (end - start).alias(C.dur_ns))

    def _common(self, time: pl.Expr) -> pl.Expr:
        drift = ((time - self._own_ns) * self._drift_ppm / 1e6).round().cast(pl.Int64)
        return time + self._shift_ns - drift


def _clock(run: DistributedRun, rank: int, own: Run) -> _Clock | None:
    """Return the clock of a rank by a collective that it was matched at; None without any."""
    placed = run.tables["instance_ranks"].filter(pl.col(C.rank) == rank)
    kernels = own.table("collectives").select(C.uid, C.ts_ns)
    both = placed.select(C.uid, C.start_ns).join(kernels, on=C.uid).sort(C.ts_ns)
    if both.is_empty():
        return None
    _, start_ns, own_ns = both.row(0)
    row = run.tables["ranks"].filter(pl.col(C.rank) == rank).row(0, named=True)
    return _Clock(own_ns, start_ns - own_ns, row[C.clock_drift_ppm] or 0.0)


def _first_ns(run: Run) -> int:
    """Return the start of the first recorded slice."""
    calls = run.tables.get("host_slices")
    tables = [run.table("gpu_work"), *([] if calls is None else [calls])]
    return min(first for table in tables if isinstance(first := table[C.ts_ns].min(), int))


def _of_rank(run: DistributedRun, rank: int, root: Path, clock: _Clock) -> OfRank:
    placed = run.tables["instance_ranks"].filter(pl.col(C.rank) == rank)
    instances = placed.select(C.uid, C.instance_id)
    recorded = of_run(Run.load(root))
    process = f"rank {rank}"
    return OfRank(
        pid=rank + 1,
        parts=[
            replace(
                part,
                rows=clock.on_common(part.rows).join(
                    instances, on=C.uid, how="left", maintain_order="left"
                ),
                arguments={**part.arguments, "collective": numbers(C.instance_id)},
            )
            for part in recorded.parts
        ],
        tracks=[
            Track(process, f"{track.process}, {track.name}", None, None)
            for track in recorded.tracks
        ],
        arrows=recorded.arrows,
    )
