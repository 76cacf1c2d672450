"""Bars of time, each with its value beside it, so that they need no axis."""

import polars as pl

from jarvis.charts.marks import largest
from jarvis.charts.svg.marks import LABEL_LENGTH, WIDTH, bar, drawing, element, fill, label
from jarvis.charts.waterfall import NOW, PROJECTED, SAVING

_STEP, _THICK = 28, 18
_NAMES, _VALUES = 250, 190
"""Units beside the bars: for the names on their left, and the values on their right."""

_STACKED = 40
_LEGEND_STEP, _SWATCH, _LETTER = 24, 18, 7.0
"""Units of a line of the legend, of a swatch with its room, and of a letter at most."""

_PARTS = ("categorical_0", "categorical_1", "categorical_3", "muted")
_KINDS = {NOW: "muted", SAVING: "saving", PROJECTED: "primary"}


def stacked_bar(parts: pl.DataFrame, title: str) -> str:
    """One bar of ``parts`` (``part, time_ms, text``, at most four), with a legend below."""
    whole = float(parts["time_ms"].sum()) or 1.0
    marks, x, left, top = [], 0.0, 0.0, _STACKED + 14.0
    for number, (part, time_ms, text) in enumerate(parts["part", "time_ms", "text"].iter_rows()):
        width, words = time_ms / whole * WIDTH, f"{part} {text}"
        marks.append(bar(x, 0.0, width, _STACKED, _PARTS[number], words))
        x += width
        needed = _SWATCH + len(words) * _LETTER
        if left + needed > WIDTH:
            left, top = 0.0, top + _LEGEND_STEP
        marks.append(bar(left, top, 12, 12, _PARTS[number]))
        marks.append(label(left + _SWATCH, top + 11, words))
        left += needed + _SWATCH
    return drawing(top + _LEGEND_STEP, title, marks)


def category_bars(rows: pl.DataFrame, title: str) -> str:
    """Time of each category pale, what the target would save of it strong.

    ``rows``: ``title, gpu_time_ms, saved_ms, text``, most time first.
    """
    longest = largest(rows["gpu_time_ms"]) or 1.0
    marks = []
    columns = rows["title", "gpu_time_ms", "saved_ms", "text"]
    for number, (name, time_ms, saved_ms, text) in enumerate(columns.iter_rows()):
        y = number * _STEP + (_STEP - _THICK) / 2
        width = _length(time_ms, longest)
        marks += [
            _name(name, y),
            bar(_NAMES, y, width, _THICK, "pale", f"{name}: {text}"),
            bar(_NAMES, y, _length(saved_ms or 0.0, longest), _THICK, "saving", f"{name}: {text}"),
            label(_NAMES + width + 8, y + 13, text),
        ]
    return drawing(rows.height * _STEP, title, marks)


def waterfall_bars(bars: pl.DataFrame, title: str) -> str:
    """``bars`` from top to bottom: ``label, finding, kind, low_ms, high_ms, text``, as in
    ``jarvis.charts.waterfall``."""
    longest = largest(bars["high_ms"]) or 1.0
    marks = []
    for number, row in enumerate(bars.iter_rows(named=True)):
        y = number * _STEP + (_STEP - _THICK) / 2
        low, high = _length(row["low_ms"], longest), _length(row["high_ms"], longest)
        marks += [
            _name(row["label"], y),
            bar(
                _NAMES + low,
                y,
                max(high - low, 1.0),
                _THICK,
                _KINDS[row["kind"]],
                f"{row['finding']}: {row['text']}",
            ),
            label(_NAMES + high + 8, y + 13, row["text"]),
        ]
        if number + 1 < bars.height and row["kind"] != NOW:
            marks.append(_joint(_NAMES + low, y + _THICK))
    return drawing(bars.height * _STEP, title, marks)


def _length(time_ms: float, longest_ms: float) -> float:
    return time_ms / longest_ms * (WIDTH - _NAMES - _VALUES)


def _name(name: str, y: float) -> str:
    cut = name if len(name) <= LABEL_LENGTH else f"{name[: LABEL_LENGTH - 1]}…"
    return label(_NAMES - 10, y + 13, cut, "end")


def _joint(x: float, y: float) -> str:
    """A thin line from a saving's end to the bar below, which begins there."""
    return element("rect", x=x, y=y, width=1, height=_STEP - _THICK, style=fill("muted"))
