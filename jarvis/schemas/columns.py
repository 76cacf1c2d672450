"""Column descriptions and helpers to create them."""

from dataclasses import dataclass

import polars as pl

from jarvis.schemas.names import C

PARAM_PREFIX = "param_"
ANY_PARAM = PARAM_PREFIX + "*"
"""Placeholder in a schema for the columns of a perf model's parameters."""

INTEGER, TEXT, FLAG = pl.Int64(), pl.String(), pl.Boolean()
NUMBER = pl.Float64()
NAMES, UIDS = pl.List(pl.String()), pl.List(pl.Int64())
KERNEL_STATS = pl.List(
    pl.Struct(
        {
            C.name: pl.String(),
            C.stream: pl.Int64(),
            C.count: pl.Int64(),
            C.total_duration_us: pl.Float64(),
            C.mean_duration_us: pl.Float64(),
            C.median_duration_us: pl.Float64(),
            C.std_dev_duration_us: pl.Float64(),
            C.min_duration_us: pl.Float64(),
            C.max_duration_us: pl.Float64(),
        }
    )
)
KERNELS = pl.List(
    pl.Struct(
        {
            C.name: pl.String(),
            C.stream: pl.Int64(),
            C.count: pl.Int64(),
            C.total_us: pl.Float64(),
            C.mean_us: pl.Float64(),
            C.min_us: pl.Float64(),
            C.max_us: pl.Float64(),
        }
    )
)
POPULATIONS = pl.List(
    pl.Struct(
        {
            C.count: pl.Int64(),
            C.total_us: pl.Float64(),
            C.mean_us: pl.Float64(),
            C.min_us: pl.Float64(),
            C.max_us: pl.Float64(),
            C.is_outlier: pl.Boolean(),
            C.is_first: pl.Boolean(),
            C.kernel: pl.String(),
            C.modules: pl.List(pl.String()),
        }
    )
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column; ``format`` is a Python format spec, ``optional`` columns may be absent."""

    name: str
    label: str
    dtype: pl.DataType
    unit: str = ""
    format: str = ""
    meaning: str = ""
    optional: bool = False


def text(name: str, label: str, meaning: str, optional: bool = False) -> Column:
    """Return a text column."""
    return Column(name, label, TEXT, meaning=meaning, optional=optional)


ARGUMENTS = (
    text(C.input_dims, "Input Dims", "shape of each argument"),
    text(C.input_types, "Input type", "dtype of each argument"),
    text(C.input_strides, "Input Strides", "strides of each argument"),
    text(C.concrete_inputs, "Concrete Inputs", "value of each argument that is not a tensor"),
)


def flag(name: str, label: str, meaning: str, optional: bool = False) -> Column:
    """Return a column that is true or false."""
    return Column(name, label, FLAG, meaning=meaning, optional=optional)


def integer(name: str, label: str, meaning: str, optional: bool = False) -> Column:
    """Return a column of ids or positions, which are shown without separators."""
    return Column(name, label, INTEGER, meaning=meaning, optional=optional)


def count(name: str, label: str, meaning: str, optional: bool = False) -> Column:
    """Return a column of integers that are shown with separators of thousands."""
    return Column(name, label, INTEGER, format=",d", meaning=meaning, optional=optional)


def nanoseconds(name: str, label: str, meaning: str, optional: bool = False) -> Column:
    """Return an integer column with the unit ns, which the label gets, too."""
    return Column(name, f"{label} (ns)", INTEGER, "ns", ",d", meaning, optional)


def number(
    name: str, label: str, unit: str, meaning: str, fmt: str = ",.3f", optional: bool = False
) -> Column:
    """Return a float column with a unit; ``fmt`` is a Python format spec."""
    return Column(name, label, NUMBER, unit, fmt, meaning, optional)


def milliseconds(
    name: str, label: str, meaning: str, fmt: str = ",.3f", optional: bool = False
) -> Column:
    """Return a float column with the unit ms, which the label gets, too."""
    return number(name, f"{label} (ms)", "ms", meaning, fmt, optional)


def microseconds(
    name: str, label: str, meaning: str, fmt: str = ",.3f", optional: bool = False
) -> Column:
    """Return a float column with the unit µs, which the label gets, too."""
    return number(name, f"{label} (µs)", "µs", meaning, fmt, optional)


def percent(
    name: str, label: str, meaning: str, fmt: str = ",.3f", optional: bool = False
) -> Column:
    """Return a float column with the unit %, which the label gets, too."""
    return number(name, f"{label} (%)", "%", meaning, fmt, optional)


def size(name: str, label: str, meaning: str, optional: bool = False) -> Column:
    """Return an integer column of bytes."""
    return Column(name, label, INTEGER, "bytes", ",d", meaning, optional)


def names(name: str, label: str, meaning: str, optional: bool = False) -> Column:
    """Return a column of lists of texts."""
    return Column(name, label, NAMES, meaning=meaning, optional=optional)


def uids(name: str, label: str, meaning: str, optional: bool = False) -> Column:
    """Return a column of lists of positions in the trace."""
    return Column(name, label, UIDS, meaning=meaning, optional=optional)


_STATISTICS = {
    "mean": "mean over the calls",
    "median": "median over the calls",
    "std": "sample standard deviation over the calls; empty for one call",
    "min": "smallest call",
    "max": "largest call",
    "sum": "sum over the calls",
}
SPREAD = ("mean", "median", "std", "min", "max")
"""Statistics over calls that most sheets have."""


def statistics(
    name: str,
    label: str,
    unit: str,
    meaning: str,
    which: tuple[str, ...] = SPREAD,
    optional: bool = False,
) -> tuple[Column, ...]:
    """Return a column for each statistic over calls: ``name_mean``, ..."""
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
