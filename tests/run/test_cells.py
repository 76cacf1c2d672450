"""What a cell holds: letter by letter in Markdown, and the name again when unescaped."""

import html

import pytest
from markdown_it import MarkdownIt

from jarvis.run.agent_layout.metrics import KERNELS_SHOWN, arguments_cell, cell_text, kernels_cell
from tests.reports.conftest import HOSTILE

PARSER = MarkdownIt("commonmark").enable("table")
NAMES = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>>",
    "__nv_static_51__ *a, const *b",
    "aten::_foreach_add_",
    "a|b|c",
    "first<br>second",
    "[x](http://evil.example) ![i](i.png)",
    "C:\\kernels\\`gemm`",
    "$x$ ~y~ @z &lt;",
    "WWW.evil.example",
)


def shown(cell: str) -> str:
    """The text of a cell in a rendered table; AssertionError where any of it is markup."""
    tokens = PARSER.parse(f"| head | end |\n|---|---|\n| {cell} | end |\n")
    inlines = [token for token in tokens if token.type == "inline"]
    assert len(inlines) == 4
    assert {child.type for child in inlines[2].children or []} <= {"text", "text_special"}
    return "".join(child.content for child in inlines[2].children or [])


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_shown_as_it_is_and_can_be_had_back(name: str) -> None:
    cell = cell_text(name)
    assert shown(cell) == name
    assert html.unescape(cell) == name
    assert "|" not in cell
    assert "<" not in cell


def test_a_hostile_name_stays_on_its_line() -> None:
    cell = cell_text(HOSTILE)
    assert cell.isprintable()
    assert shown(cell) == html.unescape(cell)


@pytest.mark.parametrize(
    "name", ["aten::mm", "aten::_softmax", "aten::add_", "Cijk_Ailk_Bljk_HHS_BH_MT128x64x32"]
)
def test_a_harmless_name_is_left_alone(name: str) -> None:
    assert cell_text(name) == name


def test_arguments_are_tuples_with_their_types() -> None:
    assert arguments_cell("[8944,1024] bf16, [1024] fp32") == "(8944,1024) bf16<br>(1024,) fp32"
    assert arguments_cell("2 x [16,64] bf16") == "2 x (16,64) bf16"
    assert arguments_cell("[16] + [16,64] bf16") == "(16,) + (16,64) bf16"
    assert arguments_cell("[8] a|b<c>") == "(8,) a&#124;b&lt;c&gt;"
    assert arguments_cell(None) is None


def test_kernels_are_numbered_where_there_are_several() -> None:
    assert kernels_cell([]) is None
    assert kernels_cell([{"name": "gemm"}]) == "gemm"
    assert kernels_cell([{"name": "gemm"}, {"name": "gemm"}]) == "gemm"
    two = [{"name": "gemm"}, {"name": "x" * 100}]
    assert kernels_cell(two) == f"Kernel 1: gemm<br>Kernel 2: {'x' * 100}"
    assert kernels_cell(two, limit=75) == f"Kernel 1: gemm<br>Kernel 2: {'x' * 75}"


def test_a_long_list_of_kernels_says_how_many_more() -> None:
    kernels = [{"name": f"k{i}"} for i in range(KERNELS_SHOWN + 3)]
    cut = kernels_cell(kernels, limit=75)
    assert cut is not None
    assert cut.endswith(f"Kernel {KERNELS_SHOWN}: k{KERNELS_SHOWN - 1}<br>and 3 more")
    whole = kernels_cell(kernels)
    assert whole is not None
    assert whole.endswith(f"Kernel {KERNELS_SHOWN + 3}: k{KERNELS_SHOWN + 2}")
