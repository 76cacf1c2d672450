"""Compare two distributed runs: medians of ranks, and each rank if both have as many."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from jarvis.core.errors import JarvisError
from jarvis.ranks.identity import as_ranges
from jarvis.ranks.per_step import PARTS, basis, ranks_per_step, step_count
from jarvis.ranks.roles import PLACES
from jarvis.ranks.run import DistributedRun
from jarvis.schemas.columns import Column, number, text
from jarvis.schemas.names import C
from jarvis.schemas.ranks import RANK_STEPS

Side = Mapping[str, pl.DataFrame]

MEASURES = (C.duration_ms, *PARTS)
MEASURE, REFERENCE_MS, TARGET_MS, CHANGE_MS = "measure", "reference_ms", "target_ms", "change_ms"
PLACE = "place"
COLUMNS = (
    *RANK_STEPS,
    text(C.role, "Role", "what the process groups divide"),
    Column(PLACE, "Place", pl.Int64(), meaning="place of the ranks in their groups of this role"),
    text(MEASURE, "Per step", "part of the step"),
    number(REFERENCE_MS, "Reference (ms)", "ms", "in the reference"),
    number(TARGET_MS, "Target (ms)", "ms", "in the target"),
    number(CHANGE_MS, "Change (ms)", "ms", "from the reference to the target"),
)
"""Descriptions of the columns."""


class OtherBasisError(JarvisError):
    """Only one of two runs has marked steps."""

    def __init__(self) -> None:
        super().__init__(
            "Only one of the runs has marked steps, so their times cannot be compared. Record both "
            "with `profiler.step()`, or neither."
        )


@dataclass(frozen=True)
class RankComparison:
    """How the target differs from the reference.

    ``medians`` are those of the ranks: ``measure, reference_ms, target_ms, change_ms``. ``places``
    has the same of the ranks that have one place in the groups of a role (``role, place``), such as
    a pipeline stage, for roles that divide both jobs into as many places of several ranks.
    ``ranks`` has it of each rank that both have, with ``rank``; it is empty for other world sizes.
    """

    medians: pl.DataFrame
    places: pl.DataFrame
    ranks: pl.DataFrame
    notes: tuple[str, ...]


def compare_ranks(target: DistributedRun, reference: DistributedRun) -> RankComparison:
    """Return how a distributed run differs from another one.

    Raises:
        OtherBasisError: Only one of them has marked steps.
    """
    sides = (reference, target)
    if len({bool(step_count(side.tables)) for side in sides}) > 1:
        raise OtherBasisError
    before, after = (_measures(side.tables) for side in sides)
    both = before.join(after, on=[C.rank, MEASURE], suffix="_target", maintain_order="left")
    is_same_world = reference.manifest.world_size.value == target.manifest.world_size.value
    return RankComparison(
        _changes(_medians(before).hstack(_medians(after).select(pl.col("ms").alias("ms_target")))),
        _of_places(*(_with_places(_measures(side.tables), side.tables) for side in sides)),
        _changes(both if is_same_world else both.clear()),
        tuple(_notes(target, reference, is_same_world=is_same_world)),
    )


def _measures(tables: Side) -> pl.DataFrame:
    """Return ``rank, measure, ms``."""
    ranks = ranks_per_step(tables)
    if step_count(tables):
        steps = tables["rank_steps"].group_by(C.rank).agg(pl.col(C.duration_ms).mean())
        ranks = ranks.join(steps, on=C.rank, how="left", maintain_order="left")
    else:
        ranks = ranks.with_columns(pl.col(C.window_ms).alias(C.duration_ms))
    return ranks.unpivot(MEASURES, index=C.rank, variable_name=MEASURE, value_name="ms").sort(
        C.rank, maintain_order=True
    )


def _medians(measures: pl.DataFrame) -> pl.DataFrame:
    return measures.group_by(MEASURE, maintain_order=True).agg(pl.col("ms").median())


def _with_places(measures: pl.DataFrame, tables: Side) -> pl.DataFrame:
    """Return ``role, place, measure, ms``: medians of the ranks with one place, and ``places`` of
    the role; without roles whose places have one rank each."""
    ranks = tables["ranks"]
    known = [role.value for role in PLACES if role in ranks.columns]  # not of older runs
    places = (
        ranks.select(C.rank, *known)
        .unpivot(known, index=C.rank, variable_name=C.role, value_name=PLACE)
        .drop_nulls(PLACE)
        .with_columns(pl.col(PLACE).n_unique().over(C.role).alias("places"))
        .filter(pl.col("places").is_between(2, pl.len().over(C.role) - 1))
    )
    return (
        measures.join(places, on=C.rank)
        .group_by(C.role, PLACE, "places", MEASURE)
        .agg(pl.col("ms").median())
    )


def _of_places(before: pl.DataFrame, after: pl.DataFrame) -> pl.DataFrame:
    order = pl.col(MEASURE).replace_strict({name: i for i, name in enumerate(MEASURES)})
    shared = [C.role, PLACE, "places", MEASURE]
    both = before.join(after, on=shared, suffix="_target").sort(C.role, PLACE, order)
    return _changes(both.drop("places"))


def _changes(rows: pl.DataFrame) -> pl.DataFrame:
    change = (pl.col("ms_target") - pl.col("ms")).alias(CHANGE_MS)
    return rows.with_columns(change).rename({"ms": REFERENCE_MS, "ms_target": TARGET_MS})


def _notes(
    target: DistributedRun, reference: DistributedRun, *, is_same_world: bool
) -> Iterator[str]:
    sizes = [side.manifest.world_size.value for side in (reference, target)]
    before, after = (basis(side.tables) for side in (reference, target))
    times = before if before == after else f"{before} in the reference, {after} in the target"
    yield (
        f"Reference: {reference.manifest.title}; target: {target.manifest.title}. "
        f"Times are {times}."
    )
    if not is_same_world:
        yield (
            f"The jobs have {sizes[0]:,} and {sizes[1]:,} ranks, so only medians of the ranks are "
            "compared."
        )
        return
    own, other = (
        {entry.rank or 0 for entry in side.manifest.usable} for side in (target, reference)
    )
    for name, only in (("reference", other - own), ("target", own - other)):
        if only:
            yield f"Ranks that only the {name} has: {as_ranges(only)}."


def labels() -> dict[str, str]:
    """Return the label of each measure."""
    known: dict[str, Column] = {column.name: column for column in RANK_STEPS}
    return {name: known[name].label for name in MEASURES}
