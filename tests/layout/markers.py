"""Comments that mark items and impacts for programs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from jarvis.validation.check import Problem
from tests.layout.markdown import Part

FIGURES: dict[str, tuple[str, ...]] = {
    "p_item": ("low", "mid", "high"),
    "detail_estimate": ("low", "high"),
    "top_ops": (),
}
"""The fields of each kind of impact marker; those of ``top_ops`` are in its rows."""

_ITEM = re.compile(r"^### .*?\bP(\d+):")
_CANDIDATE = re.compile(r"<!-- reasoning-candidate tier=(\w+) rank=(\d+) -->")
_BEGIN = re.compile(r"<!-- impact-begin (.*?) ?-->")
_END = re.compile(r"<!-- impact-end -->")
_TOP_ROW = re.compile(r"<!-- top-ops-row (.*?) ?-->")


@dataclass(frozen=True, slots=True)
class Marker:
    """Fields and line of a marker."""

    number: int
    fields: dict[str, str]

    @property
    def kind(self) -> str:
        """Return the kind of item of the impact."""
        return self.fields.get("kind", "")

    def figure(self, name: str) -> float | None:
        """Return a number of the marker, None for null.

        Raises KeyError or ValueError if it is missing or not a number.
        """
        text = self.fields[name]
        return None if text == "null" else float(text)


def items(part: Part) -> list[tuple[int, int]]:
    """Yield line and number of the headings ``P1:``, ``P2:`` ..."""
    return [(line.number, int(f[1])) for line in part.prose if (f := _ITEM.match(line.text))]


def candidates(part: Part) -> list[tuple[int, str, int]]:
    """Yield line, tier and rank of the markers of details."""
    return [
        (line.number, found[1], int(found[2]))
        for line in part.prose
        for found in _CANDIDATE.finditer(line.text)
    ]


def impacts(part: Part, kind: str | None = None) -> list[Marker]:
    """Yield the impact markers, all or those of a kind."""
    found = [
        Marker(line.number, _fields(marker[1]))
        for line in part.prose
        for marker in _BEGIN.finditer(line.text)
    ]
    return [marker for marker in found if kind in (None, marker.kind)]


def top_rows(part: Part) -> list[Marker]:
    """Yield the markers of the rows of the table of top operations."""
    return [
        Marker(line.number, _fields(marker[1]))
        for line in part.prose
        for marker in _TOP_ROW.finditer(line.text)
    ]


def malformed(part: Part) -> Iterator[Problem]:
    """Yield a problem for each unpaired, unknown or incomplete impact marker."""
    open_at: int | None = None
    for line in part.prose:
        for mark in re.finditer(f"{_BEGIN.pattern}|{_END.pattern}", line.text):
            is_begin = mark[0].startswith("<!-- impact-begin")
            if is_begin == (open_at is not None):
                text = "An impact marker begins or ends without its partner."
                yield Problem(part.file, text, line.number)
            open_at = line.number if is_begin else None
    if open_at is not None:
        yield Problem(part.file, "An impact marker begins and does not end.", open_at)
    for marker in impacts(part):
        yield from _figures(part.file, marker)


def _figures(file: str, marker: Marker) -> Iterator[Problem]:
    names = FIGURES.get(marker.kind)
    if names is None:
        text = f"The marker's kind is {marker.kind!r}; {' or '.join(FIGURES)} expected."
        yield Problem(file, text, marker.number)
        return
    try:
        values = [marker.figure(name) for name in names]
    except (KeyError, ValueError):
        text = f"The marker of kind {marker.kind} has no {', '.join(names)} in numbers."
        yield Problem(file, text, marker.number)
        return
    known = [value for value in values if value is not None]
    if known and len(known) < len(values):
        text = "The marker mixes null and numbers; all or none of its figures expected."
        yield Problem(file, text, marker.number)
    elif known != sorted(known):
        text = f"The marker's figures {known} do not rise from low to high."
        yield Problem(file, text, marker.number)


def _fields(text: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+)=(\"[^\"]*\"|\S+)", text))
