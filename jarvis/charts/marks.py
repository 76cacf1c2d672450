"""What all charts share: the drawing with its data, axes, tooltips and labels."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, reduce
from io import BytesIO
from operator import and_
from typing import Any

import altair as alt
import polars as pl

from jarvis.charts.palette import Palette
from jarvis.core.expressions import rows_where
from jarvis.schemas import Column
from jarvis.schemas.names import C
from jarvis.text.format import MIN_MS, column_decimals, counted, milliseconds
from jarvis.text.shapes import compact_shapes
from jarvis.text.short_names import short_operation_name

Specification = Mapping[str, Any]
"""Vega-Lite without data. Shared between sessions: do not modify."""

MAX_CACHED_SPECS = 256
"""Cache size for one kind of chart (pages, filters and themes in use)."""

PART_BYTES, MAX_SHARED_PARTS = 8192, 1024
"""Size and number of parts of the data of charts that others are compared with."""


@dataclass(frozen=True, slots=True)
class EncodedDrawing:
    """A ``Drawing`` as caches keep it: with its data as parts of Arrow streams."""

    spec: Specification
    parts: Mapping[str, tuple[bytes, ...]]
    note: str

    @property
    def arrow(self) -> Mapping[str, bytes]:
        """The data as the Arrow streams that browsers get."""
        return {name: b"".join(parts) for name, parts in self.parts.items()}


@dataclass(frozen=True)
class Drawing:
    """A specification and its data frames by name; ``note`` states what its axes leave out."""

    spec: Specification
    datasets: Mapping[str, pl.DataFrame]
    note: str = ""

    @cached_property
    def arrow(self) -> Mapping[str, bytes]:
        """The data frames as Arrow streams, which is what browsers get."""
        return {name: _arrow_stream(frame) for name, frame in self.datasets.items()}

    def encoded(self) -> EncodedDrawing:
        """Return the drawing without its data frames.

        Equal parts of the data of several are in memory once, as most columns of the marks are the
        same at all targets; those that are not have to be the last ones.
        """
        parts = {
            name: tuple(
                _shared(data[first : first + PART_BYTES])
                for first in range(0, len(data), PART_BYTES)
            )
            for name, data in self.arrow.items()
        }
        return EncodedDrawing(self.spec, parts, self.note)

    @property
    def is_empty(self) -> bool:
        """Whether no frame has a row."""
        return all(frame.is_empty() for frame in self.datasets.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the chart as Vega-Lite, including its data."""
        return {**self.spec, "datasets": {name: f.to_dicts() for name, f in self.datasets.items()}}


def _arrow_stream(frame: pl.DataFrame) -> bytes:
    stream = BytesIO()
    frame.write_ipc_stream(stream, compat_level=pl.CompatLevel.oldest())
    return stream.getvalue()


@lru_cache(maxsize=MAX_SHARED_PARTS)
def _shared(part: bytes) -> bytes:
    """Return the first of equal parts."""
    return part


def text_colors(palette: Palette) -> dict[str, Any]:
    """Return the part of a Vega-Lite configuration that colors axes and legends.

    Streamlit's own gray has too little contrast for WCAG AA.
    """
    return {
        "axis": {"labelColor": palette.muted, "titleColor": palette.text},
        "legend": {"labelColor": palette.text, "titleColor": palette.text},
    }


MANY_MARKS = 200
"""From this number of marks on, charts are rendered on a canvas, which is faster than SVG."""


def specification(
    chart: alt.Chart | alt.LayerChart, *, has_many_marks: bool = False
) -> Specification:
    """Return the Vega-Lite of a chart whose data are ``alt.NamedData``.

    It is not validated, which would take most of a chart's time; the tests validate it.
    """
    spec: dict[str, Any] = chart.to_dict(validate=False)
    # Altair's theme sets sizes here, but not while another session's chart has the theme disabled
    # for the whole process.
    spec.pop("config", None)
    if has_many_marks:
        spec["usermeta"] = {"embedOptions": {"renderer": "canvas"}}
    return spec


def drawing_of(chart: alt.Chart | alt.LayerChart) -> Drawing:
    """Return a chart of data frames as a drawing, without the time that Altair's encoding takes."""
    chart, datasets = chart.copy(), {}
    for number, part in enumerate((chart, *getattr(chart, "layer", ()))):
        if isinstance(part.data, pl.DataFrame):
            name = f"frame_{number}"  # not as Vega names what it derives: `data_0`
            datasets[name], part.data = part.data, alt.NamedData(name)
    return Drawing(specification(chart), datasets)


Columns = Mapping[str, Column]
"""The columns of a frame by name, for labels, units and formats."""

MAX_POINTS = 1000
"""Maximum number of operations drawn as points, longest first, so that browsers stay fast."""

LINEAR = ",.6~r"
"""Number format of axis labels: thousands separators, no trailing zeros."""

NO_NAME = "not recorded"
"""Label of rows without a name, such as calls without shapes."""

_US, _MS, _BYTES, _TB_PER_S, _GB_PER_S = "µs", "ms", "bytes", "TB/s", "GB/s"
_MIN_TB_PER_S = 0.1
"""Smaller bandwidths are in GB/s."""

_MOST_OF_TIME, _NEAR = 0.99, 10
"""Share of the time whose operations an axis shows, and the factor within which it shows others."""

_THREE_DIGITS = ".3g"
_D3_FORMATS = {_THREE_DIGITS: ",.3r", "": LINEAR}
"""Formats of D3, where they differ from Python's."""

TOP_BARS = 10
BAR_PX, _AXIS_PX = 27, 62
"""Heights in pixels of a bar with the space above it, and of the axis with its title."""

LABEL_LENGTH = 44
_LABEL_PX = 250
_ROOM = 1.08


def columns_of(*groups: Iterable[Column]) -> Columns:
    """Return the columns by name; of two with the same name, the later one."""
    return {column.name: column for group in groups for column in group}


def largest(numbers: pl.Series) -> float:
    """Return the maximum, or 0 if there are no numbers."""
    maximum = numbers.max()
    return float(maximum) if isinstance(maximum, int | float) else 0.0


def ends_of(numbers: pl.Series) -> tuple[float, float]:
    """Return minimum and maximum, or 1 and 1 if there are no numbers."""
    low, high = numbers.min(), numbers.max()
    if isinstance(low, int | float) and isinstance(high, int | float):
        return float(low), float(high)
    return 1.0, 1.0


def decimals_of(numbers: pl.Series) -> int:
    """Return the number of decimals of numbers that stand below each other."""
    sizes = numbers.abs()
    typical = sizes.filter(sizes > 0).median()
    return column_decimals(largest(sizes), typical if isinstance(typical, float) else 0)


def decimals_showing(numbers: pl.Series, decimals: int, most: int) -> int:
    """Return ``most`` decimals if they show a number that ``decimals`` show as 0."""
    least, hidden = 10.0**-most / 2, 10.0**-decimals / 2
    return most if numbers.abs().is_between(least, hidden, closed="left").any() else decimals


MS_DECIMALS = 3
"""Decimals of times in ms of which one would be shown as 0 with fewer."""


@dataclass(frozen=True, slots=True)
class Tip:
    """A line of a tooltip: field, title and number format."""

    field: str
    title: str
    form: str | None

    def encoded(self) -> alt.Tooltip:
        """Return the Altair tooltip."""
        if self.form is None:
            return alt.Tooltip(field=self.field, type="nominal", title=self.title)
        return alt.Tooltip(
            field=self.field, type="quantitative", title=self.title, format=self.form
        )


def tips(columns: Columns, names: Iterable[str], frame: pl.DataFrame) -> tuple[Tip, ...]:
    """Return a tooltip line for each of ``names`` that the frame has."""
    schema = frame.schema
    return tuple(
        Tip(
            name,
            column.label,
            _D3_FORMATS.get(column.format, column.format) if schema[name].is_numeric() else None,
        )
        for name in names
        if name in schema
        for column in [columns[name]]
    )


def tooltip(lines: Iterable[Tip]) -> list[alt.Tooltip]:
    """Return the Altair tooltips of the lines."""
    return [line.encoded() for line in lines]


def heaviest(rows: pl.DataFrame, names: Iterable[str], drawable: pl.Expr) -> pl.DataFrame:
    """Return the columns ``names`` of the MAX_POINTS longest rows that are ``drawable``.

    Cheap if Polars knows that the rows are sorted by kernel time.
    """
    ordered = rows.sort(C.kernel_time_us, descending=True, maintain_order=True)
    indices = ordered.select(drawable.arg_true().head(MAX_POINTS)).to_series()
    return ordered.select(names)[indices]


def near_most(points: pl.DataFrame, *axes: str) -> pl.DataFrame:
    """Return the points that logarithmic axes are for: those of the operations with nearly all of
    the time, and those near them. ``points`` are sorted by time."""
    time_us = points[C.kernel_time_us]
    is_most = time_us.cum_sum() - time_us < _MOST_OF_TIME * float(time_us.sum())
    ends = {axis: ends_of(points[axis].filter(is_most)) for axis in axes}
    return rows_where(
        points, _within(points, {a: (low / _NEAR, high * _NEAR) for a, (low, high) in ends.items()})
    )


def note_of_outside(points: pl.DataFrame, axes: Mapping[str, tuple[float, float]]) -> str:
    """Return how many points are outside the axes, and their time; empty if none is."""
    every_us = points[C.kernel_time_us]
    outside_us = every_us.filter(~_within(points, axes))
    if outside_us.is_empty():
        return ""
    part, whole = (milliseconds(float(us.sum()) / 1000) for us in (outside_us, every_us))
    return f"Outside the chart: {counted(outside_us.len(), 'operation')}, {part} of {whole}."


def _within(points: pl.DataFrame, axes: Mapping[str, tuple[float, float]]) -> pl.Series:
    """Return whether each point is within the ends of all axes."""
    parts = [(points[axis] >= low) & (points[axis] <= high) for axis, (low, high) in axes.items()]
    return reduce(and_, parts)


def is_length(x: str) -> pl.Expr:
    """Return whether ``x`` is positive and finite, as bars and logarithmic axes need."""
    return pl.col(x).is_finite() & (pl.col(x) > 0)


def is_point(x: str, y: str) -> pl.Expr:
    """Return whether a scatter plot with logarithmic ``x`` can show a row."""
    return is_length(x) & pl.col(y).is_finite()


def named(column: str, instead: str) -> pl.Expr:
    """Return a column as text for labels; ``instead`` replaces missing values."""
    return pl.col(column).cast(pl.String).fill_null(instead)


def in_readable_unit(column: Column, longest: float) -> tuple[Column, float]:
    """Return a column of times or rates with three significant digits, and the divisor of its
    values: a time is in ms if its ``longest`` is at least MIN_MS, else in µs; a bandwidth is in
    GB/s if all are low."""
    if column.unit == _BYTES:
        return column, 1.0
    column = replace(column, format=_THREE_DIGITS)
    if column.unit == _US and longest >= MIN_MS * 1000:
        return _with_unit(column, _MS), 1000.0
    if column.unit == _MS and 0 < longest < MIN_MS:
        return _with_unit(column, _US), 0.001
    if column.unit == _TB_PER_S and 0 < longest < _MIN_TB_PER_S:
        label = column.label.replace(_TB_PER_S, _GB_PER_S)
        return replace(column, label=label, unit=_GB_PER_S), 0.001
    return column, 1.0


def _with_unit(column: Column, unit: str) -> Column:
    return replace(column, label=column.label.replace(f"({column.unit})", f"({unit})"), unit=unit)


def in_readable_units(
    frame: pl.DataFrame, columns: Columns, names: Sequence[str], longest: float
) -> tuple[pl.DataFrame, Columns]:
    """Return a frame with these columns in the unit that is readable for the longest bar."""
    units = {name: in_readable_unit(columns[name], longest) for name in names}
    scaled = frame.with_columns(pl.col(name) / divisor for name, (_, divisor) in units.items())
    return scaled, {**columns, **{name: column for name, (column, _) in units.items()}}


def short_label(text: str) -> str:
    """Return the label of a bar: compact shapes, or the short name of an operator or kernel."""
    return compact_shapes(short_operation_name(text)) or text


def bar_totals(frame: pl.DataFrame, *, x: str, y: str) -> pl.DataFrame:
    """Return the sum of ``x`` for each value of ``y`` (as a label), largest first.

    Used for both the bars and the texts about them.
    """
    lengths = frame.filter(is_length(x)).group_by(named(y, NO_NAME)).agg(pl.col(x).sum())
    return lengths.sort(x, y, descending=[True, False])


def shortened(text: pl.Expr, length: int = LABEL_LENGTH) -> pl.Expr:
    """Return text cut in the middle to ``length`` characters."""
    head, tail = length - length // 3 - 1, length // 3
    return (
        pl.when(text.str.len_chars() > length)
        .then(pl.concat_str(text.str.head(head), pl.lit("…"), text.str.tail(tail)))
        .otherwise(text)
    )


def unique_labels(frame: pl.DataFrame, text: pl.Expr, length: int) -> pl.DataFrame:
    """Return the frame with a unique ``label`` for each row; equal texts are numbered."""
    labels = frame.select(shortened(text, length)).to_series()
    counts = Counter[str]()
    unique = []
    for label in labels:
        counts[label] += 1
        unique.append(label if counts[label] == 1 else f"{label} #{counts[label]}")
    return frame.hstack([pl.Series("label", unique, pl.String)])


def plain_axis(title: str | None, **options: Any) -> alt.Axis:
    """Return a quantitative axis with a light grid and no ticks."""
    return alt.Axis(
        title=title, grid=True, ticks=False, domain=False, tickCount=6, labelFlush=True, **options
    )


def length_scale(longest: float, text_px: int = 0) -> alt.Scale:
    """Return a scale from 0 to slightly above ``longest``, so that labels stay off the edge.

    ``text_px``: width of the text behind the longest bar, which gets at least half of the width.
    """
    room: dict[str, Any] = {}
    if text_px:
        room["rangeMax"] = alt.ExprRef(f"max(width - {text_px}, width / 2)")
    return alt.Scale(domain=[0, longest * _ROOM or 1], nice=False, **room)


def rank_axis(*, has_labels: bool = True) -> alt.Y:
    """Return an axis of labels sorted by ``rank``, so that one cached chart fits all rows."""
    by_rank = alt.EncodingSortField(field="rank", op="min", order="ascending")
    return alt.Y("label:N", sort=by_rank, axis=name_axis() if has_labels else None)


def bars_height(count: int, bar_px: int = BAR_PX) -> int:
    """Return the height in pixels of a chart of bars with their axis."""
    return max(count, 1) * bar_px + _AXIS_PX


def name_axis(label: str = "datum.label") -> alt.Axis:
    """Return an axis of names that shows every label, as the Vega expression ``label`` says."""
    return alt.Axis(
        title=None,
        ticks=False,
        domain=False,
        labelLimit=_LABEL_PX,
        labelOverlap=False,
        labelFontSize=12,
        labelExpr=label,
    )
