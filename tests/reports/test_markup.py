"""Names from a trace must reach the reader letter by letter, whatever Markdown makes of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from jarvis.text.markdown import (
    Markdown,
    anchor,
    block,
    cell,
    code,
    escape,
    name_first,
    one_line,
    prose,
    row_title,
    shortened,
    table,
)
from tests.reports.conftest import HOSTILE

PARSER = MarkdownIt("commonmark").enable("table")
TEXTS = st.text(alphabet="ab |`*_<>[]()!#\\&;:/.$~@w\n\t1-", max_size=30)


def shown(markdown: str) -> str:
    """What a reader sees of a paragraph."""
    inline = [token for token in PARSER.parse(markdown) if token.type == "inline"]
    children = [child for token in inline for child in token.children or []]
    assert {child.type for child in children} <= {"text", "code_inline", "text_special"}, markdown
    return "".join(child.content for child in children)


@given(TEXTS)
def test_escaped_text_shows_as_it_is(text: str) -> None:
    assert shown(f"x {escape(text)} x").split() == ["x", *one_line(text).split(), "x"]


@given(TEXTS)
def test_code_spans_show_as_they_are(text: str) -> None:
    assert shown(f"x {code(text)}").split() == ["x", *one_line(text).split()]


@given(TEXTS, TEXTS)
def test_a_table_keeps_its_shape(first: str, second: str) -> None:
    markdown = table(("A", "B"), [(escape(first), cell(second)), ("x", "y")])
    cells = [token for token in PARSER.parse(markdown) if token.type == "td_open"]
    assert len(cells) == 4


def test_prose_keeps_quoted_names_as_code() -> None:
    assert prose("run `a<b|*c*>` now, a < b * c") == "run `a<b|*c*>` now, a \\< b \\* c"


def test_prose_escapes_what_only_looks_like_code() -> None:
    assert prose("one ` backtick <b>") == "one \\` backtick \\<b\\>"


def test_hostile_text_stays_text() -> None:
    assert "alert(1)" in shown(prose(HOSTILE))
    assert "`:`//" in escape(HOSTILE)  # no renderer makes a link of it by itself
    assert "www`.`" in escape(HOSTILE)


def test_a_block_survives_fences_inside() -> None:
    tokens = PARSER.parse(block("a\n```\n<b>\n````"))
    assert [(token.type, token.content) for token in tokens] == [("fence", "a\n```\n<b>\n````\n")]


def test_markdown_is_not_escaped_twice() -> None:
    assert escape(Markdown("**x**")) == "**x**"


def test_long_names_keep_both_ends() -> None:
    assert shortened("void at::native::kernel<4, float>(int)", 20) == "void at::nati…>(int)"
    assert len(cell("x" * 500)) == 77


@pytest.mark.parametrize(
    ("heading", "name"),
    [
        ("1. GEMM (53.2% of compute)", "1-gemm-532-of-compute"),
        ("9. CPU / idle (system level)", "9-cpu--idle-system-level"),
        ("P1. Low: `aten::mm_out` (3x3)", "p1-low-atenmm_out-3x3"),
    ],
)
def test_anchors_are_those_of_the_usual_renderers(heading: str, name: str) -> None:
    assert anchor(heading) == name


def test_a_title_for_a_narrow_column_begins_with_its_name() -> None:
    title = "Low efficiency: `aten::mm` (3x3)"
    assert name_first(title) == "`aten::mm` (3x3): low efficiency"
    assert row_title(title) == "mm (3x3): low efficiency"
    assert name_first("GPU time: `a`") == "`a`: GPU time"
    for other in ("366 copies D2D", "Shapes missing: 98.8%", "Work of `a`: late"):
        assert name_first(other) == other
