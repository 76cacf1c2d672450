"""Text from a trace inside Markdown: kernel and op names can hold any character.

Templates print every string through ``escape`` unless it is ``Markdown`` already, so a name never
becomes a table cell border, a tag, a link or emphasis.
"""

import re
from collections.abc import Iterable, Sequence

from jarvis.text.format import MAX_NAME_LENGTH, UNPRINTABLE
from jarvis.text.messages import Message, Text, to_text

NAME_LENGTH = 75
"""Characters of a kernel name or of arguments that a table shows."""

_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
# A bracket is special only where a link, an image or a definition could follow from it.
_SPECIAL = re.compile(r"[\\`*<>|$~&@]|\](?=[(\[:])|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
# Addresses and the short names of icons and colors: some renderers look for them in text whose
# escapes are undone already, so that only a code span keeps them apart.
_SOUGHT_IN_TEXT = re.compile(
    r"(?<=[A-Za-z]):(?=//)|(?<=www)\.|(?<=[\w.+-])\\@(?=[\w-]+\.)"
    r"|(?<!:):(?=[a-z][\w+-]*(?:/\w+)?:(?!:))|(?<!:):(?=[a-z-]+\[)",
    re.IGNORECASE,
)
_BARE_PIPE = re.compile(r"(?<!\\)\|")


class Markdown(str):
    """Text that is Markdown already: it is printed as it is."""

    __slots__ = ()


def one_line(text: str) -> str:
    """``text`` without line breaks and control characters."""
    return UNPRINTABLE.sub(" ", text).strip()


def escape(text: str) -> Markdown:
    """``text`` so that Markdown shows it letter by letter, on one line."""
    return text if isinstance(text, Markdown) else Markdown(_escaped(text))


def _escaped(text: str) -> str:
    safe = _SPECIAL.sub(lambda match: f"\\{match[0]}", UNPRINTABLE.sub(" ", text))
    return _SOUGHT_IN_TEXT.sub(lambda match: f"`{match[0][-1]}`", safe)


def code(text: str) -> Markdown:
    """``text`` as a code span, also where it holds backticks; cut at MAX_NAME_LENGTH."""
    content = one_line(shortened(text, MAX_NAME_LENGTH)) or " "
    longest = max((len(run) for run in re.findall(r"`+", content)), default=0)
    fence = "`" * (longest + 1)
    padding = " " if longest else ""
    return Markdown(f"{fence}{padding}{content}{padding}{fence}")


def prose(text: str | Message | Text) -> Markdown:
    """A sentence with names quoted in backticks: the quotes become code spans, the rest is text."""
    text = text if isinstance(text, str) else to_text(text)
    parts = []
    end = 0
    for span in _CODE_SPAN.finditer(text):
        parts += [_escaped(text[end : span.start()]), code(span[2])]
        end = span.end()
    return Markdown("".join([*parts, _escaped(text[end:])]).strip())


def cell(text: str, length: int = NAME_LENGTH) -> Markdown:
    """A name as a code span in a table cell, cut where it is long."""
    return Markdown(_BARE_PIPE.sub(r"\\|", code(shortened(text, length))))


def shortened(text: str, length: int) -> str:
    """``text`` cut in its middle to at most ``length`` characters."""
    if len(text) <= length:
        return text
    kept = length - 1
    return f"{text[: kept - kept // 3]}…{text[-(kept // 3) :]}"


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> Markdown:
    """A table; cells are escaped unless they are Markdown, and hold no border of their own."""
    lines = [f"| {' | '.join(headers)} |", f"|{'|'.join('---' for _ in headers)}|"]
    for row in rows:
        cells = (_BARE_PIPE.sub(r"\\|", escape(cell)).strip() for cell in row)
        lines.append(f"| {' | '.join(cells)} |")
    return Markdown("\n".join(lines))


def anchor(heading: str) -> str:
    """The name under which a heading can be linked to: lower case, dashes, no punctuation."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


def block(text: str, language: str = "text") -> Markdown:
    """A code block; its text may hold fences of its own."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return Markdown(f"{fence}{language}\n{text}\n{fence}")
