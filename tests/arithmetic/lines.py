"""Lines of reports: their texts are those of the data, and no number is beside them."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from tests.arithmetic.names import name_problems
from tests.arithmetic.printed import COMMENT, QUOTED, SHAPE, numbers
from tests.arithmetic.rendered import printed
from tests.arithmetic.units import Facts

LINES: tuple[tuple[str, tuple[str | float, ...]], ...] = (
    (
        r"The heaviest row reaches .* FLOPS/Byte",
        ("heaviest_pct", "listed_peak_tflops|listed_peak_tb_per_s", "listed_flops_per_byte"),
    ),
    (
        r"^Idle time is graded",
        (20.0, "short_kernels", "kernel_count", "short_pct", 0.01, "mean_kernel_ms"),
    ),
    (r"^The longest gap is ", ("longest_of_all_ms",)),
    (r"^- \*\*Count\*\*: ", ("copies",)),
    (r"^- \*\*Total Time\*\*: ", ("copy_ms", "copy_of_total_pct", "exposed_copy_ms")),
    (r"^- \*\*Exposed Communication Time\*\*: ", ("exposed_comm_ms", "exposed_comm_pct")),
    (r"^- \*\*Total Communication Time\*\*: ", ("comm_ms",)),
    (r"^- \*\*Overlap Ratio\*\*: —", (70.0,)),
    (r"^- \*\*Overlap Ratio\*\*: ", ("overlap_pct", 70.0)),
    (r"^- \*\*Impact\*\*: GPU compute blocked", ("exposed_comm_ms",)),
    (
        r"^- \*\*Impact\*\*: .* overlaps with compute",
        ("overlap_pct", "wanted_ms", "free_compute_ms"),
    ),
    (r"^- \*\*Impact\*\*: Less than ", (0.1,)),
)
"""Lines whose numbers are facts, or documented thresholds, in this order."""

FIELDS = {
    "- **Issue:** ": "issue",
    "   - Evidence: ": "issue",
    "- **Algorithmic:** ": "algorithmic",
    "- **Kernel:** ": "kernel",
}
"""Lines that hold one text of a finding and nothing else, by their beginning."""

LEADS = {
    "- **Issue**: ": "issue",
    "- **Action A**: ": "algorithmic",
    "- **Action B**: ": "kernel",
}
"""Lines of cards: the first clauses of one text of a finding, or a reference to another card."""

AS_FOR = re.compile(r"As for P(\d+)\.")

STRUCTURE = re.compile(r"^(?:#+ )?\d+\. |^#+ (?:\S+ )?P\d+[:.] ")


def field_problems(line: str, finding: dict[str, Any]) -> Iterator[str]:
    """A line that should hold one text of its finding, and holds another."""
    for label, field in FIELDS.items():
        if line.startswith(label) and line != f"{label}{printed(finding[field])}":
            yield f"this is not the {field}: {finding[field]}"


def lead_problems(line: str, finding: dict[str, Any], ordered: list[Any]) -> Iterator[str]:
    """A line of a card that is not the beginning of its text, or refers to a card without it."""
    label = next(label for label in LEADS if line.startswith(label))
    text = line.removeprefix(label)
    texts = [printed(finding[field]) for field in (LEADS[label],)]
    if (other := AS_FOR.fullmatch(text)) is not None:
        first = ordered[int(other[1]) - 1] if int(other[1]) <= len(ordered) else {}
        known = [printed(first.get(field) or "") for field in ("algorithmic", "kernel")]
        if ordered.index(finding) < int(other[1]) or texts[0] not in known:
            yield f"P{other[1]} does not advise {texts[0]}"
    elif not texts[0].startswith(text[:-1]) or text[-1] not in ".":
        yield f"this is not the beginning of {texts[0]}"


def line_problems(line: str, texts: Iterable[str], facts: Facts, names: list[str]) -> Iterator[str]:
    """The shapes, names and numbers of a line that are in none of the texts, and not those of its
    kind of line."""
    rest = STRUCTURE.sub("", COMMENT.sub("", line)).replace("\\<", "<")
    for text in sorted(filter(None, texts), key=len, reverse=True):
        rest = rest.replace(text.replace("\\<", "<"), "")
    yield from (f"nothing accounts for {shape}" for shape in SHAPE.findall(QUOTED.sub("", rest)))
    for quoted in QUOTED.findall(rest):
        yield from name_problems(quoted, names)
    expected = next((facts for pattern, facts in LINES if re.search(pattern, rest)), ())
    for place, number in enumerate(numbers(rest)):
        if place >= len(expected):
            yield f"nothing accounts for {number.text} in {rest[-120:]!r}"
            continue
        known = expected[place]
        values = [known] if isinstance(known, float) else _values(known, facts)
        if not any(number.matches(value) for value in values):
            yield f"{number.text} in place of {values[:6]} ({known})"


def _values(names: str, facts: Facts) -> list[float]:
    return [value for name in names.split("|") for value in facts.get(name, ())]
