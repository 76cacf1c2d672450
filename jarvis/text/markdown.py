"""Escape text for Markdown: kernel and op names can contain any character.

Templates pass every string through ``escape`` unless it is ``Markdown`` already, so that no name
becomes a cell border, a tag, a link or emphasis.
"""

import re
from collections.abc import Iterable, Sequence

from jarvis.text.format import MAX_NAME_LENGTH, UNPRINTABLE
from jarvis.text.messages import Message, Text, to_text

NAME_LENGTH = 75
"""Maximum length of a kernel name or of arguments in a table."""

_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
# A bracket is special only where a link, an image or a definition could follow from it.
_SPECIAL = re.compile(r"[\\`*<>|$~&@]|\](?=[(\[:])|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
# URLs, email addresses and shortcodes of icons and colors: some renderers search for them after
# unescaping, so that only a code span prevents a match.
_SOUGHT_IN_TEXT = re.compile(
    r"(?<=[A-Za-z]):(?=//)|(?<=www)\.|(?<=[\w.+-])\\@(?=[\w-]+\.)"
    r"|(?<!:):(?=[a-z][\w+-]*(?:/\w+)?:(?!:))|(?<!:):(?=[a-z-]+\[)",
    re.IGNORECASE,
)
_NAMED_TITLE = re.compile(r"(?P<what>[^:`]+): (?P<name>`.+)")
_BARE_PIPE = re.compile(r"(?<!\\)\|")


class Markdown(str):
    """Text that is Markdown already and is not escaped."""

    __slots__ = ()


def one_line(text: str) -> str:
    """Return ``text`` without line breaks and control characters."""
    return UNPRINTABLE.sub(" ", text).strip()


def escape(text: str) -> Markdown:
    """Return ``text`` escaped, on one line, so that Markdown renders it literally."""
    return text if isinstance(text, Markdown) else Markdown(_escaped(text))


def _escaped(text: str) -> str:
    safe = _SPECIAL.sub(lambda match: f"\\{match[0]}", UNPRINTABLE.sub(" ", text))
    if not (":" in safe or "@" in safe or "www" in safe.lower()):
        return safe  # most texts: they are spared a slow search
    return _SOUGHT_IN_TEXT.sub(lambda match: f"`{match[0][-1]}`", safe)


def escape_images(text: str) -> Markdown:
    """Return the Markdown of a user with its images escaped, which any server could provide."""
    return Markdown(text.replace("![", r"!\["))


def code(text: str) -> Markdown:
    """Return ``text`` as a code span, even with backticks in it; cut at MAX_NAME_LENGTH."""
    content = one_line(shortened(text, MAX_NAME_LENGTH)) or " "
    longest = max((len(run) for run in re.findall(r"`+", content)), default=0)
    fence = "`" * (longest + 1)
    padding = " " if longest else ""
    return Markdown(f"{fence}{padding}{content}{padding}{fence}")


def prose(text: str | Message | Text) -> Markdown:
    """Return a sentence as Markdown: names in backticks become code spans, the rest is escaped."""
    text = text if isinstance(text, str) else to_text(text)
    parts = []
    end = 0
    for span in _CODE_SPAN.finditer(text):
        parts += [_escaped(text[end : span.start()]), code(span[2])]
        end = span.end()
    return Markdown("".join([*parts, _escaped(text[end:])]).strip())


def cell(text: str, length: int = NAME_LENGTH) -> Markdown:
    """Return a name as a code span for a table cell, shortened to ``length`` characters."""
    return Markdown(_BARE_PIPE.sub(r"\\|", code(shortened(text, length))))


def shortened(text: str, length: int) -> str:
    """Return ``text`` shortened in its middle to at most ``length`` characters."""
    if len(text) <= length:
        return text
    rest = length - 1
    return f"{text[: rest - rest // 3]}…{text[-(rest // 3) :]}"


def short_line(text: str, length: int = 200) -> str:
    """Return an untrusted text on one line, shortened in its middle to ``length`` characters."""
    return shortened(one_line(text), length)


def name_first(title: str) -> str:
    """Return a title whose name follows a colon with the name at the beginning, so that a column
    without room for all of it has the name."""
    found = _NAMED_TITLE.fullmatch(title)
    if found is None:
        return title
    what = found["what"]
    return f"{found['name']}: {what if what[:2].isupper() else f'{what[0].lower()}{what[1:]}'}"


def row_title(title: str) -> str:
    """Return a title for the row of a table, which shows plain text."""
    return name_first(title).replace("`", "").replace("aten::", "")


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> Markdown:
    """Return a table; cells are escaped unless they are Markdown, pipes always."""
    lines = [f"| {' | '.join(headers)} |", f"|{'|'.join('---' for _ in headers)}|"]
    for row in rows:
        cells = (_BARE_PIPE.sub(r"\\|", escape(cell)).strip() for cell in row)
        lines.append(f"| {' | '.join(cells)} |")
    return Markdown("\n".join(lines))


def anchor(heading: str) -> str:
    """Return the anchor of a heading: lower case, dashes, no punctuation."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def block(text: str, language: str = "text") -> Markdown:
    """Return a code block; the text may contain fences."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return Markdown(f"{fence}{language}\n{text}\n{fence}")


def plain_text(text: str) -> str:
    """Return the lines of a user's text without characters that hide or reorder it."""
    return "\n".join(map(one_line, text.splitlines()))


def plain_block(text: str) -> Markdown:
    """Return the text of a user as a code block."""
    return block(plain_text(text))
