"""Marks of operations that can be clicked, with the selected one outlined."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from jarvis.charts.marks import Drawing
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
_KEPT = ("x", "y", "tooltip")
_INNER = ("mark", "encoding")


def selectable(drawing: Drawing, uid: int | None, palette: Palette) -> Drawing:
    """Return a drawing whose marks can be clicked, and those of an operation have an outline, if
    there is one for marks of this kind.

    Its first layer, or only one, draws a dataset with a ``uid`` for each mark. The specification
    does not depend on ``uid``, so that browsers change only the outline.
    """
    spec = dict(drawing.spec)
    layers = spec.pop("layer", None) or [{name: spec.pop(name) for name in _INNER}]
    data = layers[0].get("data") or spec["data"]
    marks = drawing.datasets[data["name"]]
    first = dict(layers[0])
    if not any(param.get("name") == PICKED for param in spec.get("params", ())):
        pick = {"name": PICKED, "select": {"type": "point", "fields": [str(C.uid)]}}
        first["params"] = [*first.get("params", ()), pick]
    kind = first["mark"]["type"]
    if kind not in _OUTLINES:
        return Drawing({**spec, "layer": [first, *layers[1:]]}, drawing.datasets)
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
    spec["layer"] = [first, *layers[1:], outline]
    own = marks.filter(pl.col(C.uid) == uid) if uid is not None else marks.clear()
    return Drawing(spec, {**drawing.datasets, SELECTED: own})
