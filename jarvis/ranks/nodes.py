"""Which ranks share a node, and the peaks of the links between them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from jarvis.hardware import load_hardware
from jarvis.ranks.members import Member
from jarvis.schemas.names import C

INTRA_NODE, INTER_NODE = "intra_node", "inter_node"


@dataclass(frozen=True)
class Cluster:
    """What the user says about the nodes: ``gpus_per_node``, and ``network_gbps``, the rate of the
    network for each GPU in gigabits per second."""

    gpus_per_node: int | None = None
    network_gbps: float | None = None


UNKNOWN_CLUSTER = Cluster()


def with_links(
    communicators: pl.DataFrame, members: Sequence[Member], cluster: Cluster
) -> pl.DataFrame:
    """Return communicators with ``node_span`` and ``link_gbs``; null where they are not known.

    Args:
        communicators: Table of ``with_communicators``.
        members: The ranks with a trace.
        cluster: What the user says about the nodes.
    """
    hosts = {member.rank: member.info.host for member in members}
    size = node_size(members, cluster)
    spans = [_span(ranks, hosts, size) for ranks in communicators["members"].to_list()]
    rows = communicators.with_columns(pl.Series(C.node_span, spans, pl.String))
    names = {member.info.device_name for member in members}
    name = names.pop() if len(names) == 1 else None
    link = load_hardware().link(name) if name else None
    network_gbs = None if cluster.network_gbps is None else cluster.network_gbps / 8
    peaks = [
        network_gbs
        if span == INTER_NODE
        else link.peak_gbps(ranks)
        if link is not None and span == INTRA_NODE
        else None
        for span, ranks in rows.select(C.node_span, C.size).iter_rows()
    ]
    return rows.with_columns(pl.Series(C.link_gbs, peaks, pl.Float64))


def nodes(members: Sequence[Member], cluster: Cluster) -> dict[int, int]:
    """Return the number of the node of each rank: by the hosts of all of them, else by its own
    number; empty if neither is known."""
    hosts = {member.rank: member.info.host for member in members}
    if all(hosts.values()):
        numbers = {host: number for number, host in enumerate(dict.fromkeys(hosts.values()))}
        return {rank: numbers[host] for rank, host in hosts.items()}
    size = node_size(members, cluster)
    return {} if size is None else {rank: rank // size for rank in hosts}


def node_size(members: Sequence[Member], cluster: Cluster) -> int | None:
    """Return the GPUs of a node, if the user says it; else those that the first process sees. If it
    sees a single one they are not known."""
    if cluster.gpus_per_node is not None:
        return cluster.gpus_per_node
    visible = members[0].info.visible_gpus if members else None
    return visible if visible is not None and visible > 1 else None


def _span(
    ranks: Sequence[int], hosts: Mapping[int, str | None], gpus_per_node: int | None
) -> str | None:
    """Return whether ranks share a node: by the hosts of all of them, else by their numbers."""
    named = [hosts.get(rank) for rank in ranks]
    nodes: set[object] = set()
    if all(named):
        nodes = set(named)
    elif gpus_per_node is not None:
        nodes = {rank // gpus_per_node for rank in ranks}
    return (INTRA_NODE if len(nodes) == 1 else INTER_NODE) if nodes else None
