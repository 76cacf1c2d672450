"""Bars of times, each with the part that could be saved."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import altair as alt
import polars as pl

from jarvis.charts.marks import (
    BAR_PX,
    LINEAR,
    MAX_CACHED_SPECS,
    MS_DECIMALS,
    TOP_BARS,
    Columns,
    Drawing,
    Specification,
    Tip,
    bars_height,
    decimals_of,
    decimals_showing,
    in_readable_units,
    largest,
    length_scale,
    plain_axis,
    rank_axis,
    specification,
    tips,
    tooltip,
    unique_labels,
)
from jarvis.charts.palette import Palette
from jarvis.core.expressions import rows_where
from jarvis.schemas.names import C
from jarvis.text.shapes import call_shapes

_WITH_NAME_PX = 36
"""Height in pixels of a bar with its name above it, and the space above that."""

_NAMED_BAR: Mapping[str, Any] = {"height": 14, "yOffset": 9}
_NAME_Y, _VALUE_Y = -10, 9
"""Bar, name and value within that height."""

_NAME_LENGTH = 56
"""Maximum length of a name above a bar with its shapes: the width of half a page of 1280 pixels."""

_GAP = "\N{EN SPACE}"
"""Between a name, which can end with a number, and its shapes; browsers draw two spaces as one."""

_VALUE_PX, _TEXT_PX = 80, 150
"""Widths in pixels of the texts behind a bar: both values, and a value with its saving in words."""


def savings(
    rows: pl.DataFrame, columns: Columns, palette: Palette, limit: int = TOP_BARS
) -> Drawing:
    """Draw the operations with the largest savings at the target: kernel time pale, saving strong,
    both as a label.

    Args:
        rows: Operations from ``with_short_names`` with ``saved_us`` and the columns of the tooltip.
        columns: Labels, units and formats of the columns.
        palette: Colors of the theme.
        limit: Maximum number of bars.
    """
    names = (C.name, "arguments", C.operation_count, C.kernel_time_us, C.saved_us, C.pct_roofline)
    saved_us = rows[C.saved_us]
    needed = rows[[C.uid, C.params, "short_name", *names]]
    top = rows_where(needed, (saved_us > 0) & (saved_us >= saved_us.top_k(limit).min()))
    top = top.sort(C.saved_us, descending=True, maintain_order=True).head(limit)
    given = zip(top["arguments"], top[C.params], strict=True)
    shapes = pl.Series([call_shapes(*pair) for pair in given], dtype=pl.String)
    label = pl.concat_str("short_name", pl.lit(shapes), separator=_GAP, ignore_nulls=True)
    top = unique_labels(top, label, _NAME_LENGTH).drop(C.params, "short_name")
    scaled, known = in_readable_units(
        top, columns, (C.kernel_time_us, C.saved_us), largest(top[C.kernel_time_us])
    )
    shown = pl.concat([scaled[C.kernel_time_us], scaled[C.saved_us]])
    decimals = decimals_showing(shown, decimals_of(shown), MS_DECIMALS)
    texts = [
        f"{saved:,.{decimals}f} of {time:,.{decimals}f}"
        for time, saved in scaled.select(C.kernel_time_us, C.saved_us).iter_rows()
    ]
    return _over(
        scaled.with_columns(text=pl.Series(texts, dtype=pl.String)),
        C.kernel_time_us,
        C.saved_us,
        names,
        known,
        palette,
        _VALUE_PX,
        text="text:N",
        is_above=True,
    )


def savings_height(rows: pl.DataFrame) -> int:
    """Return the height in pixels of the chart of ``savings``."""
    count = int((rows[C.saved_us] > 0).sum())
    return bars_height(min(count, TOP_BARS), _WITH_NAME_PX)


def categories(rows: pl.DataFrame, columns: Columns, palette: Palette) -> Drawing:
    """Draw the time of each category (pale) and its saving at the target (strong).

    ``rows``: ``title``, ``gpu_time_ms``, ``saved_ms``, longest first, and optionally ``text``,
    which is shown behind each bar instead of its time.
    """
    names = (C.title, "gpu_time_ms", "saved_ms")
    behind = [name for name in ("text", C.category) if name in rows.columns]
    labeled = rows.select(*names, *behind, label=C.title)
    if "text" not in behind:
        return _over(labeled, "gpu_time_ms", "saved_ms", names, columns, palette)
    return _over(
        labeled, "gpu_time_ms", "saved_ms", names, columns, palette, _TEXT_PX, text="text:N"
    )


def _over(
    frame: pl.DataFrame,
    whole: str,
    part: str,
    names: Sequence[str],
    columns: Columns,
    palette: Palette,
    text_px: int = 0,
    *,
    text: str | None = None,
    is_above: bool = False,
) -> Drawing:
    """Draw two overlaid bars for each row (``part`` over ``whole``), in the order of the rows.

    The label behind a bar, of up to ``text_px``, is the column ``text``, or else ``whole``.
    ``is_above``: names are above the bars, not left of them.
    """
    lines = tips(columns, names, frame)
    scale = largest(frame[whole]), text_px
    height = bars_height(frame.height, _WITH_NAME_PX if is_above else BAR_PX)
    unit = columns[whole].unit
    spec = _over_spec(whole, part, text, unit, scale, height, lines, palette, is_above=is_above)
    return Drawing(spec, {"bars": frame.with_row_index("rank")})


@lru_cache(maxsize=MAX_CACHED_SPECS)
def _over_spec(
    whole: str,
    part: str,
    text: str | None,
    unit: str | None,
    scale: tuple[float, int],
    height: int,
    lines: tuple[Tip, ...],
    palette: Palette,
    *,
    is_above: bool,
) -> Specification:
    base = alt.Chart(alt.NamedData("bars")).encode(
        y=rank_axis(has_labels=not is_above), tooltip=tooltip(lines)
    )
    x = alt.X(f"{whole}:Q", axis=plain_axis(unit, format=LINEAR), scale=length_scale(*scale))
    bar: Mapping[str, Any] = _NAMED_BAR if is_above else {"height": {"band": 0.72}}
    written: Mapping[str, Any] = {"align": "left", "color": palette.text, "fontSize": 11}
    pale = base.mark_bar(color=palette.pale, **bar).encode(x=x)
    strong = base.mark_bar(color=palette.saving, **bar).encode(x=f"{part}:Q")
    value = base.mark_text(dx=5, dy=_VALUE_Y if is_above else 0, **written).encode(
        x=f"{whole}:Q", text=text or alt.Text(f"{whole}:Q", format=",.3r")
    )
    names = [base.mark_text(dy=_NAME_Y, **written).encode(x=alt.value(0), text="label:N")]
    layers = [pale, strong, value, *(names if is_above else [])]
    return specification(alt.LayerChart(layer=layers, height=height))
