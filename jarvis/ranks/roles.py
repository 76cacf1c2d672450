"""Roles of the process groups of a job, and the place of each rank in them.

If the description of a group names one role, that is it. Otherwise the communication decides: sends
and receives along a chain of ranks (pipeline), tokens sent to experts, equal messages in the
forward and backward pass (tensors), or gradients. If nothing of this is found, the role is unknown.
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise

import polars as pl

from jarvis.ranks.events import CALL, POINT_TO_POINT, Events
from jarvis.ranks.members import Member
from jarvis.schemas.names import C


class Role(StrEnum):
    """What is divided over the ranks of a process group."""

    DATA = "dp"
    TENSOR = "tp"
    PIPELINE = "pp"
    EXPERT = "ep"
    CONTEXT = "cp"


PLACES = (Role.DATA, Role.TENSOR, Role.PIPELINE, Role.EXPERT)
"""Roles in which the place of a rank is a column of `ranks`."""

MIN_GRADIENT_BYTES = 1 << 20
"""Minimum bytes that a communicator sums in a step to be gradients."""

MIN_EQUAL_MESSAGES = 4
"""Minimum messages of one size that a rank without a backward pass sums in a step to be those of
layers."""

_WORDS = {
    Role.DATA: {"data", "dp", "fsdp", "ddp", "hsdp"},
    Role.TENSOR: {"tensor", "tp"},
    Role.PIPELINE: {"pipeline", "pipe", "pp"},
    Role.EXPERT: {"expert", "ep", "moe"},
    Role.CONTEXT: {"context", "cp"},
}
_TO_EXPERTS = {"all_to_all_v", "dispatch", "combine", "notify"}
_SUMS = ("all_reduce", "reduce_scatter")
_BESIDE_EXPERTS = {"all_gather", "barrier"}


def with_roles(
    communicators: pl.DataFrame,
    events: Events,
    members: Sequence[Member],
    gpus_per_node: int | None,
) -> pl.DataFrame:
    """Return communicators with ``role``: a role, else the number of ranks and their distance.

    Args:
        communicators: Table of ``with_communicators``.
        events: Their events; the calls have ``comm_id``.
        members: The ranks with a trace.
        gpus_per_node: Ranks of a node, if they are known.
    """
    signs = _signs(events, is_training=_is_training(members))
    roles = [
        role_in_description(description)
        or _of_signs(ranks, size, signs.get(comm_id, set()), gpus_per_node)
        for comm_id, description, ranks, size in communicators.select(
            C.comm_id, C.description, "members", C.size
        ).iter_rows()
    ]
    shapes = [_shape(*row) for row in communicators.select("members", C.size).iter_rows()]
    texts = [role or shape for role, shape in zip(roles, shapes, strict=True)]
    return communicators.with_columns(pl.Series(C.role, texts, pl.String))


def places(communicators: pl.DataFrame, ranks: Sequence[int]) -> pl.DataFrame:
    """Return ``rank`` and a column for each of PLACES: the place of the rank in its largest group
    of this role; null without one."""
    rows = communicators.sort(C.size, C.comm_id, descending=[True, False])
    found: dict[str, dict[int, int]] = {role: {} for role in PLACES}
    for role, members in rows.select(C.role, "members").iter_rows():
        for place, rank in enumerate(members if role in found else ()):
            found[role].setdefault(rank, place)
    columns = {role.value: [found[role].get(rank) for rank in ranks] for role in PLACES}
    schema = dict.fromkeys((C.rank, *columns), pl.Int64)
    return pl.DataFrame({C.rank: list(ranks), **columns}, schema=schema)


def stages_of(communicators: pl.DataFrame) -> dict[int, int]:
    """Return the pipeline stage of each rank that has one."""
    of_pipelines = communicators.filter(pl.col(C.role) == Role.PIPELINE)["members"].to_list()
    ranks = sorted({rank for members in of_pipelines for rank in members})
    return dict(places(communicators, ranks).select(C.rank, C.pp).iter_rows())


def role_in_description(description: str | None) -> Role | None:
    """Return the role that a description states; None if it states none, or several."""
    words = set(re.split(r"[^a-z]+", (description or "").lower()))
    stated = {role for role, names in _WORDS.items() if names & words}
    if Role.DATA in stated:
        # Experts have ranks over which their gradients are summed; a context belongs to a batch.
        stated -= {Role.EXPERT, Role.CONTEXT}
    return stated.pop() if len(stated) == 1 else None


def _is_training(members: Sequence[Member]) -> bool | None:
    """Return whether the ranks have a backward pass; None if it is not known."""
    directions = [
        member.tables["operations"][C.direction]
        for member in members[:1]
        if "operations" in member.tables
    ]
    return bool((directions[0] == "backward").any()) if directions else None


def _signs(events: Events, *, is_training: bool | None) -> dict[str, set[Role]]:
    """Return the roles that the events of each communicator indicate, by its id."""
    signs: dict[str, set[Role]] = {}
    for comm_id, kinds, sources, targets in (
        events.calls.group_by(C.comm_id)
        .agg(pl.col(C.kind).unique(), *(pl.col(end).unique() for end in (C.src_rank, C.dst_rank)))
        .iter_rows()
    ):
        found = signs.setdefault(comm_id, set())
        others = set(kinds) - _TO_EXPERTS
        if set(kinds) == {POINT_TO_POINT} and None not in {*sources, *targets}:
            found.add(Role.PIPELINE)
        if others < set(kinds) and others <= _BESIDE_EXPERTS:
            found.add(Role.EXPERT)
    for comm_id, same_share, step_bytes, most_same in _sums(events).iter_rows():
        if is_training and same_share >= 0.5:
            signs[comm_id].add(Role.TENSOR)
        elif is_training and same_share == 0 and step_bytes >= MIN_GRADIENT_BYTES:
            signs[comm_id].add(Role.DATA)
        elif is_training is False and most_same >= MIN_EQUAL_MESSAGES:
            signs[comm_id].add(Role.TENSOR)
    return signs


def _sums(events: Events) -> pl.DataFrame:
    """Return ``comm_id, same_share, bytes, most`` of the sums of each communicator.

    ``same_share`` is the share of messages with a size that several threads of a rank send, thus
    the forward and the backward pass; ``bytes`` are those of a step, ``most`` the number of
    messages of the most frequent size in a step, both medians.
    """
    message = [C.comm_id, C.rank, C.step, C.kind, C.in_bytes]
    return (
        events.kernels.group_by(CALL, C.step)
        .len()
        .drop_nulls(C.step)
        .join(events.calls.filter(pl.col(C.kind).is_in(_SUMS)), on=CALL)
        .group_by(message)
        .agg((pl.col(C.launch_tid).n_unique() > 1).alias("is_same"), pl.col("len").sum())
        .group_by(C.comm_id, C.rank, C.step)
        .agg(
            (pl.col("len") * pl.col("is_same")).sum().alias("same"),
            pl.col("len").sum().alias("all"),
            (pl.col(C.in_bytes) * pl.col("len")).sum().alias(C.bytes),
            pl.col("len").max().alias("most"),
        )
        .group_by(C.comm_id)
        .agg(
            (pl.col("same").sum() / pl.col("all").sum()).alias("same_share"),
            pl.col(C.bytes).median(),
            pl.col("most").median(),
        )
        .sort(C.comm_id)
    )


def _of_signs(
    ranks: Sequence[int], size: int, signs: set[Role], gpus_per_node: int | None
) -> Role | None:
    """Return the role if there is one; tensors are divided only over neighbors in a node."""
    is_near = _stride(ranks) == 1 and (gpus_per_node is None or size <= gpus_per_node)
    found = signs - (set() if is_near else {Role.TENSOR})
    return found.pop() if len(found) == 1 else None


def _stride(ranks: Sequence[int]) -> int | None:
    strides = {after - before for before, after in pairwise(ranks)}
    return strides.pop() if len(strides) == 1 else None


def _shape(ranks: Sequence[int], size: int) -> str:
    stride = _stride(ranks)
    return f"group of {size}" + (f" (stride {stride})" if stride else "")
