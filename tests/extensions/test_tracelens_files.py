"""Extension files that were written for TraceLens."""

import pytest

from jarvis.extensions import load_extensions
from jarvis.trace.links import BACKWARD_PREFIX
from tests.builders import trace
from tests.extensions.conftest import Write, report, scans

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
        "dict_cat2names_extension of mine.py has no effect: models define their own category.",
        "mine.py overrides the built-in models of `aten::mm`.",
    )
    assert extensions.failures == ()


def test_a_pass_back_that_fails_is_reported(write: Write) -> None:
    text = TRACELENS.replace("raise NotImplementedError", "return self.no_such_size")
    extensions = load_extensions(write(text))
    builder = trace().op("mylib::scan", [[64, 128]], seq=5).launches("scan_kernel", us=20).up()
    builder.thread(2).op(f"{BACKWARD_PREFIX} ScanBackward0", seq=5)
    builder.child("inner").launches("scan_bwd_kernel", us=40)
    assert "Scan_bwd" not in report(extensions, builder).roofline_sheets
    (sentence,) = extensions.failures
    assert sentence.startswith("The backward perf model of `mylib::scan` failed: mine.py, line ")
