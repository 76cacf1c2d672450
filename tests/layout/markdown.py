"""Line-based Markdown parser: headings, parts, tables, links, and text without quoted names."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

_FENCE = re.compile(r"^ {0,3}(`{3,})")
_HEADING = re.compile(r"^(#{1,6}) (.+)$")
_CODE_SPAN = re.compile(r"(?<![\\`])(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_CODE_MARKS = re.compile(r"(?<![\\`])(`+)(?!`) ?(.+?) ?(?<!`)\1(?!`)")
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")
_COMMENT = re.compile(r"<!--.*?-->")
_BORDER = re.compile(r"(?<!\\)\|")
_DIVIDER = re.compile(r"^\|(?: *:?-+:? *\|)+$")
_LINK = re.compile(r"(?<!\\)(!?)\[(?:\\.|[^\[\]\\])*\]\(([^)\s]+)\)")
_ANCHOR = re.compile(r"<a (?:id|name)=\"([^\"]+)\"")

MAX_CACHED = 1 << 16
"""Many lines of a run are those of another, so this many results are cached."""


@lru_cache(MAX_CACHED)
def plain(text: str) -> str:
    """Return ``text`` without code marks, escapes and comments."""
    pieces, end = [], 0
    text = _COMMENT.sub("", text)
    for span in _CODE_MARKS.finditer(text):
        pieces += [_ESCAPE.sub(r"\1", text[end : span.start()]), span[2].replace("\\|", "|")]
        end = span.end()
    return "".join([*pieces, _ESCAPE.sub(r"\1", text[end:])]).strip()


@lru_cache(MAX_CACHED)
def own_words(text: str) -> str:
    """Return ``text`` without code, comments and escapes."""
    return _ESCAPE.sub(r"\1", _without_code(_COMMENT.sub("", text)))


def _without_code(text: str) -> str:
    return _CODE_SPAN.sub("", text) if "`" in text else text


def anchor_of(heading: str) -> str:
    """Return the anchor of a heading."""
    kept = "".join(c for c in plain(heading).lower() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")


NAME_COLUMNS = frozenset({"Operation", "Args", "Kernel", "Kernel Path", "Kernel Name", "Library"})
"""Columns that quote names of the trace."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file; ``is_code`` inside a fenced block."""

    number: int
    text: str
    is_code: bool


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table: cells by column header."""

    number: int
    cells: dict[str, str]


@dataclass(frozen=True, slots=True)
class Table:
    """A table: the line of its header, the names of its columns, its rows."""

    number: int
    headers: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Part:
    """Lines of a Markdown file: the whole file or the part under one heading.

    ``title`` is the text of that heading as it is written, empty for a file; the heading's own
    line is the first of ``lines``.
    """

    file: str
    title: str
    lines: tuple[Line, ...]

    @classmethod
    def of_file(cls, file: str, text: str) -> "Part":
        """Parse a whole file; ``file`` names it in problems."""
        return cls(file, "", tuple(_lines(text)))

    @property
    def number(self) -> int:
        """Return its first line number."""
        return self.lines[0].number if self.lines else 1

    @cached_property
    def text(self) -> str:
        """Return its lines, joined."""
        return "\n".join(line.text for line in self.lines)

    @property
    def prose(self) -> Iterator[Line]:
        """Return its lines outside code blocks."""
        return (line for line in self.lines if not line.is_code)

    @cached_property
    def own_words(self) -> tuple[tuple[int, str], ...]:
        """Yield line number and words of its lines, without code and quoted columns."""
        rows = {row.number: row.cells for table in self.tables for row in table.rows}
        own = []
        for line in self.prose:
            cells = rows.get(line.number, {"": line.text})
            reported = (text for name, text in cells.items() if name not in NAME_COLUMNS)
            own.append((line.number, own_words(" | ".join(reported))))
        return tuple(own)

    def headings(self, level: int) -> list[tuple[int, str]]:
        """Yield line number and text of the headings of a level."""
        return [
            (self.lines[i].number, title) for i, depth, title in self._headings if depth == level
        ]

    @cached_property
    def _headings(self) -> list[tuple[int, int, str]]:
        """Return index of the line, level and text of each heading."""
        return [
            (i, len(found[1]), found[2].strip())
            for i, line in enumerate(self.lines)
            if line.text.startswith("#")
            and not line.is_code
            and (found := _HEADING.match(line.text))
        ]

    def parts(self, level: int) -> list["Part"]:
        """Yield the part under each heading of a level, up to the next of this level or above."""
        parts = []
        for position, (start, depth, title) in enumerate(self._headings):
            if depth == level:
                ends = (i for i, other, _ in self._headings[position + 1 :] if other <= level)
                lines = self.lines[start : next(ends, len(self.lines))]
                parts.append(Part(self.file, title, lines))
        return parts

    def part(self, title: str, level: int = 2) -> "Part | None":
        """Return the part under the heading ``title``, or None."""
        return next((part for part in self.parts(level) if plain(part.title) == title), None)

    @cached_property
    def tables(self) -> tuple[Table, ...]:
        """Return its tables."""
        found, block = [], list[Line]()
        for line in [*self.lines, Line(0, "", False)]:
            if not line.is_code and line.text.startswith("|"):
                block.append(line)
                continue
            if len(block) > 1 and _DIVIDER.match(block[1].text):
                found.append(_table(block))
            block = []
        return tuple(found)

    def table(self, *headers: str) -> Table | None:
        """Return the first table that has all these columns."""
        return next((t for t in self.tables if set(headers) <= set(t.headers)), None)

    def value(self, *labels: str) -> tuple[int, str] | None:
        """Return line and second cell of the first table row that starts with one of ``labels``."""
        for table in self.tables:
            for row in table.rows:
                first, *rest = row.cells.values()
                if plain(first) in labels and rest:
                    return row.number, rest[0]
        return None

    @property
    def links(self) -> Iterator[tuple[int, str]]:
        """Yield line and target of its links."""
        return ((number, link[2]) for number, link in self._links if not link[1])

    @property
    def images(self) -> Iterator[tuple[int, str]]:
        """Yield line and target of its images."""
        return ((number, link[2]) for number, link in self._links if link[1])

    @cached_property
    def _links(self) -> list[tuple[int, re.Match[str]]]:
        """Return line and match of its links and images."""
        return [
            (line.number, link)
            for line in self.prose
            if "](" in line.text
            for link in _LINK.finditer(_without_code(line.text))
        ]

    @cached_property
    def anchors(self) -> frozenset[str]:
        """Return the possible targets of its links."""
        headings = (anchor_of(text) for level in range(1, 7) for _, text in self.headings(level))
        return frozenset([*headings, *_ANCHOR.findall(self.text)])


def _lines(text: str) -> Iterator[Line]:
    fence = ""
    for number, line in enumerate(text.split("\n"), start=1):
        found = _FENCE.match(line)
        if fence:
            yield Line(number, line, is_code=True)
            if found and line.strip() == found[1] and len(found[1]) >= len(fence):
                fence = ""
        else:
            fence = found[1] if found else ""
            yield Line(number, line, is_code=bool(fence))


def _table(block: list[Line]) -> Table:
    headers = tuple(plain(cell) for cell in _cells(block[0].text))
    rows = (Row(b.number, dict(zip(headers, _cells(b.text), strict=False))) for b in block[2:])
    return Table(block[0].number, headers, tuple(rows))


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in _BORDER.split(line.strip())[1:-1]]
