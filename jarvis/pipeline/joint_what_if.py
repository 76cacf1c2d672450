"""The time of a step of a distributed run under changes that a user names."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict

from jarvis.changes import Change
from jarvis.core.errors import ChangeError, NotSimulatedError, RemovedRanksError
from jarvis.core.workspace import RunPaths, analyses_dir
from jarvis.pipeline.simulated_steps import MAX_CHANGES, NOTHING_PCT, non_negative, parse_change
from jarvis.ranks.clock import Clock
from jarvis.ranks.events import communication_events
from jarvis.ranks.gain import Evidence, JointSteps, NotJoinedError, StepGain
from jarvis.ranks.identity import as_ranges
from jarvis.ranks.manifest import MemberEntry
from jarvis.ranks.members import Member, in_batches
from jarvis.ranks.run import DistributedRun
from jarvis.run import Run
from jarvis.schemas.names import C
from jarvis.text.format import MINUS, milliseconds

RANK, TRANSFER, ALL = "rank", "transfer", "all"
_OF_A_RANK = ("target", "scale", "host", "no-wait")
FORMS = (
    f"{RANK}=N",
    f"{RANK}={ALL}",
    f"{TRANSFER}=FACTOR",
    "target=NAME:PERCENT",
    "scale=NAME:FACTOR",
    "host=PATTERN:FACTOR",
    "no-wait=PATTERN",
)
"""What a change can be in text: a rank, or all, becomes as the median of the ranks; transfers of
all collectives take FACTOR times as long; the others are those of one trace, on all ranks or, with
``@N`` at the end, on rank N."""

FindRun = Callable[[MemberEntry], Path | None]
"""Where the run of a rank is; None if it was removed."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class JointChangeAlone(_Frozen):
    """A change, and what it alone would save of the median step: at least and at most."""

    change: str
    saved_low_ms: float
    saved_high_ms: float


class JointWhatIf(_Frozen):
    """What the changes together would save of the median step: at least and at most.

    The two are equal where all ranks of each collective are recorded. ``ranks`` is the number of
    ranks that are replayed together.
    """

    step_ms: float
    ranks: int
    saved_low_ms: float
    saved_high_ms: float
    changes: tuple[JointChangeAlone, ...]

    @property
    def headline(self) -> str:
        """What the step gains."""
        low, high = self.saved_low_ms, self.saved_high_ms
        recorded = milliseconds(self.step_ms)
        if max(abs(low), abs(high)) <= NOTHING_PCT / 100 * self.step_ms:
            return f"Step unchanged ({recorded})."
        ends = " to ".join(
            f"{MINUS if saved > 0 else '+'}{milliseconds(abs(saved))}"
            for saved in ((low,) if low == high else (low, high))
        )
        after = " to ".join(
            milliseconds(self.step_ms - saved) for saved in ((low,) if low == high else (low, high))
        )
        return f"Step {ends}: {recorded} → {after}."

    @property
    def small_print(self) -> str:
        """What the figure is based on."""
        text = f"{self.ranks:,} ranks replayed together; the step is the median of the ranks."
        if self.saved_low_ms == self.saved_high_ms:
            return text
        return f"{text} Ranks are missing: the gain lies between the two."


def ranks_what_if(run: DistributedRun, changes: Sequence[str], find: FindRun) -> JointWhatIf:
    """Return what the median step of a distributed run gains by changes that are made together.

    Args:
        changes: One of FORMS each.
        find: Where the runs of its ranks are.

    Raises:
        RemovedRanksError: The runs of some ranks were removed.
        NotSimulatedError: The recordings cannot be replayed together.
        ChangeError: A change is unknown, or names nothing in the traces.
    """
    if len(changes) > MAX_CHANGES:
        raise ChangeError(f"At most {MAX_CHANGES} changes can be simulated together.")
    roots = {entry.rank or 0: find(entry) for entry in run.manifest.usable}
    if removed := [rank for rank, root in roots.items() if root is None]:
        raise RemovedRanksError(as_ranges(removed))
    runs = {rank: Run.load(root) for rank, root in roots.items() if root is not None}
    steps = _stored_steps(run, runs)
    parsed = [(text, _parsed(text, steps, runs)) for text in changes]
    together: dict[int, list[Change]] = {}
    factor = 1.0
    for _, (of_ranks, transfer) in parsed:
        factor *= transfer
        for rank, own in of_ranks.items():
            together.setdefault(rank, []).extend(own)
    low, high = _gain(steps, together, factor)
    return JointWhatIf(
        step_ms=steps.step_ms,
        ranks=len(steps.members),
        saved_low_ms=low,
        saved_high_ms=high,
        changes=tuple(
            JointChangeAlone(change=text, saved_low_ms=alone.low_ms, saved_high_ms=alone.high_ms)
            for text, found in parsed
            if (alone := _gain(steps, *found))
        ),
    )


def stored_member(root: Path, entry: MemberEntry) -> Path | None:
    """Return the run of a rank in the folder of its distributed run, or in that of the analyses."""
    places = (RunPaths(root).member(entry.rank or 0), analyses_dir() / (entry.analysis_id or ""))
    return next((each for each in places if RunPaths(each).manifest.is_file()), None)


def _gain(
    steps: JointSteps, changes: Mapping[int, Sequence[Change]], transfer_factor: float
) -> StepGain:
    if transfer_factor == 1.0 and not any(changes.values()):
        return StepGain(0.0, 0.0)
    return steps.gain(changes, np.full(steps.joint.instances.size, transfer_factor))


def _stored_steps(run: DistributedRun, runs: Mapping[int, Run]) -> JointSteps:
    """Return the steps of the ranks, replayed together by the stored tables of the join."""
    members = [
        Member(
            rank=rank,
            name=own.manifest.trace.file_name,
            info=own.manifest.trace,
            tables=own.tables,
            analysis_id=own.manifest.analysis_id,
            simulation=own.manifest.simulation,
        )
        for rank, own in sorted(runs.items())
    ]
    events = communication_events(in_batches(members)).kernels.select(
        pl.col(C.rank, C.uid).cast(pl.Int64), C.is_cut, pl.col(C.start_ns).alias("own_start_ns")
    )
    kernels = run.tables["instance_ranks"].join(events, on=[C.rank, C.uid])
    cut = kernels.group_by(C.instance_id).agg(pl.col(C.is_cut).any())
    ranks = run.tables["ranks"]
    evidence = Evidence(
        kernels=kernels.drop(C.is_cut),
        instances=run.tables["instances"].join(cut, on=C.instance_id),
        lateness=run.tables["lateness"],
        causes=run.tables["lateness_causes"],
        speed=dict(ranks.select(C.rank, C.speed_ratio).drop_nulls().iter_rows()),
    )
    known = ranks.drop_nulls(C.clock_offset_us)
    clock = Clock(
        offset_ns={
            rank: round(offset_us * 1e3)
            for rank, offset_us in known.select(C.rank, C.clock_offset_us).iter_rows()
        },
        error_ns={},
        drift_ppm=dict(known.select(C.rank, C.clock_drift_ppm).iter_rows()),
        groups=run.tables["clocks"],
        broken=pl.Series(dtype=pl.Int64),
        p95_ns=None,
    )
    try:
        return JointSteps(members, evidence, clock)
    except NotJoinedError as error:
        raise NotSimulatedError(
            "the recordings of the ranks cannot be replayed together"
        ) from error


def _parsed(
    text: str, steps: JointSteps, runs: Mapping[int, Run]
) -> tuple[dict[int, list[Change]], float]:
    """Return the changes of each rank that a text names, and the factor of all transfers."""
    kind, _, argument = text.partition("=")
    ranks = [member.rank for member in steps.members]
    if kind == RANK:
        chosen = ranks if argument == ALL else [_rank(argument, ranks)]
        return {rank: steps.to_median(rank) for rank in chosen}, 1.0
    if kind == TRANSFER:
        return {}, _factor(argument)
    if kind not in _OF_A_RANK:
        raise ChangeError(
            f"Unknown change {text!r}. A change of a distributed run is one of {', '.join(FORMS)}."
        )
    change, at, rank = text.rpartition("@")
    if at and rank.isdecimal():
        chosen = [_rank(rank, ranks)]
    else:
        change, chosen = text, ranks
    found: dict[int, list[Change]] = {}
    errors = []
    for rank_number in chosen:
        try:
            found[rank_number] = list(parse_change(change, runs[rank_number]))
        except ChangeError as error:  # other ranks may have what it names
            errors.append(error)
    if not found:
        raise errors[0]
    return found, 1.0


def _rank(text: str, ranks: Sequence[int]) -> int:
    if not text.isdecimal() or int(text) not in ranks:
        raise ChangeError(f"There is no rank {text!r}; the ranks are {as_ranges(ranks)}.")
    return int(text)


def _factor(text: str) -> float:
    factor = non_negative(text)
    if factor is None:
        raise ChangeError(f"A factor is a number of at least 0, not {text!r}.")
    return factor
