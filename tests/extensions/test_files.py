"""Extension files that are broken, each in its way: a sentence, and the report without the part."""

import os
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from jarvis.core.errors import ExtensionFileError
from jarvis.extensions import load_extensions
from tests.extensions.conftest import SCAN, Write, report


def test_a_file_that_was_changed_a_moment_ago_is_run_as_it_is_now(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    prices = []
    for flops in (3, 4):  # files of one size, written within one tick of the clock
        file = write(SCAN.replace("3 * size", f"{flops} * size"))
        os.utime(file, (1_700_000_000, 1_700_000_000))
        found = report(load_extensions(file))
        prices.append(found.operations["flops"][0])
    assert prices == [3 * 64 * 128, 4 * 64 * 128]
    assert not (file.parent / "__pycache__").exists()


def test_a_file_of_any_name_may_hold_dataclasses_of_its_own(tmp_path: Path) -> None:
    text = """
        from __future__ import annotations
        from dataclasses import dataclass
        from typing import ClassVar

        @dataclass
        class Shape:
            kind: ClassVar[str] = "Peek"

        op_category_extension = {"mylib::peek": Shape().kind}
    """
    file = tmp_path / "models.txt"
    file.write_text(dedent(text), encoding="utf-8")
    extensions = load_extensions(file)
    assert extensions.failures == ()
    assert extensions.registry.op_category("mylib::peek") == "Peek"


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExtensionFileError, match=r"none\.py cannot be read: No such file"):
        load_extensions(tmp_path / "none.py")


NOT_LOADED = {
    "def register(registry:": "SyntaxError",
    "import no_such_module": "mine.py, line 1: ModuleNotFoundError: No module named",
    "from TraceLens.PerfModel import GEMM": "it uses TraceLens's classes",
    "raise SystemExit(3)": "mine.py, line 1: SystemExit: 3. The file is ignored.",
    "answer = 42": "mine.py adds nothing",
    "register = 5": "'int' object is not callable",
    "from jarvis.perf_models import perf_model\n\nperf_model('x', category='y')": (
        "mine.py, line 3: RegistrationError: This registry is complete"
    ),
    "perf_model_extension = [1]": "perf_model_extension of mine.py is list, not a dict.",
    "perf_model_extension = {'x': 5}": "`x`: A class was expected, not int. It is ignored.",
    "class A: pass\nperf_model_extension = {'x': A}": "The class A has no category.",
    "class A: category = 'a/b'\nperf_model_extension = {'x': A}": "'a/b' can name no sheet",
    "class A: category = 7\nperf_model_extension = {'x': A}": "strings, not int",
    "class A: category, sheet_category = 'a', 0\nperf_model_extension = {'x': A}": "not int",
    "op_category_extension = {'x': None}": "strings, not NoneType",
    "op_category_extension = {8: 'x'}": "strings, not int",
    "tree_postprocess_extension = print": "tree_postprocess_extension of mine.py needs",
    "get_additional_dataframes_extension = dict": "which Jarvis does not have, and is ignored.",
    "op_category_extension = {'mylib::scan': '\\ud800'}": "'\\ud800' is not valid Unicode",
    "op_category_extension = {'\\ud800': 'Scan'}": "'\\ud800' is not valid Unicode",
    "raise ValueError('\\ud800')": "mine.py, line 1: ValueError: ?. The file is ignored.",
    "def register(registry):\n    registry.categorize('a', 5)": "mine.py, line 2: Registration",
    "def register(registry):\n    registry.perf_model('x', category='A', backward_category=5)": (
        "strings, not int"
    ),
}


@pytest.mark.parametrize("text", NOT_LOADED)
def test_what_cannot_be_loaded_is_one_sentence_and_the_report_is_made(
    write: Write, text: str
) -> None:
    extensions = load_extensions(write(text))
    (sentence,) = extensions.failures
    assert NOT_LOADED[text] in sentence
    assert "\n" not in sentence
    assert "mine.py" in sentence
    assert extensions.notes == ()
    assert report(extensions).operations["name"].to_list() == [
        "mylib::scan",
        "aten::mm",
        "mylib::peek",
    ]


def test_what_was_registered_before_a_fault_counts(write: Write) -> None:
    text = """
        def register(registry):
            registry.categorize("Peek", "mylib::peek")
            registry.categorize("Peek", "mylib::peek")
    """
    extensions = load_extensions(write(text))
    (sentence,) = extensions.failures
    assert sentence.startswith("mine.py, line 4: RegistrationError: Category of mylib::peek is")
    assert extensions.registry.op_category("mylib::peek") == "Peek"


def test_an_entry_that_is_wrong_leaves_the_others_alone(write: Write) -> None:
    text = "op_category_extension = {'a': 1, 'mylib::peek': 'Peek'}"
    assert load_extensions(write(text)).registry.op_category("mylib::peek") == "Peek"


FAULTY = {
    "raise RuntimeError('boom')": "RuntimeError: boom",
    "raise SystemExit": "SystemExit",
    "return op.no_such_field": "AttributeError: 'OpSignature' object has no attribute",
    "assert not op.input_dims": "AssertionError",
    "return 5": "TypeError: the formula returned int, not an OpCost",
    "return OpCost('many', 1)": "TypeError: FLOPs are 'many', not a number",
    "return OpCost(True, 1)": "TypeError: FLOPs are True, not a number",
    "return OpCost(1, -1)": "ValueError: bytes are -1.0, not a finite number of at least 0",
    "return OpCost(float('nan'), 1)": "ValueError: FLOPs are nan, not a finite number",
    "return OpCost(1, 1, exact_flops=10**400)": "OverflowError",
    "return OpCost(1, 1, compute=5)": "TypeError: compute is 5, not a text",
    "return OpCost(1, 1, params=[1])": "TypeError: the parameters are list, not a dict",
    "return OpCost(1, 1, params={'x': '\\ud800'})": "TypeError: str is not valid UTF-8",
    "x = []\n                for _ in range(220):\n                    x = [x]\n"
    "                return OpCost(1, 1, params={'x': x})": "too many nested parentheses",
    "return OpCost(1, 1, compute='\\ud800')": "UnicodeEncodeError: 'utf-8' codec can't encode",
    "raise ValueError('\\ud800')": "ValueError: ?",
    "raise type('E', (Exception,), {'__str__': lambda self: 5})": ": E",
    "raise ValueError('x' * 1000)": "x" * 288 + "...",
}


@pytest.mark.parametrize("body", FAULTY)
def test_a_formula_that_fails_leaves_the_row_its_time(write: Write, body: str) -> None:
    text = f"""
        from jarvis.perf_models import OpCost

        def register(registry):
            @registry.perf_model("mylib::scan", category="Scan_fwd")
            def scan(op):
                {body}
    """
    extensions = load_extensions(write(text))
    assert extensions.failures == ()
    found = report(extensions)
    row = found.operations.row(0, named=True)
    assert (row["name"], row["kernel_time_us"], row["flops"]) == ("mylib::scan", 20.0, None)
    assert list(found.roofline_sheets) == ["GEMM"]
    (failure,) = found.perf_model_failures.iter_rows(named=True)
    (sentence,) = extensions.failures
    assert sentence == f"The perf model of `mylib::scan` failed: {failure['reason']}."
    assert FAULTY[body] in sentence
