"""The Markdown parser: headings, cells, links, and own text."""

import pytest

from tests.layout.markdown import Part, anchor_of, own_words, plain

DOCUMENT = """\
# Title

## First `part`

| Operation | Value |
|---|---|
| `a\\|b` | 3 ms \\| more |
| ncclKernel | CUDA |

```text
## no heading
| no | table |
|---|---|
[no](#link)
```

### Inner

See [it](#inner), not `[that](#nowhere)` or [this\\](#nowhere). ![plot](plot.png)

## Second

<a id="own-anchor"></a>
words
"""


@pytest.fixture
def document() -> Part:
    return Part.of_file("a.md", DOCUMENT)


def test_headings_and_parts_leave_code_blocks_alone(document: Part) -> None:
    assert document.headings(2) == [(3, "First `part`"), (21, "Second")]
    first = document.part("First part")
    assert first is not None
    assert (first.number, first.lines[-1].number) == (3, 20)
    assert [part.number for part in first.parts(3)] == [17]
    assert document.part("no heading") is None


def test_cells_keep_their_borders(document: Part) -> None:
    (table,) = document.tables
    assert (table.number, table.headers) == (5, ("Operation", "Value"))
    assert table.rows[0].cells == {"Operation": "`a\\|b`", "Value": "3 ms \\| more"}
    assert [plain(cell) for cell in table.rows[0].cells.values()] == ["a|b", "3 ms | more"]
    assert document.table("Value") is table
    assert document.table("Other") is None


def test_links_images_and_anchors(document: Part) -> None:
    assert list(document.links) == [(19, "#inner")]
    assert list(document.images) == [(19, "plot.png")]
    assert document.anchors == {"title", "first-part", "inner", "second", "own-anchor"}


def test_own_text_excludes_names_of_the_trace(document: Part) -> None:
    words = dict(document.own_words)
    assert words[8] == "CUDA"
    assert "that" not in words[19]
    assert not any(9 < number < 17 and text.strip() for number, text in words.items())
    assert own_words("a ``b`c`` d\\_e <!-- f -->") == "a  d_e "


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("P1. Low efficiency: `aten::mm`", "p1-low-efficiency-atenmm"),
        ("CPU / idle (system)", "cpu--idle-system"),
        ("`a_b` \\*x\\*", "a_b-x"),
    ],
)
def test_anchors_match_common_renderers(heading: str, anchor: str) -> None:
    assert anchor_of(heading) == anchor
