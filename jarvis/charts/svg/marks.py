"""The marks that all drawings are made of."""

import re
from collections.abc import Iterable
from dataclasses import fields
from html import escape

from jarvis.charts.palette import Palette

WIDTH = 960
"""Units of a drawing's width; the page scales it."""

LABEL_LENGTH = 34
"""Characters of a name beside a bar."""

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]+")


def variables(palette: Palette) -> str:
    """CSS declarations of the colours: ``--primary:#0072B2;…``, ``--categorical-0`` and so on."""
    named = {f.name: getattr(palette, f.name) for f in fields(palette)}
    plain = {name: value for name, value in named.items() if isinstance(value, str)}
    plain |= {f"categorical_{n}": colour for n, colour in enumerate(palette.categorical)}
    return "".join(f"--{name.replace('_', '-')}:{colour};" for name, colour in plain.items())


def element(tag: str, content: str = "", **attributes: object) -> str:
    """One element; ``_`` in names stands for ``-``, ``class_`` for ``class``; values are escaped,
    ``content`` is markup already."""
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(_value(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    return f"<{tag}{written}>{content}</{tag}>" if content else f"<{tag}{written}/>"


def drawing(height: float, label: str, parts: Iterable[str]) -> str:
    """A whole drawing; ``label`` says in words what it shows."""
    return element(
        "svg",
        "".join(parts),
        viewBox=f"0 0 {WIDTH} {_value(height)}",
        role="img",
        aria_label=readable(label),
    )


def bar(x: float, y: float, width: float, height: float, colour: str, title: str = "") -> str:
    """A rectangle in a colour of the palette; ``title`` is shown on hover."""
    box = {"x": x, "y": y, "width": max(width, 0.0), "height": height}
    return element("rect", titled(title), style=fill(colour), **box)


def label(x: float, y: float, words: str, anchor: str = "start", colour: str = "text") -> str:
    """A line of text; ``anchor`` says which of its ends stands at ``x``."""
    return element(
        "text", escape(readable(words)), x=x, y=y, text_anchor=anchor, style=fill(colour)
    )


def titled(title: str) -> str:
    """What a mark says on hover."""
    return element("title", escape(readable(title))) if title else ""


def fill(colour: str) -> str:
    """The style that fills with a colour of the palette."""
    return f"fill:var(--{colour.replace('_', '-')})"


def readable(text: str) -> str:
    """``text`` without the characters that XML forbids."""
    return _UNPRINTABLE.sub(" ", text)


def _value(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
