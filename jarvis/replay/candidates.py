"""Replayable operators of a run, and packages of selected calls."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from jarvis.analyses.operations import weighted_efficiency
from jarvis.core.errors import ReplayError
from jarvis.core.workspace import RunPaths
from jarvis.impact import BOTTLENECK_EFFICIENCY_PCT, share_pct
from jarvis.recorded_calls.schema import operator_of
from jarvis.replay.package import (
    UNKNOWN_ORIGIN,
    Origin,
    Refusal,
    origin_of,
    package_bytes,
    replay_entries,
)
from jarvis.run import Run
from jarvis.schemas.names import C


@dataclass(frozen=True, slots=True)
class ReplayCandidate:
    """An operator of a run, and the part of its calls that a package can contain.

    ``uids`` are its rows of the operations table, most time first; ``distinct_calls`` the sets of
    arguments that can be packaged, ``packaged_time_us`` their kernel time and ``packaged_pct`` its
    share, ``reason`` why the rest cannot.
    """

    op_name: str
    uids: tuple[int, ...]
    calls: int
    kernel_time_us: float
    percent_of_compute: float
    efficiency_pct: float | None
    distinct_calls: int
    packaged_time_us: float
    packaged_pct: float
    reason: str | None

    @property
    def is_recommended(self) -> bool:
        """Return whether it is slow enough for a kernel team to investigate."""
        efficiency = self.efficiency_pct
        return efficiency is not None and efficiency < BOTTLENECK_EFFICIENCY_PCT


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected calls that can be packaged, and the rows that cannot."""

    title: str
    entries: list[dict[str, Any]]
    refusals: list[Refusal]

    @property
    def file_name(self) -> str:
        """Return the file name of the zip."""
        return RunPaths(Path()).replay_package(self.title).name

    def package(self) -> bytes:
        """Return the zip; raise ReplayError with the reasons if it would be empty."""
        if not self.entries:
            reasons = dict.fromkeys(f"{r.op_name}: {r.reason}" for r in self.refusals)
            raise ReplayError(f"None of the selected calls can be replayed. {'; '.join(reasons)}.")
        title = self.title if " " in self.title else f"`{self.title}`"
        return package_bytes(title, self.entries)


def replay_candidates(run: Run) -> list[ReplayCandidate]:
    """Return every operator of a run with GPU time, most time first."""
    rows = _by_time(run.table("operations")).with_columns(
        op_name=pl.col(C.name).map_elements(operator_of, return_dtype=pl.String)
    )
    parts = rows.partition_by("op_name", maintain_order=True)
    return sorted(map(_candidate, parts), key=lambda each: -each.kernel_time_us)


def _candidate(rows: pl.DataFrame) -> ReplayCandidate:
    selection = _selection(rows.to_dicts(), UNKNOWN_ORIGIN)
    time_us = float(rows[C.kernel_time_us].sum())
    refused = [refusal.uid for refusal in selection.refusals]
    packaged_us = float(rows.filter(~pl.col(C.uid).is_in(refused))[C.kernel_time_us].sum())
    return ReplayCandidate(
        op_name=rows["op_name"][0],
        uids=tuple(rows[C.uid]),
        calls=int(rows[C.operation_count].sum()),
        kernel_time_us=time_us,
        percent_of_compute=float(rows[C.percent_of_compute].sum()),
        efficiency_pct=weighted_efficiency(rows),
        distinct_calls=len(selection.entries),
        packaged_time_us=packaged_us,
        packaged_pct=share_pct(packaged_us, time_us),
        reason=selection.refusals[0].reason if selection.refusals else None,
    )


def select(run: Run, uids: Iterable[int] = (), op_names: Iterable[str] = ()) -> Selection:
    """Return the rows with these ``uid``s and all rows of these operators, by exact name.

    Raises:
        ReplayError: The run has no such row or operator.
    """
    table = run.table("operations")
    wanted, names = list(dict.fromkeys(uids)), list(dict.fromkeys(op_names))
    operators = table[C.name].map_elements(operator_of, return_dtype=pl.String)
    known = set(operators)
    for name in names:
        if name not in known:
            raise ReplayError(
                f"The run has no operator {name!r} with GPU time.{_like(name, known)}"
            )
    if unknown := set(wanted) - set(table[C.uid]):
        raise ReplayError(f"The run has no operation with the uid {min(unknown)}.")
    chosen = table.filter(pl.col(C.uid).is_in(wanted) | operators.is_in(names))
    return _selection(_by_time(chosen).to_dicts(), origin_of(run))


def _like(name: str, known: Iterable[str]) -> str:
    alike = sorted(one for one in known if name.lower() in one.lower())
    return f" Did you mean {', '.join(alike[:5])}?" if alike else ""


def _by_time(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.sort(C.kernel_time_us, C.uid, descending=[True, False])


def _selection(rows: Sequence[dict[str, Any]], origin: Origin) -> Selection:
    entries, refusals = replay_entries(rows, origin)
    names = list(dict.fromkeys(entry["op_name"] for entry in entries))
    title = names[0] if len(names) == 1 else f"{len(names)} operators"
    return Selection(title, entries, refusals)
