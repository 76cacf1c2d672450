"""The kinds of panels: what each draws, what its title says, and what it says if it is empty."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import polars as pl

from jarvis import charts
from jarvis.analyses.base import Panel, PanelKind
from jarvis.charts.marks import ends_of, in_readable_unit, largest
from jarvis.charts.palette import NOT_AVAILABLE
from jarvis.core.expressions import rows_where
from jarvis.impact import share_pct
from jarvis.schemas.names import C
from jarvis.text.format import count, counted, decimal, milliseconds, percent
from jarvis.text.markdown import escape, shortened

_BELOW_THRESHOLD = charts.STATES[0]
_NAME_LENGTH = 34
_MIN_ROOFLINE_PX = 260
_ONE_PLACE = 1.1
"""Ratio of the largest and smallest place of points, below which they show no trend."""


@dataclass(frozen=True)
class PanelData:
    """What a panel shows.

    ``rows`` are those of ``operations`` from ``projection.with_projection``, or those of another
    table with the columns that the panel names; ``whole`` those without filters, which
    fix colors, if ``rows`` are fewer.
    """

    panel: Panel
    rows: pl.DataFrame
    columns: charts.Columns
    target_pct: float
    colors: charts.Palette
    whole: pl.DataFrame | None = None

    @property
    def axes(self) -> tuple[str, str]:
        """The columns of x and y; ValueError if the panel does not name them."""
        if self.panel.x is None or self.panel.y is None:
            raise ValueError(f"the panel {self.panel.title!r} names no x and y")
        return self.panel.x, self.panel.y

    @cached_property
    def points(self) -> pl.DataFrame:
        """The x and y of the rows that a scatter plot can show."""
        return self.rows[[*dict.fromkeys(self.axes)]].filter(charts.is_point(*self.axes))


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of panel.

    ``draw`` returns None or an empty drawing where the rows give nothing to draw; the page shows
    the reason then, ``when_empty``. ``title`` returns Markdown about the rows of a drawing that is
    not empty.
    """

    draw: Callable[[PanelData], charts.Drawing | None]
    title: Callable[[PanelData], str]
    when_empty: Callable[[PanelData], str]
    has_points: bool = False
    """Whether it draws a point for each row, and leaves out those beyond ``charts.MAX_POINTS``."""
    has_operations: bool = True
    """Whether each mark is an operation, so that a click on it selects that."""
    alt: str | None = None
    """Accessible description behind the title."""


def _draw_roofline(data: PanelData) -> charts.Drawing | None:
    of_bandwidth = data.panel.y == C.tb_per_s
    every = charts.rows_for_roofline(data.rows)
    rated = rows_where(every, every["state"] != NOT_AVAILABLE)
    rows = rated if (rated[C.tb_per_s] > 0).any() else every
    drawing = charts.roofline(
        rows, data.columns, data.target_pct, data.colors, is_of_bandwidth=of_bandwidth
    )
    if drawing is None:
        return None
    # As high as the bars beside it, so that no card has an empty part.
    height = max(_MIN_ROOFLINE_PX, charts.savings_height(data.rows))
    return replace(drawing, spec={**drawing.spec, "height": height})


def _title_of_roofline(data: PanelData) -> str:
    time_us, has_rate = pl.col(C.kernel_time_us), pl.col(C.tb_per_s) > 0
    is_rated = has_rate & (pl.col("state") != NOT_AVAILABLE)
    is_below = has_rate & (pl.col("state") == _BELOW_THRESHOLD)
    all_count, rated_count, rated_us, below_count, below_us, has_unknown = data.rows.select(
        all=has_rate.sum(),
        rated=is_rated.sum(),
        rated_us=time_us.filter(is_rated).sum(),
        below=is_below.sum(),
        below_us=time_us.filter(is_below).sum(),
        has_unknown=(pl.col("state") == NOT_AVAILABLE).any(),
    ).row(0)
    if not rated_count:
        whole = counted(all_count, "operation")
        return f"the efficiency of {whole} is not known{_not_drawn(data)}"
    whole = counted(rated_count, "operation")
    if has_unknown:
        whole += " with a known efficiency"
    if not below_count:
        return f"none of {whole} is below the threshold{_not_drawn(data)}"
    return (
        f"{count(below_count)} of {whole}, {percent(share_pct(below_us, rated_us))} of "
        f"{'its' if rated_count == 1 else 'their'} time, below the threshold{_not_drawn(data)}"
    )


def _not_drawn(data: PanelData) -> str:
    """Return how many operations with a rate have no place on an axis of FLOP/byte."""
    if data.panel.y == C.tb_per_s:
        return ""
    rated = charts.rows_for_roofline(data.rows)
    rated = rows_where(rated, rated[C.tb_per_s] > 0)
    if not charts.suits_intensity(rated):
        return ""
    without = rated.height - int((rated[C.flops_per_byte] > 0).sum())
    return f" ({count(without)} without FLOPs not shown)" if without else ""


def _draw_savings(data: PanelData) -> charts.Drawing | None:
    has_any = (data.rows[C.saved_us] > 0).any()
    return charts.savings(data.rows, data.columns, data.colors) if has_any else None


def _title_of_savings(data: PanelData) -> str:
    saved = data.rows[C.saved_us].filter(data.rows[C.saved_us] > 0)
    whole, most = (milliseconds(us / 1000) for us in (float(saved.sum()), largest(saved)))
    if saved.len() == 1:
        return f"in green; one operation saves {whole} of kernel time"
    return f"in green; the first of {count(saved.len())} saves {most} of {whole} kernel time"


def _draw_bars(data: PanelData) -> charts.Drawing:
    x, y = data.axes
    color, whole = data.panel.color, data.whole
    return charts.bars(data.rows, data.columns, data.colors, x=x, y=y, color=color, whole=whole)


def _title_of_bars(data: PanelData) -> str:
    x, y = data.axes
    totals = charts.bar_totals(data.rows, x=x, y=y)
    name, most = totals.select(y, x).row(0)
    share = percent(share_pct(float(most), float(totals[x].sum())))
    quantity, _, _ = data.columns[x].label.partition(" (")  # without its unit
    is_time = data.columns[x].unit in ("µs", "ms")
    of = f" of the {escape(quantity[:1].lower() + quantity[1:])}" if is_time else ""
    return f"{escape(shortened(charts.short_label(name), _NAME_LENGTH))} has {share}{of}"


def _draw_scatter(data: PanelData) -> charts.Drawing | None:
    x, y = data.axes
    if _is_one_place(data):
        return None
    color, whole = data.panel.color, data.whole
    return charts.scatter(data.rows, data.columns, data.colors, x=x, y=y, color=color, whole=whole)


def _is_one_place(data: PanelData) -> bool:
    """Return whether several points have practically the same place on the horizontal axis."""
    places = data.points[data.axes[0]]
    lowest, highest = ends_of(places)
    return places.len() > 1 and highest < _ONE_PLACE * lowest


def _title_of_scatter(data: PanelData) -> str:
    _, y = data.axes
    values = data.points[[y]]
    column, divisor = in_readable_unit(data.columns[y], largest(values[y]))
    value = values.median().item() / divisor
    shown = percent(value) if column.unit == "%" else f"{decimal(value)} {column.unit}"
    return f"median {shown}"


def _why_no_savings(data: PanelData) -> str:
    if data.rows[C.saved_us].drop_nulls().is_empty():
        return "No operation here has a known efficiency."
    return f"All operations with a known efficiency reach {data.target_pct:g}% of their roofline."


def _why_no_points(data: PanelData) -> str:
    if _is_one_place(data):
        x = data.columns[data.axes[0]].label.partition(" (")[0]
        return f"All operations here have about the same {x}: the table has their values."
    x, y = (data.columns[name].label.partition(" (")[0] for name in data.axes)
    return f"No operation here has both figures: {x} and {y}."


KINDS: dict[PanelKind, Kind] = {
    "roofline": Kind(
        _draw_roofline,
        _title_of_roofline,
        lambda _: "No operation here has a perf model with a rate, so there is nothing to place.",
        has_points=True,
        alt="achieved rate of each operation under the peaks",
    ),
    "savings": Kind(
        _draw_savings,
        _title_of_savings,
        _why_no_savings,
    ),
    "bars": Kind(
        _draw_bars,
        _title_of_bars,
        lambda _: "Nothing of this kind in the trace.",
        has_operations=False,
    ),
    "scatter": Kind(_draw_scatter, _title_of_scatter, _why_no_points, has_points=True),
}
