import polars as pl

from jarvis.analyses.kernel_names import first_match

KINDS = (("softmax", "softmax"), ("maximum", "max"))


def test_the_first_pattern_that_matches_counts() -> None:
    names = pl.DataFrame({"name": ["aten::LogSoftmax", "aten::amax", "aten::sum", None]})
    assert names.select(first_match(pl.col("name"), KINDS, "other")).to_series().to_list() == [
        "softmax",
        "maximum",
        "other",
        "other",
    ]
    assert names.select(first_match(pl.col("name"), KINDS)).to_series()[2] is None
