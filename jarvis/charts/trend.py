"""Line chart of a time over the runs of a project or model."""

import altair as alt
import polars as pl

from jarvis.charts.marks import LINEAR, Tip, ends_of, plain_axis, tooltip
from jarvis.charts.palette import Palette

MAX_SERIES = 8
"""Lines of the chart: as many as there are colors."""

_HEIGHT_PX = 280
_ROOM = 0.1
"""Space above and below equal times, as a share of them: without it, the axis has one label."""


def trend(points: pl.DataFrame, title: str, palette: Palette) -> alt.LayerChart:
    """Draw ``points``: ``created, shown_ms, series, run``, a line for each series.

    The axis need not start at 0, so that a change of a few percent is visible.

    Args:
        title: Title of the axis of times.
    """
    series = points["series"].unique(maintain_order=True).to_list()
    # As texts: browsers take times in Arrow as UTC, and show them in their own zone.
    moments = pl.col("created").dt.strftime("%Y-%m-%dT%H:%M:%S%.3f")
    base = alt.Chart(points.with_columns(moments)).encode(
        x=alt.X(
            "created:T",
            title=None,
            axis=alt.Axis(
                grid=False,
                ticks=False,
                values=_labeled(points),
                format="%Y-%m-%d %H:%M",
                labelOverlap=True,
            ),
        ),
        y=alt.Y(
            "shown_ms:Q",
            axis=plain_axis(f"{title}, not from 0", format=LINEAR),
            scale=_scale(points["shown_ms"]),
        ),
        color=alt.Color(
            "series:N",
            scale=alt.Scale(domain=series, range=list(palette.categorical[: len(series)])),
            legend=alt.Legend(title=None, orient="top", labelLimit=0) if len(series) > 1 else None,
        ),
        tooltip=tooltip(
            [Tip("run", "Run", None), Tip("series", "Of", None), Tip("shown_ms", title, LINEAR)]
        ),
    )
    return alt.LayerChart(
        layer=[base.mark_line(strokeWidth=1.5), base.mark_point(filled=True, size=45)],
        height=_HEIGHT_PX,
    )


def _scale(times_ms: pl.Series) -> alt.Scale:
    low, high = ends_of(times_ms)
    if low < high:
        return alt.Scale(zero=False, nice=True)
    return alt.Scale(domain=[low * (1 - _ROOM), high * (1 + _ROOM)], nice=True)


def _labeled(points: pl.DataFrame) -> list[alt.DateTime]:
    """Return the moments with a label: one of each minute, as labels have no seconds."""
    minute = pl.col("created").dt.truncate("1m")
    moments = points.group_by(minute.alias("minute")).agg(pl.col("created").min())["created"]
    return [
        alt.DateTime(
            year=at.year,
            month=at.month,
            date=at.day,
            hours=at.hour,
            minutes=at.minute,
            seconds=at.second,
            milliseconds=at.microsecond // 1000,
        )
        for at in moments.sort()
    ]
