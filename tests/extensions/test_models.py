"""Perf models from a user's file or package: what they change."""

import pytest

from jarvis import extensions
from jarvis.extensions import load_extensions
from jarvis.perf_models import BUILTIN, OpCost, Registry
from jarvis.trace.links import BACKWARD_PREFIX
from jarvis.tracelens.report import TraceLensReport
from tests.builders import trace
from tests.extensions.conftest import SCAN, Point, Write, output, report, scans


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
    assert output(extensions) == ((), ())


def test_the_models_of_an_extension_count_beside_those_of_tracelens(write: Write) -> None:
    registry = load_extensions(write(SCAN)).registry
    found = TraceLensReport(scans().read(), None, tracelens_models_only=True, registry=registry)
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
    assert extensions.notes == ("mine.py overrides the built-in models of `aten::mm`.",)
    assert extensions.failures == ()


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

    monkeypatch.setattr(extensions, "entry_points", entry_points)
    alone = load_extensions()
    assert alone.registry.op_category("mylib::scan") == "Theirs"
    assert alone.failures == ("bad: ImportError: no such thing. It could not be loaded.",)
    both = load_extensions(write(SCAN))
    assert both.registry.op_category("mylib::scan") == "Scan_fwd"
    assert both.registry.op_category("mylib::peek") == "Peek"
    assert both.notes == ("mine.py overrides the built-in models of `mylib::scan`.",)
    assert set(asked) == {"jarvis.perf_models"}
    assert BUILTIN.op_category("mylib::scan") is None
