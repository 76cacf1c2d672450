"""What a column is, and short ways to describe one."""

from dataclasses import dataclass

import polars as pl

PARAM_PREFIX = "param_"
ANY_PARAM = PARAM_PREFIX + "*"
"""Stands in a schema where the columns of a perf model's parameters go."""

INTEGER, TEXT, FLAG = pl.Int64(), pl.String(), pl.Boolean()
NUMBER = pl.Float64()
NAMES, UIDS = pl.List(pl.String()), pl.List(pl.Int64())
KERNEL_STATS = pl.List(
    pl.Struct(
        {
            "name": pl.String(),
            "stream": pl.Int64(),
            "count": pl.Int64(),
            "total_duration_us": pl.Float64(),
            "mean_duration_us": pl.Float64(),
            "median_duration_us": pl.Float64(),
            "std_dev_duration_us": pl.Float64(),
            "min_duration_us": pl.Float64(),
            "max_duration_us": pl.Float64(),
        }
    )
)
KERNELS = pl.List(
    pl.Struct(
        {
            "name": pl.String(),
            "stream": pl.Int64(),
            "count": pl.Int64(),
            "total_us": pl.Float64(),
            "mean_us": pl.Float64(),
            "min_us": pl.Float64(),
            "max_us": pl.Float64(),
        }
    )
)


@dataclass(frozen=True, slots=True)
class Column:
    """One column. ``format`` is a Python format spec; ``optional`` ones may be absent."""

    name: str
    label: str
    dtype: pl.DataType
    unit: str = ""
    format: str = ""
    meaning: str = ""
    optional: bool = False


def text(name: str, label: str, meaning: str) -> Column:
    """A column of words."""
    return Column(name, label, TEXT, meaning=meaning)


ARGUMENTS = (
    text("input_dims", "Input Dims", "shape of each argument"),
    text("input_types", "Input type", "dtype of each argument"),
    text("input_strides", "Input Strides", "strides of each argument"),
    text("concrete_inputs", "Concrete Inputs", "value of each argument that is no tensor"),
)


def count(name: str, label: str, meaning: str) -> Column:
    """A column of whole numbers."""
    return Column(name, label, INTEGER, format=",d", meaning=meaning)


def number(
    name: str, label: str, unit: str, meaning: str, fmt: str = ",.3f", optional: bool = False
) -> Column:
    """A column of numbers with a unit."""
    return Column(name, label, NUMBER, unit, fmt, meaning, optional)


_STATISTICS = {
    "mean": "mean over the calls",
    "median": "median over the calls",
    "std": "sample standard deviation over the calls; empty for one call",
    "min": "smallest call",
    "max": "largest call",
    "sum": "sum over the calls",
}
SPREAD = ("mean", "median", "std", "min", "max")
"""The statistics that most sheets give of a value that differs from call to call."""


def statistics(
    name: str,
    label: str,
    unit: str,
    meaning: str,
    which: tuple[str, ...] = SPREAD,
    optional: bool = False,
) -> tuple[Column, ...]:
    """One column ``name_mean``, ... for each statistic of a value that differs by call."""
    return tuple(
        number(
            f"{name}_{statistic}",
            f"{label}_{statistic}",
            unit,
            f"{meaning}; {_STATISTICS[statistic]}",
            optional=optional,
        )
        for statistic in which
    )
