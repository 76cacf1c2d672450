"""Parts of reports: names of kernels and operators, the first clauses of a text."""

import pytest

from jarvis.findings import OpRef
from jarvis.reports.sections import lead, operation_line
from jarvis.text.messages import literal
from jarvis.text.short_names import kernel_without_operator


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("hipGraphLaunch->k<a->b> (Synthetic Op)", "k<a->b>"),
        ("aten::mm", None),
        ("a->b", None),
        ("aten::add (Synthetic Op)", None),
    ],
)
def test_the_kernel_in_a_name(name: str, kernel: str | None) -> None:
    assert kernel_without_operator(name) == kernel


def test_operators_beside_kernels_are_called() -> None:
    names = ("hipGraphLaunch->k (Synthetic Op)", "aten::mm", "aten::b", "aten::c")
    line = operation_line(OpRef(uid=i, name=n, operation_count=2) for i, n in enumerate(names))
    assert line == "`k` (2 calls), `aten::mm` (2 calls), `aten::b` (2 calls) and 1 more operator"


@pytest.mark.parametrize(
    ("text", "words", "ends", "expected"),
    [
        ("One two. Three four.", 4, ".;", "One two. Three four."),
        ("One two. Three four.", 3, ".;", "One two."),
        ("One two; three: four.", 2, ".;", "One two."),
        ("One two: three four.", 1, ".;:", "One two."),
        ("One two: three four.", 1, ".;", "One two: three four."),
        ("`a::b` takes 1.5 ms. More.", 1, ".;:", "`a::b` takes 1.5 ms."),
        ("`Region: 0/0` takes 1.5 ms. More.", 1, ".;:", "`Region: 0/0` takes 1.5 ms."),
    ],
)
def test_the_first_clauses_within_a_number_of_words(
    text: str, words: int, ends: str, expected: str
) -> None:
    assert lead((literal(text),), words, ends) == expected
