"""Marks of operations that can be clicked, with the selected one outlined."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from jarvis.charts.marks import NO_NAME, Drawing, named
from jarvis.charts.palette import Palette
from jarvis.charts.rooflines import PICKED
from jarvis.schemas.names import C

SELECTED = "selected"
"""Name of the dataset with the marks of the selected operation."""

_RING_PX2 = 650
_WIDTH = 2.5
_OUTLINES: Mapping[str, Mapping[str, Any]] = {
    "point": {"type": "point", "filled": False, "size": _RING_PX2, "clip": True},
    "bar": {"type": "bar", "fillOpacity": 0, "height": {"band": 0.86}},
}
_KEPT = ("x", "y", "tooltip", "detail")
_INNER = ("mark", "encoding")


def selectable(drawing: Drawing, uid: int | None, palette: Palette) -> Drawing:
    """Return a drawing whose marks can be clicked, and those of an operation have an outline, if
    there is one for marks of this kind.

    Its first layer, or only one, draws a dataset with a ``uid`` for each mark. The specification
    does not depend on ``uid``, so that browsers change only the outline.
    """
    spec, layers = _layers(drawing)
    first = dict(layers[0])
    if not any(param.get("name") == PICKED for param in spec.get("params", ())):
        pick = {"name": PICKED, "select": {"type": "point", "fields": [str(C.uid)]}}
        first["params"] = [*first.get("params", ()), pick]
    picked = replace(drawing, spec={**spec, "layer": [first, *layers[1:]]})
    return _outlined(picked, None if uid is None else pl.col(C.uid) == uid, palette)


def outlined_bar(
    drawing: Drawing, rows: pl.DataFrame, uid: int | None, y: str, palette: Palette
) -> Drawing:
    """Return a chart of ``bars`` in which that with an operation of ``rows`` has an outline."""
    spec, layers = _layers(drawing)
    first = dict(layers[0])
    if "field" in first["encoding"]["color"]:  # parts of the outline are stacked, too
        detail = {"field": first["encoding"]["color"]["field"], "type": "nominal"}
        first["encoding"] = {**first["encoding"], "detail": detail}
    bars = replace(drawing, spec={**spec, "layer": [first, *layers[1:]]})
    if uid is None:
        return _outlined(bars, None, palette)
    own = rows.filter(pl.col(C.uid) == uid).select(named(y, NO_NAME)).to_series()
    return _outlined(bars, pl.col(y).is_in(own.to_list()), palette)


def _layers(drawing: Drawing) -> tuple[dict[str, Any], list[Mapping[str, Any]]]:
    """Return the specification without its layers, and these; a single one if it has none."""
    spec = dict(drawing.spec)
    return spec, spec.pop("layer", None) or [{name: spec.pop(name) for name in _INNER}]


def _outlined(drawing: Drawing, is_own: pl.Expr | None, palette: Palette) -> Drawing:
    """Return a layered drawing with an outline of the marks of its first layer that ``is_own``;
    of none if that is None."""
    first = drawing.spec["layer"][0]
    kind = first["mark"]["type"]
    if kind not in _OUTLINES:
        return drawing
    data = first.get("data") or drawing.spec["data"]
    encoding = first.get("encoding", {})
    outline = {
        "data": {"name": SELECTED},
        "mark": {
            **_OUTLINES[kind],
            "stroke": palette.text,
            "strokeWidth": _WIDTH,
            "strokeOpacity": 1,
        },
        "encoding": {name: encoding[name] for name in _KEPT if name in encoding},
    }
    marks = drawing.datasets[data["name"]]
    own = marks.head(0) if is_own is None else marks.filter(is_own)
    spec = {**drawing.spec, "layer": [*drawing.spec["layer"], outline]}
    return replace(drawing, spec=spec, datasets={**drawing.datasets, SELECTED: own})
