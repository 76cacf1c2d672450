"""The title of a panel: what it plots, and what it shows of the rows on screen."""

import polars as pl

from jarvis.analyses.base import Panel
from jarvis.charts import STATES, Columns, bar_totals, is_point
from jarvis.charts.marks import largest
from jarvis.impact import share_pct
from jarvis.text.format import count, counted, decimal, milliseconds, percent
from jarvis.text.markdown import escape, shortened

_BELOW_THRESHOLD = STATES[0]
_NAME_LENGTH = 34


def panel_title(panel: Panel, rows: pl.DataFrame, columns: Columns) -> str:
    """Markdown for a panel that has something to draw.

    ``rows`` are those that it draws: of ``operations`` as ``projection.judged`` gives them, of
    other tables with the columns that the panel names.
    """
    say = {"roofline": _roofline, "savings": _savings, "bars": _bars, "scatter": _scatter}
    return f"**{panel.title}** · {say[panel.kind](panel, rows, columns)}"


def _roofline(panel: Panel, rows: pl.DataFrame, columns: Columns) -> str:
    placed = rows.select("tb_per_s", "state", "kernel_time_us").filter(pl.col("tb_per_s") > 0)
    below = placed.filter(state=_BELOW_THRESHOLD)
    if below.is_empty():
        return f"none of {counted(placed.height, 'operation')} is below the threshold"
    share = share_pct(*(float(part["kernel_time_us"].sum()) for part in (below, placed)))
    return (
        f"{count(below.height)} of {count(placed.height)} operations, {percent(share)} of their "
        "time, below the threshold"
    )


def _savings(panel: Panel, rows: pl.DataFrame, columns: Columns) -> str:
    saved = rows["saved_us"].filter(rows["saved_us"] > 0)
    whole, most = (milliseconds(us / 1000) for us in (float(saved.sum()), largest(saved)))
    if saved.len() == 1:
        return f"one operation saves {whole}"
    return f"the first of {count(saved.len())} saves {most} of {whole}"


def _bars(panel: Panel, rows: pl.DataFrame, columns: Columns) -> str:
    x, y = str(panel.x), str(panel.y)
    totals = bar_totals(rows, x=x, y=y)
    name, most = totals.select(y, x).row(0)
    share = percent(share_pct(float(most), float(totals[x].sum())))
    return f"{escape(shortened(name, _NAME_LENGTH))} has {share}"


def _scatter(panel: Panel, rows: pl.DataFrame, columns: Columns) -> str:
    x, y = str(panel.x), str(panel.y)
    value, unit = rows.filter(is_point(x, y))[y].median(), columns[y].unit
    shown = percent(value) if unit == "%" else f"{decimal(value)} {unit}"  # type: ignore[arg-type]
    return f"median {shown}"
