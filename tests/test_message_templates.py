"""Every message template: formats, units, nouns, and no unused values."""

import re
import string
from collections.abc import Iterator
from typing import Any

import pytest

import jarvis.comparison
import jarvis.ranks.findings
import jarvis.reports.messages
from jarvis.analyses import load_analyses
from jarvis.text.messages import (
    BY_NAME,
    BY_UNIT,
    FORMATS,
    RESOLVED,
    Message,
    literal,
    tables,
    to_text,
)

load_analyses()
assert jarvis.comparison
assert jarvis.ranks.findings

TABLES = {
    table: {f"{table}.{key}": template for key, template in templates.items()}
    for table, templates in tables().items()
    if table != "literal" and not table.startswith("test_")
}
UNITS = {
    "ms": ("ms", "µs", " to "),
    "us": ("µs",),
    "pct": ("%",),
    "bytes": (" B", "bytes"),
    "tb_per_s": ("TB/s",),
    "gb_per_s": ("GB/s",),
    "mb_per_s": ("MB/s",),
    "tflops_per_s": ("TFLOP/s",),
}
"""The unit that must follow a number, by the end of its name."""

INVARIABLE = ("is", "times")
MANY = ("places.each_of", "elementwise.many", "attention.heads.shared", "gemm_shapes.last_round")
"""Messages that only combine others."""
TEXT = "Text"


def fields(template: str) -> Iterator[tuple[str, str, str]]:
    """Yield name, spec and default of each placeholder."""
    for _, field, spec, _ in string.Formatter().parse(template):
        if field:
            name, question, default = field.partition("?")
            spec = f"{spec}?{default}" if question else spec or ""
            spec = spec or BY_NAME.get(name) or BY_UNIT.get(name.rpartition("_")[2], "")
            spec, _, default = spec.partition("?")
            yield name, spec, default


def sample(name: str, spec: str, number: int) -> Any:
    """Return a value for a placeholder."""
    kind = spec.partition(" ")[0]
    if kind == RESOLVED:
        return literal(TEXT)
    if kind == "names":
        return ("aten::mm", "aten::add")
    if kind in ("list", "joined"):
        return ("first", "second")
    if kind in ("name", "lower"):
        return "aten::mm"
    if kind in ("count", "either", "more") or spec == ",":
        return number
    if kind in FORMATS or spec:
        return float(number)
    is_size = len(name) == 1 or name in ("compute_units", "head_dim", "n_q", "n_kv", "heads_kv")
    return number if is_size else TEXT


def worded(message_id: str, template: str, number: int) -> str:
    """Return the message with ``number`` for each of its numbers."""
    values: dict[str, Any] = {}
    for name, spec, _ in fields(template):
        if not isinstance(values.get(name), int):
            values[name] = sample(name, spec, number)
    return to_text(Message(id=message_id, values=values))


@pytest.mark.parametrize("table", TABLES)
def test_a_message_is_a_sentence_with_its_values(table: str) -> None:
    for message_id, template in TABLES[table].items():
        for number in (0, 1, 2):
            text = worded(message_id, template, number)
            known = text.replace("None, which only layers", "").replace("to None", "")
            assert "{" not in text.replace("{}", ""), message_id
            assert "}" not in text, message_id
            assert "None" not in known, message_id
            assert not re.search(r"\bnan\b", text), message_id
            assert "  " not in text, message_id
            assert ".." not in text.replace("...", ""), message_id


@pytest.mark.parametrize("table", TABLES)
def test_every_placeholder_is_printed(table: str) -> None:
    # Another value prints another text.
    for message_id, template in TABLES[table].items():
        known = {name: sample(name, spec, 3) for name, spec, _ in fields(template)}
        before = to_text(Message(id=message_id, values=known))
        for name, spec, _ in fields(template):
            other = sample(name, spec, 7)
            if other == known[name]:
                other = ("other",) if isinstance(other, tuple) else literal("Other")
            if spec.startswith("either"):
                other = 1
            if spec in ("name", "lower"):
                other = "other"
            after = to_text(Message(id=message_id, values={**known, name: other}))
            assert after != before, (message_id, name)


@pytest.mark.parametrize("table", TABLES)
def test_nouns_agree_with_their_number(table: str) -> None:
    for message_id, template in TABLES[table].items():
        if message_id.startswith(MANY):
            continue
        for noun in re.findall(r"(?<![\w=.,-])1 ([a-z]+s)\b", worded(message_id, template, 1)):
            assert noun in INVARIABLE, f"{message_id}: 1 {noun}"


@pytest.mark.parametrize("table", TABLES)
def test_numbers_have_their_unit(table: str) -> None:
    for message_id, template in TABLES[table].items():
        for found in re.finditer(r"\{(\w+)[^{}]*\}([^{]{0,12})", template):
            name, after = found[1], found[2]
            unit = next((unit for unit in UNITS if name.endswith(f"_{unit}") or name == unit), None)
            if unit is None:
                continue
            text = to_text(Message(id=message_id, values=_values(template, name)))
            printed = re.search(r"12\.5[^ ]*(.{0,12})", text) or re.search(
                r"1[23]%?(.{0,12})", text
            )
            assert printed, (message_id, name, text)
            units = UNITS[unit]
            assert any(each in printed[0] or each in after for each in units), (message_id, name)


def _values(template: str, number: str) -> dict[str, Any]:
    """Return sample values, with 12.5 for one of them."""
    values = {name: sample(name, spec, 3) for name, spec, _ in fields(template)}
    return {**values, number: 12.5}


OF_KERNELS = ("saved_ms", "e2e_pct", "compute_pct")
"""Values of kernel time."""


@pytest.mark.parametrize("table", TABLES)
def test_kernel_time_is_no_time_of_the_step(table: str) -> None:
    """What kernels save is called a part of the step only where other values are."""
    for message_id, template in TABLES[table].items():
        for sentence in re.split(r"[.;] ", template):
            if any(f"{{{name}" in sentence for name in OF_KERNELS):
                of_step = re.search(r"of the (steps?|recording)\b|\{whole\}", sentence)
                assert not of_step, message_id
