"""Charts as SVG, for documents that are read without a server, a script or a network.

vl-convert renders them in a process of its own: it holds Python's lock while it draws, ends its
process at some characters, and its engine holds 100 MB that nothing else needs. Colors are CSS
variables named after the fields of ``Palette`` (``variables``), so that one image follows the light
and the dark theme of its reader and paper.
"""

import json
import math
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any
from xml.etree import ElementTree

import altair as alt

from jarvis.charts.drawing import Drawing
from jarvis.charts.palette import LIGHT, Palette
from jarvis.core.errors import JarvisError
from jarvis.text.format import UNPRINTABLE

Chart = Drawing | alt.Chart | alt.LayerChart

WIDTH = 880
"""Units of an image's width; the page scales it."""

TIMEOUT_S = 120.0

_PROGRAM = """
import json, sys, vl_convert
json.dump([vl_convert.vegalite_to_svg(spec) for spec in json.load(sys.stdin)], sys.stdout)
"""

_UNDRAWABLE = re.compile("[\ufffe\uffff\U00010000-\U0010ffff]")
"""Two that XML forbids, at which vl-convert ends its process, as at control characters; and those
of two code units, at which it fails where it cuts a text between them."""

_BETWEEN = " · "
"""Stands between the lines of a description."""

_DECIMALS = re.compile(r"(\.\d\d)\d+")
_FRAMES = ("background", "foreground")
"""Classes of the rectangles of a group, which have no color here."""

_ATTRIBUTES = (
    *("clip-path", "d", "fill", "fill-opacity", "font-size", "font-weight", "height", "id"),
    *("opacity", "stroke", "stroke-dasharray", "stroke-width", "text-anchor", "transform"),
    *("viewBox", "width", "x", "x2", "y", "y2"),
)
"""Those that an image needs."""

_COLORS = tuple(f.name for f in fields(Palette) if isinstance(getattr(LIGHT, f.name), str))


class ChartError(JarvisError):
    """The charts of a document cannot be drawn."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The charts could not be drawn ({reason}). Choose a report without charts, such as "
            "fair.md, and report this to those who maintain Jarvis."
        )


def _variable(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def variables(palette: Palette) -> str:
    """Return CSS declarations of the colors: ``--primary:#0072B2;…``, ``--categorical-0:…``."""
    colors = {name: getattr(palette, name) for name in _COLORS}
    colors |= {f"categorical_{n}": color for n, color in enumerate(palette.categorical)}
    return "".join(f"{_variable(name)}:{color};" for name, color in colors.items())


def _in_variables() -> Palette:
    named: dict[str, Any] = {name: f"var({_variable(name)})" for name in _COLORS}
    named["categorical"] = tuple(f"var(--categorical-{n})" for n in range(len(LIGHT.categorical)))
    return replace(LIGHT, **named)


CSS = _in_variables()
"""The palette of charts for ``to_svg``."""

_CONFIG = {
    # It comes with vl-convert, so that every machine measures a text alike.
    "font": "Liberation Sans",
    "view": {"stroke": None},
    "axis": {
        "aria": False,
        "labelPadding": 6,
        "gridColor": CSS.border,
        "labelColor": CSS.muted,
        "labelFontSize": 12,
        "titleColor": CSS.text,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
    },
    "legend": {"aria": False, "labelColor": CSS.text},
}


def to_svg(charts: Sequence[tuple[Chart, str]]) -> list[str]:
    """Return an SVG element for each chart, given with the words that say what it shows.

    The elements can stand in one document: no two have an id in common. Raise ChartError where one
    cannot be drawn.
    """
    if not charts:
        return []
    images = _rendered([_specification(chart) for chart, _ in charts])
    return [
        _element(image, label, f"clip-{number}")
        for number, (image, (_, label)) in enumerate(zip(images, charts, strict=True))
    ]


def _rendered(specs: list[dict[str, Any]]) -> list[str]:
    command, text = [sys.executable, "-P", "-c", _PROGRAM], json.dumps(specs, allow_nan=False)
    try:
        done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise ChartError(f"nothing came in {TIMEOUT_S:g} s") from error
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise ChartError(last[:200] or f"exit status {done.returncode}")
    images: list[str] = json.loads(done.stdout)
    return images


def _specification(chart: Chart) -> dict[str, Any]:
    """The chart as Vega-Lite, in the width and the colors of a document."""
    spec = _drawable(chart.to_dict())
    if "layer" in spec:
        spec["layer"] = [_described(layer) for layer in spec["layer"]]
    return {
        **_described(spec),
        "width": WIDTH,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "background": None,
        "config": _CONFIG,
    }


def _described(unit: dict[str, Any]) -> dict[str, Any]:
    """A layer whose marks are described by what their tooltip says, as an image has no tooltips."""
    lines = unit.get("encoding", {}).get("tooltip")
    if lines:
        words = {"value": {"expr": " + ".join(map(_line, lines))}}
        return {**unit, "encoding": {**unit["encoding"], "description": words}}
    return {**unit, "mark": {**unit["mark"], "aria": False}} if "mark" in unit else unit


def _line(tip: Mapping[str, Any]) -> str:
    """A line of a tooltip as a Vega expression; empty where the mark has no value for it."""
    value = f"datum[{json.dumps(tip['field'])}]"
    text = f"format({value}, {json.dumps(tip['format'])})" if "format" in tip else value
    before, after = json.dumps(f"{tip['title']}: "), json.dumps(_BETWEEN)
    return f"(isValid({value}) ? {before} + {text} + {after} : '')"


def _drawable(value: Any) -> Any:
    """A copy of a part of a specification without what ends or misleads the renderer."""
    if isinstance(value, str):
        return _UNDRAWABLE.sub("\ufffd", UNPRINTABLE.sub(" ", value))
    if isinstance(value, Mapping):
        return {_drawable(key): _drawable(part) for key, part in value.items()}
    if isinstance(value, Iterable):
        return [_drawable(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _element(image: str, label: str, clip: str) -> str:
    root = ElementTree.fromstring(image)
    found = (part.attrib["id"] for part in root.iter() if "id" in part.attrib)
    _clean(root, {place: f"{clip}-{number}" for number, place in enumerate(found)})
    for side in ("width", "height"):
        del root.attrib[side]
    root.attrib |= {"role": "img", "aria-label": _drawable(label)}
    return ElementTree.tostring(root, encoding="unicode")


def _clean(part: ElementTree.Element, ids: Mapping[str, str]) -> None:
    """Leave what is seen, with the description of a mark as its title."""
    part.tag = part.tag.rpartition("}")[2]  # a page knows the elements without their namespace
    description = part.get("aria-label", "").removesuffix(_BETWEEN)
    attributes = {n: _DECIMALS.sub(r"\1", v) for n, v in part.items() if n in _ATTRIBUTES}
    if place := attributes.get("id"):
        attributes["id"] = ids[place]
    if place := attributes.get("clip-path"):
        attributes["clip-path"] = f"url(#{ids[place[len('url(#') : -1]]})"
    part.attrib = attributes
    part[:] = [child for child in part if child.get("class") not in _FRAMES]
    for child in part:
        _clean(child, ids)
    if description:
        title = ElementTree.Element("title")
        title.text = description
        part.insert(0, title)
