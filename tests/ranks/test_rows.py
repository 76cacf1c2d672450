"""Ranks as rows of charts."""

import polars as pl
import pytest

from jarvis.ranks.rows import chosen_ranks, rank_rows


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("", [0, 1, 2, 3]),
        ("1", [1]),
        ("0-1, 3", [0, 1, 3]),
        ("2 - 9", [2, 3]),
        ("7", None),
        ("1-", None),
        ("a", None),
    ],
)
def test_ranks_are_chosen_by_a_text(text: str, ranks: list[int] | None) -> None:
    assert chosen_ranks(text, range(4)) == ranks


def ranks(count: int, *, per_node: int | None = None) -> pl.DataFrame:
    nodes = [rank // per_node if per_node else None for rank in range(count)]
    return pl.DataFrame({"rank": range(count), "node": nodes}, schema_overrides={"node": pl.Int64})


def test_many_ranks_share_rows_by_node_else_in_blocks() -> None:
    assert rank_rows(ranks(128))["row"].to_list() == [str(rank) for rank in range(128)]
    by_node = rank_rows(ranks(144, per_node=4))
    assert by_node["row"].unique(maintain_order=True).to_list()[:2] == ["0-3", "4-7"]
    assert rank_rows(ranks(129))["row"].unique(maintain_order=True).to_list()[-2:] == [
        "120-127",
        "128",
    ]
    assert rank_rows(ranks(2048))["row"][0] == "0-15"
    assert rank_rows(ranks(144, per_node=1))["row"][0] == "0-7"
