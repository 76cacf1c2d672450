"""Ranks as rows of a chart: each one, or in blocks where they are many."""

import re
from collections.abc import Sequence

import polars as pl

from jarvis.ranks.identity import as_ranges
from jarvis.schemas.names import C

ROW = "row"
"""Column with the label of a row: its rank, or its ranks."""

MAX_ROWS = 128
_MIN_BLOCK = 8
_RANGES = re.compile(r"\s*\d+(?:\s*-\s*\d+)?\s*(?:,\s*\d+(?:\s*-\s*\d+)?\s*)*")


def chosen_ranks(text: str, ranks: Sequence[int]) -> list[int] | None:
    """Return the ranks that a text such as ``0-7, 12`` names, all if it is empty; None if it is no
    list of ranks, or names none of them."""
    if not text:
        return list(ranks)
    if not _RANGES.fullmatch(text):
        return None
    bounds = [[int(end) for end in part.split("-")] for part in text.split(",")]
    return [rank for rank in ranks if any(ends[0] <= rank <= ends[-1] for ends in bounds)] or None


def rank_rows(ranks: pl.DataFrame) -> pl.DataFrame:
    """Return ``rank, row``: above MAX_ROWS ranks those of a node share a row, or blocks of ranks
    where nodes are not known.

    Args:
        ranks: ``rank, node``, by rank.
    """
    rank = pl.col(C.rank)
    if ranks.height <= MAX_ROWS:
        return ranks.select(C.rank, rank.cast(pl.String).alias(ROW))
    block = pl.col(C.node)
    if ranks[C.node].null_count() or not 1 < ranks[C.node].n_unique() <= MAX_ROWS:
        size = _MIN_BLOCK
        while ranks.select((rank // size).n_unique()).item() > MAX_ROWS:
            size *= 2
        block = rank // size
    blocks = ranks.group_by(block.alias("block"), maintain_order=True).agg(C.rank)
    labels = blocks[C.rank].map_elements(as_ranges, return_dtype=pl.String)
    return blocks.select(C.rank, labels.alias(ROW)).explode(C.rank).sort(C.rank)
