"""Write the generated parts of benchmarks/README.md."""

from collections.abc import Sequence
from pathlib import Path


def table(words: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table: first and last column left-aligned, the others right-aligned."""
    aligned = ("---", *["---:"] * (len(words) - 2), "---")
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (words, aligned, *rows))


def write_part(page: Path, name: str, part: str) -> None:
    """Replace the text between the marks of this name.

    Raises ValueError if the page has no such marks.
    """
    begin_mark, end_mark = (f"<!-- {name}: {place} -->" for place in ("begin", "end"))
    before, begin, rest = page.read_text(encoding="utf-8").partition(begin_mark)
    _, end, after = rest.partition(end_mark)
    if not begin or not end:
        raise ValueError(f"{page} has no part between {begin_mark} and {end_mark}")
    page.write_text(f"{before}{begin_mark}\n{part}\n{end_mark}{after}", encoding="utf-8")
