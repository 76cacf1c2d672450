"""Perf models from a user's file or package: what they change, and what their faults do not."""

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from jarvis import cli
from jarvis.errors import ExtensionFileError
from jarvis.extensions import Extensions, load_extensions, loading
from jarvis.perf_models import BUILTIN, OpCost, Registry, find_model, op_category
from jarvis.perf_report import PerfReport
from jarvis.pipeline import analyze
from jarvis.reports.gaps import gaps_of
from jarvis.reports.reading import read_report
from jarvis.run import Run
from jarvis.server.submission import Submission, submit
from jarvis.trace.links import BACKWARD_PREFIX
from tests.builders import TraceBuilder, trace

Write = Callable[[str], Path]

SCAN = """
    from jarvis.perf_models import OpCost

    def register(registry):
        @registry.perf_model("mylib::scan", category="Scan_fwd")
        def scan(op):
            rows, columns = op.input_dims[0]
            size = rows * columns
            return OpCost(3 * size, 4 * size, "vector_bf16", {"rows": rows})
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes an extension file."""

    def written(text: str) -> Path:
        file = tmp_path / "mine.py"
        file.write_text(dedent(text), encoding="utf-8")
        return file

    return written


def scans() -> TraceBuilder:
    builder = trace(device="AMD Instinct MI300X")
    builder.op("mylib::scan", [[64, 128]]).launches("scan_kernel", us=20)
    builder.op("aten::mm", [[8, 4], [4, 2]]).launches("gemm", us=5)
    return builder.op("mylib::peek", [[1]]).launches("peek_kernel", us=1)


def report(extensions: Extensions, builder: TraceBuilder | None = None) -> PerfReport:
    return PerfReport((builder or scans()).read(), None, registry=extensions.registry)


def said(extensions: Extensions) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return extensions.notes, extensions.failures


def test_a_model_of_a_file_prices_its_op_and_gets_a_sheet(write: Write) -> None:
    extensions = load_extensions(write(SCAN))
    found = report(extensions)
    sheet = found.sheets()["Scan_fwd"].row(0, named=True)
    assert (sheet["name"], sheet["param: rows"], sheet["Compute Spec"]) == (
        "mylib::scan",
        64,
        "vector_bf16",
    )
    # 3 * 64 * 128 FLOPs and 4 * 64 * 128 bytes in 20 us
    assert sheet["GFLOPS_first"] == pytest.approx(24_576 / 1e9)
    assert sheet["TB/s_mean"] == pytest.approx(32_768 / 20e-6 / 1e12)
    assert dict(found.operations.select("name", "op_category").rows()) == {
        "mylib::scan": "Scan_fwd",
        "aten::mm": "GEMM",
        "mylib::peek": "other",
    }
    assert dict(found.operations.select("name", "model_origin").rows()) == {
        "mylib::scan": "extension",
        "aten::mm": "tracelens",
        "mylib::peek": None,
    }
    assert set(found.ops_summary_by_category["op_category"]) == {"Scan_fwd", "GEMM", "other"}
    assert said(extensions) == ((), ())


def test_the_models_of_an_extension_count_beside_those_of_tracelens(write: Write) -> None:
    registry = load_extensions(write(SCAN)).registry
    found = PerfReport(scans().read(), None, tracelens_models_only=True, registry=registry)
    assert "Scan_fwd" in found.roofline_sheets


def test_a_model_prices_the_pass_back_too(write: Write) -> None:
    text = """
        from jarvis.perf_models import OpCost

        def register(registry):
            def back(op):
                return OpCost(70, 7)

            registry.perf_model(
                "mylib::scan", category="Scan_fwd", backward=back, backward_category="Scan_bwd"
            )(lambda op: OpCost(30, 3))
    """
    node = "ScanBackward0"
    builder = trace().op("mylib::scan", [[64, 128]], seq=5).launches("scan_kernel", us=20).up()
    builder.thread(2).op(f"{BACKWARD_PREFIX} {node}", seq=5).child(node)
    builder.child("inner").launches("scan_bwd_kernel", us=40)
    found = report(load_extensions(write(text)), builder)
    (sheet,) = found.sheets()["Scan_bwd"].iter_rows(named=True)
    assert (sheet["name"], sheet["GFLOPS_first"]) == ("mylib::scan", 70 / 1e9)
    assert sheet["Kernel Time (µs)_sum"] == 40.0


def test_the_example_of_the_guide_works(write: Write) -> None:
    guide = Path(__file__).parents[1] / "docs" / "how-to" / "write-an-extension.md"
    (example,) = re.findall(r"```python\n(.*?)```", guide.read_text(encoding="utf-8"), re.DOTALL)
    extensions = load_extensions(write(example))
    builder = trace().op("mylib::swiglu", [[10, 100], [10, 100]]).launches("swiglu", us=2)
    found = report(extensions, builder)
    row = found.operations.row(0, named=True)
    assert (row["op_category"], row["flops"], row["bytes"]) == ("swiglu_fwd", 6000.0, 6000.0)
    assert extensions.registry.op_category("mylib::swiglu_backward") == "swiglu_bwd"
    assert said(extensions) == ((), ())


def test_two_analyses_in_one_process_do_not_see_each_other(write: Write) -> None:
    read = scans().read()
    file = write(SCAN)
    before = PerfReport(read, None, registry=load_extensions().registry)
    with_file = PerfReport(read, None, registry=load_extensions(file).registry)
    again = PerfReport(read, None, registry=load_extensions(file).registry)
    after = PerfReport(read, None, registry=load_extensions().registry)
    assert ["Scan_fwd" in r.roofline_sheets for r in (before, with_file, again, after)] == [
        False,
        True,
        True,
        False,
    ]
    assert after.operations.equals(before.operations)
    assert find_model("mylib::scan") is None
    assert op_category("mylib::scan") is None


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


def test_a_known_op_that_is_redefined_is_the_extensions(write: Write) -> None:
    text = """
        from jarvis.perf_models import OpCost

        def register(registry):
            @registry.perf_model("aten::mm", category="MyGEMM", sheet="GEMM")
            def mm(op):
                return OpCost(1000, 10)

            registry.categorize("Peek", "mylib::peek")
    """
    extensions = load_extensions(write(text))
    found = report(extensions)
    rows = {row["name"]: row for row in found.operations.iter_rows(named=True)}
    assert (rows["aten::mm"]["flops"], rows["aten::mm"]["op_category"]) == (1000.0, "MyGEMM")
    assert rows["mylib::peek"]["op_category"] == "Peek"
    assert found.roofline_sheets["GEMM"]["gflops"].to_list() == [1000 / 1e9]
    assert extensions.notes == (
        "mine.py replaces what is known of `aten::mm`; the extension counts.",
    )
    assert extensions.failures == ()


NOT_LOADED = {
    "def register(registry:": "SyntaxError",
    "import no_such_module": "mine.py, line 1: ModuleNotFoundError: No module named",
    "from TraceLens.PerfModel import GEMM": "it builds on TraceLens's own classes",
    "raise SystemExit(3)": "mine.py, line 1: SystemExit: 3. The file is left out.",
    "answer = 42": "mine.py adds nothing",
    "register = 5": "'int' object is not callable",
    "from jarvis.perf_models import perf_model\n\nperf_model('x', category='y')": (
        "mine.py, line 3: RegistrationError: This registry is complete"
    ),
    "perf_model_extension = [1]": "perf_model_extension of mine.py is list, not a dict.",
    "perf_model_extension = {'x': 5}": "`x`: A class was expected, not int. It is left out.",
    "class A: pass\nperf_model_extension = {'x': A}": "The class A has no category.",
    "class A: category = 'a/b'\nperf_model_extension = {'x': A}": "'a/b' can name no sheet",
    "class A: category = 7\nperf_model_extension = {'x': A}": "texts, not int",
    "class A: category, sheet_category = 'a', 0\nperf_model_extension = {'x': A}": "texts, not int",
    "op_category_extension = {'x': None}": "texts, not NoneType",
    "op_category_extension = {8: 'x'}": "texts, not int",
    "tree_postprocess_extension = print": "tree_postprocess_extension of mine.py works on",
    "get_additional_dataframes_extension = dict": "which Jarvis does not have, and is left out.",
    "op_category_extension = {'mylib::scan': '\\ud800'}": "'\\ud800' is not valid Unicode",
    "op_category_extension = {'\\ud800': 'Scan'}": "'\\ud800' is not valid Unicode",
    "raise ValueError('\\ud800')": "mine.py, line 1: ValueError: ?. The file is left out.",
    "def register(registry):\n    registry.categorize('a', 5)": "mine.py, line 2: Registration",
    "def register(registry):\n    registry.perf_model('x', category='A', backward_category=5)": (
        "texts, not int"
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
    "return OpCost(1, -1)": "ValueError: bytes are -1.0, not a number from 0 on",
    "return OpCost(float('nan'), 1)": "ValueError: FLOPs are nan, not a number from 0 on",
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


def test_parameters_that_no_cell_can_hold_become_texts(write: Write) -> None:
    text = """
        from jarvis.perf_models import OpCost

        def register(registry):
            @registry.perf_model("mylib::scan", category="Scan_fwd")
            def scan(op):
                params = {"a": float("inf"), "b": {1: [print, (2, True)]}, 3: 10**30, "c": 2.5}
                return OpCost(1, 1, params=params)
    """
    found = report(load_extensions(write(text)))
    row = found.sheets()["Scan_fwd"].row(0, named=True)
    params = ("inf", "{'1': ['<built-in function print>', (2, True)]}", str(10**30), "2.5")
    assert tuple(row[f"param: {name}"] for name in "ab3c") == params
    assert report(load_extensions(write(text))).operations["flops"][0] == 1.0


def test_a_call_that_a_formula_does_not_cover_is_no_failure(write: Write) -> None:
    text = """
        from jarvis.perf_models import NoModelForCallError

        def register(registry):
            @registry.perf_model("mylib::scan", category="Scan_fwd")
            def scan(op):
                raise NoModelForCallError
    """
    extensions = load_extensions(write(text))
    found = report(extensions)
    assert found.perf_model_failures.is_empty()
    assert found.operations["op_category"][0] == "Scan_fwd"
    assert extensions.failures == ()


TRACELENS = """
    class Scan:
        category = "Scan_fwd"
        bwd_category = "Scan_bwd"

        def __init__(self, event, arch=None, python_path=None):
            assert arch is None and python_path is None and event["UID"] is None
            arguments = event["args"]
            assert arguments["Input type"] == ["c10::BFloat16"]
            assert arguments["Input Strides"] == [[128, 1]]
            assert arguments["Concrete Inputs"] == [""]
            rows, columns = arguments["Input Dims"][0]
            self.param_details = {"name": event["name"], "size": rows * columns}

        def flops(self):
            return 3 * self.param_details["size"]

        def bytes(self):
            return 4 * self.param_details["size"]

        def flops_bwd(self):
            raise NotImplementedError

        def get_maf_type(self):
            return "vector"

        def get_compute_precision(self):
            return "bf16"

    class Peek:
        category = "Peek"
        sheet_category = "Peeking"
        can_model = staticmethod(lambda event: event["args"]["Input Dims"] == [[1]])

        def __init__(self, event, arch=None, python_path=None, **kwargs):
            self.param_details = {}

        def flops(self):
            return 1

        def bytes(self):
            return None

    perf_model_extension = {"mylib::scan": Scan, "mylib::peek": Peek}
    op_category_extension = {"aten::mm": "MyGEMM"}
    dict_cat2names_extension = {"Scan": ["mylib::scan"]}
"""


def test_an_extension_of_tracelens_is_taken_as_it_is(write: Write) -> None:
    extensions = load_extensions(write(TRACELENS))
    builder = scans().op("mylib::peek", [[2]]).launches("peek_kernel", us=2)
    found = report(extensions, builder)
    assert list(found.roofline_sheets) == ["GEMM", "Scan_fwd", "Peeking_fwd"]
    scan = found.sheets()["Scan_fwd"].row(0, named=True)
    assert (scan["param: name"], scan["param: size"]) == ("mylib::scan", 8192)
    assert scan["GFLOPS_first"] == pytest.approx(24_576 / 1e9)
    assert scan["Compute Spec"] == "vector_bf16"
    peek = found.sheets()["Peeking_fwd"]
    assert (peek["name_count"].to_list(), peek["Data Moved (MB)_first"].to_list()) == ([1], [None])
    assert set(found.operations.select("name", "op_category").rows()) == {
        ("mylib::scan", "Scan_fwd"),
        ("aten::mm", "MyGEMM"),
        ("mylib::peek", "Peek"),
    }
    assert extensions.notes == (
        "dict_cat2names_extension of mine.py has no effect: the category of a model says it.",
        "mine.py replaces what is known of `aten::mm`; the extension counts.",
    )
    assert extensions.failures == ()


def test_a_pass_back_that_fails_is_told(write: Write) -> None:
    text = TRACELENS.replace("raise NotImplementedError", "return self.no_such_size")
    extensions = load_extensions(write(text))
    builder = trace().op("mylib::scan", [[64, 128]], seq=5).launches("scan_kernel", us=20).up()
    builder.thread(2).op(f"{BACKWARD_PREFIX} ScanBackward0", seq=5)
    builder.child("inner").launches("scan_bwd_kernel", us=40)
    assert "Scan_bwd" not in report(extensions, builder).roofline_sheets
    (sentence,) = extensions.failures
    assert sentence.startswith("The backward perf model of `mylib::scan` failed: mine.py, line ")


class Point:
    """An entry point that gives ``value`` or raises it."""

    def __init__(self, name: str, value: object) -> None:
        self.name, self._loaded = name, value

    def load(self) -> object:
        if isinstance(self._loaded, Exception):
            raise self._loaded
        return self._loaded


def test_packages_register_models_and_a_file_goes_before_them(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def register(registry: Registry) -> None:
        registry.perf_model("mylib::scan", category="Theirs")(lambda op: OpCost(1, 1))
        registry.categorize("Peek", "mylib::peek")

    points = [Point("good", register), Point("bad", ImportError("no such thing"))]
    asked: list[str] = []

    def entry_points(group: str) -> list[Point]:
        asked.append(group)
        return points

    monkeypatch.setattr(loading, "entry_points", entry_points)
    alone = load_extensions()
    assert alone.registry.op_category("mylib::scan") == "Theirs"
    assert alone.failures == ("bad: ImportError: no such thing. It could not be loaded.",)
    both = load_extensions(write(SCAN))
    assert both.registry.op_category("mylib::scan") == "Scan_fwd"
    assert both.registry.op_category("mylib::peek") == "Peek"
    assert both.notes == ("mine.py replaces what is known of `mylib::scan`; the extension counts.",)
    assert set(asked) == {"jarvis.perf_models"}
    assert BUILTIN.op_category("mylib::scan") is None


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExtensionFileError, match=r"none\.py cannot be read: No such file"):
        load_extensions(tmp_path / "none.py")


@pytest.mark.parametrize("flag", ["--extension_file", "--extension-file"])
def test_report_takes_an_extension_file(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    source = scans().write(tmp_path / "trace.json")
    broken = SCAN + "\n        registry.perf_model('mylib::peek', category='Peek')(5)\n"
    folder = tmp_path / "csvs"
    options = [flag, str(write(broken)), "--output_csvs_dir", str(folder)]
    assert cli.main(["report", str(source), *options]) == 0
    assert read_report(folder)["Scan_fwd"]["name"].to_list() == ["mylib::scan"]
    assert capsys.readouterr().err.splitlines()[-1] == (
        "warning: The perf model of `mylib::peek` failed: mine.py: "
        "TypeError: 'int' object is not callable."
    )


def test_report_refuses_a_file_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = scans().write(tmp_path / "trace.json")
    assert cli.main(["report", str(source), "--extension_file", str(tmp_path / "none.py")]) == 1
    assert capsys.readouterr().err.startswith("jarvis: The extension file ")
    assert not list(tmp_path.glob("*.xlsx"))


def test_a_run_keeps_what_its_extension_changed_and_could_not(write: Write, tmp_path: Path) -> None:
    text = (
        SCAN
        + """
        registry.categorize("reduce", "mylib::peek")
        registry.perf_model("aten::mm", category="GEMM")(lambda op: 1 / 0)

    perf_model_extension = 5
    """
    )
    source = scans().write(tmp_path / "trace.json")
    run = analyze(source, output_dir=tmp_path / "run", extension_file=write(text))
    manifest = Run.load(tmp_path / "run").manifest
    assert manifest.options.extension_file == "mine.py"
    assert manifest.extension_notes == (
        "mine.py replaces what is known of `aten::mm`; the extension counts.",
    )
    loading_failure, fault = manifest.extension_failures
    assert loading_failure == "perf_model_extension of mine.py is int, not a dict."
    assert fault.startswith("The perf model of `aten::mm` failed: mine.py, line ")
    categories = dict(run.table("operations").select("name", "category").rows())
    assert categories["mylib::peek"] == "reduce"
    texts = [gap.text for gap in gaps_of(run)]
    assert [texts.count(text) for text in (*manifest.extension_notes, loading_failure, fault)] == [
        1,
        1,
        1,
    ]
    rough = (tmp_path / "run" / "standalone_analysis_rough.md").read_text(encoding="utf-8")
    assert "--extension_file mine.py" in rough
    assert "--extension-file mine.py" in rough


def test_another_content_of_the_file_is_another_analysis(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    source = scans().write(tmp_path / "trace.json")
    plain = submit(Submission(source))
    first = submit(Submission(source, extension_file=write(SCAN)))
    again = submit(Submission(source, extension_file=write(SCAN)))
    other = submit(Submission(source, extension_file=write(SCAN.replace("3 * size", "9 * size"))))
    assert len({plain.id, first.id, other.id}) == 3
    assert (again.id, again.is_reused, other.is_reused) == (first.id, True, False)


def test_analyze_says_what_its_extension_changed(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = scans().write(tmp_path / "trace.json")
    file = write("op_category_extension = {'aten::mm': 'MyGEMM', 'x': 1}")
    assert cli.main(["analyze", str(source), "--extension-file", str(file)]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert "note: mine.py replaces what is known of `aten::mm`; the extension counts." in lines
    assert sum(line.startswith("warning: op_category_extension of mine.py") for line in lines) == 1
    manifest = json.loads((tmp_path / "analysis_output" / "manifest.json").read_text())
    assert len(manifest["extension_failures"]) == 1
