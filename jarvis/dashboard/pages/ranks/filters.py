"""The filters of the ranks page: ranks, step and communicator."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl
import streamlit as st

from jarvis.dashboard.widgets.controls import ALL, list_choice, text_input
from jarvis.ranks.rows import ROW, chosen_ranks, rank_rows
from jarvis.ranks.run import DistributedRun
from jarvis.schemas.names import C


@dataclass(frozen=True)
class Chosen:
    """The part of a distributed run that the filters leave."""

    run: DistributedRun
    ranks: tuple[int, ...]
    step: int | None
    comm_id: str | None

    @cached_property
    def rows(self) -> pl.DataFrame:
        """The rows of charts: ``rank, row`` of all ranks of the job that are chosen."""
        known = self.run.tables["ranks"].select(C.rank, C.node)
        chosen = pl.DataFrame({C.rank: self.ranks}, schema={C.rank: pl.Int64})
        return rank_rows(chosen.join(known, on=C.rank, how="left").sort(C.rank))

    @cached_property
    def labels(self) -> list[str]:
        """The labels of these rows, from top to bottom."""
        return self.rows[ROW].unique(maintain_order=True).to_list()

    @cached_property
    def instances(self) -> pl.DataFrame:
        """The collectives that are chosen, and have a chosen rank."""
        found = self.run.tables["instances"]
        if self.step is not None:
            found = found.filter(pl.col(C.step) == self.step)
        if self.comm_id is not None:
            found = found.filter(pl.col(C.comm_id) == self.comm_id)
        if len(self.ranks) == self.run.manifest.world_size.value:
            return found
        return found.join(self.events, on=C.instance_id, how="semi")

    @cached_property
    def events(self) -> pl.DataFrame:
        """The kernels of the ranks that are chosen, in all collectives."""
        return self.of_ranks(self.run.tables["instance_ranks"])

    def of_ranks(self, table: pl.DataFrame, column: str = C.rank) -> pl.DataFrame:
        """Return the rows of a table with a chosen rank."""
        return table.filter(pl.col(column).is_in(self.ranks))


def filters(run: DistributedRun) -> Chosen:
    """Draw the filters."""
    instances = run.tables["instances"]
    steps = instances[C.step].drop_nulls().unique().sort()
    every = range(run.manifest.world_size.value)
    with st.container(border=True, horizontal=True):
        text = text_input(
            "ranks_ranks",
            "Ranks",
            "all, or such as 0-7, 12",
            "Ranks that the charts and the table of delays show.",
        )
        step = list_choice(
            "ranks_step", "Step", [ALL, *map(str, steps)], "Step whose collectives are shown."
        )
        comm_id = list_choice(
            "ranks_comm",
            "Communicator",
            [ALL, *run.tables["communicators"][C.comm_id]],
            "Process group whose collectives are shown.",
        )
    ranks = chosen_ranks(text, every)
    if ranks is None:
        st.info(f"No rank of 0-{every[-1]} is chosen, so all are shown.")
    return Chosen(
        run,
        tuple(_all_or(ranks, every)),
        None if step == ALL else int(step),
        None if comm_id == ALL else comm_id,
    )


def _all_or(ranks: Sequence[int] | None, every: Sequence[int]) -> Sequence[int]:
    return every if ranks is None else ranks
