"""Charts as SVG, for self-contained documents.

vl-convert renders them in a separate process: it holds the GIL while it renders, aborts its process
on some characters, and its engine uses 100 MB of memory. Colors are CSS variables named after the
fields of ``Palette`` (``variables``), so that an image follows the theme of its page or paper.
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

from jarvis.charts.marks import Drawing, text_colors
from jarvis.charts.palette import LIGHT, Palette
from jarvis.core.errors import JarvisError
from jarvis.text.format import UNPRINTABLE

Chart = Drawing | alt.Chart | alt.LayerChart

WIDTH = 880
"""Width of an image in SVG units; the page scales it."""

TIMEOUT_S = 120.0

_PROGRAM = """
import json, sys, vl_convert
json.dump([vl_convert.vegalite_to_svg(spec) for spec in json.load(sys.stdin)], sys.stdout)
"""

_UNRENDERABLE = re.compile("[\ufffe\uffff\U00010000-\U0010ffff]")
"""Characters that vl-convert cannot render: two that XML forbids, on which it aborts its process as
on control characters, and those outside the BMP, on which it fails if it truncates a text between
the surrogates."""

_SEPARATOR = " · "
"""Separates the lines of a description."""

_DECIMALS = re.compile(r"(\.\d\d)\d+")
_FRAMES = ("background", "foreground")
"""Classes of the rectangles of a group, which have no color and are removed."""

_ATTRIBUTES = (
    *("clip-path", "d", "fill", "fill-opacity", "font-size", "font-weight", "height", "id"),
    *("opacity", "stroke", "stroke-dasharray", "stroke-width", "text-anchor", "transform"),
    *("viewBox", "width", "x", "x2", "y", "y2"),
)
"""SVG attributes that are preserved."""

_COLORS = tuple(f.name for f in fields(Palette) if isinstance(getattr(LIGHT, f.name), str))


class ChartError(JarvisError):
    """The charts of a document cannot be rendered."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The charts could not be drawn ({reason}). Choose a report without charts, such as "
            "fair.md, and report this to the maintainers of Jarvis."
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

_TEXT_COLORS = text_colors(CSS)
_CONFIG = {
    # Bundled with vl-convert, so that texts have the same size on every machine.
    "font": "Liberation Sans",
    "view": {"stroke": None},
    "axis": {
        **_TEXT_COLORS["axis"],
        "aria": False,
        "labelPadding": 6,
        "gridColor": CSS.border,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
    },
    "legend": {**_TEXT_COLORS["legend"], "aria": False},
}


def to_svg(charts: Sequence[tuple[Chart, str]]) -> list[str]:
    """Return an SVG element for each chart.

    Args:
        charts: Pairs of chart and accessible label.

    Returns:
        The elements; their ids are unique within one document.

    Raises:
        ChartError: A chart cannot be rendered.
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
        raise ChartError(f"no result after {TIMEOUT_S:g} s") from error
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise ChartError(last[:200] or f"exit status {done.returncode}")
    images: list[str] = json.loads(done.stdout)
    return images


def _specification(chart: Chart) -> dict[str, Any]:
    """Return the chart as Vega-Lite with the width and colors of a document."""
    spec = _sanitized(chart.to_dict())
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
    """Return a layer with its marks' tooltips as descriptions, as an image has no tooltips."""
    lines = unit.get("encoding", {}).get("tooltip")
    if lines:
        words = {"value": {"expr": " + ".join(map(_line, lines))}}
        return {**unit, "encoding": {**unit["encoding"], "description": words}}
    return {**unit, "mark": {**unit["mark"], "aria": False}} if "mark" in unit else unit


def _line(tip: Mapping[str, Any]) -> str:
    """Return a Vega expression of a tooltip line; empty for marks without a value."""
    value = f"datum[{json.dumps(tip['field'])}]"
    text = f"format({value}, {json.dumps(tip['format'])})" if "format" in tip else value
    before, after = json.dumps(f"{tip['title']}: "), json.dumps(_SEPARATOR)
    return f"(isValid({value}) ? {before} + {text} + {after} : '')"


def _sanitized(value: Any) -> Any:
    """Return a copy of a part of a specification without characters or numbers that vl-convert
    cannot render."""
    if isinstance(value, str):
        return _UNRENDERABLE.sub("\ufffd", UNPRINTABLE.sub(" ", value))
    if isinstance(value, Mapping):
        return {_sanitized(key): _sanitized(part) for key, part in value.items()}
    if isinstance(value, Iterable):
        return [_sanitized(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _element(image: str, label: str, clip: str) -> str:
    root = ElementTree.fromstring(image)
    ids = (part.attrib["id"] for part in root.iter() if "id" in part.attrib)
    _clean(root, {old: f"{clip}-{number}" for number, old in enumerate(ids)})
    for side in ("width", "height"):
        del root.attrib[side]
    root.attrib |= {"role": "img", "aria-label": _sanitized(label)}
    return ElementTree.tostring(root, encoding="unicode")


def _clean(part: ElementTree.Element, ids: Mapping[str, str]) -> None:
    """Remove invisible parts, and make the description of each mark its title."""
    part.tag = part.tag.rpartition("}")[2]  # HTML has no namespaces in element names
    description = part.get("aria-label", "").removesuffix(_SEPARATOR)
    attributes = {n: _DECIMALS.sub(r"\1", v) for n, v in part.items() if n in _ATTRIBUTES}
    if old := attributes.get("id"):
        attributes["id"] = ids[old]
    if url := attributes.get("clip-path"):
        attributes["clip-path"] = f"url(#{ids[url[len('url(#') : -1]]})"
    part.attrib = attributes
    part[:] = [child for child in part if child.get("class") not in _FRAMES]
    for child in part:
        _clean(child, ids)
    if description:
        title = ElementTree.Element("title")
        title.text = description
        part.insert(0, title)
