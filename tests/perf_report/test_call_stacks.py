"""Call stacks of kernels and the entry points of operators."""

import pytest

from jarvis.tracelens.call_stacks import NOT_FOUND, entry_point, merged
from jarvis.tracelens.options import ReportOptions
from jarvis.tracelens.report import TraceLensReport
from tests.builders import TraceBuilder, trace

MM = [[8, 4], [4, 2]]


def row(builder: TraceBuilder) -> dict[str, object]:
    found = TraceLensReport(builder.read(), None, options=ReportOptions(include_call_stack=True))
    return found.unified_perf_summary.row(0, named=True)


def test_stacks_have_operators_modules_and_files_without_line_numbers() -> None:
    builder = trace().python("run/train.py(1): main").python("nn.Module: Linear_3")
    builder.python("<built-in method linear>").python("a/model.py(12): forward")
    builder.child("aten::linear").child("aten::mm", MM).launches("gemm_1", us=5)
    found = row(builder)
    assert found["call_stack_full"] == repr(
        [
            "run/train.py(1): main",
            "nn.Module: Linear",
            "a/model.py(12): forward",
            "aten::linear",
            "aten::mm",
            "gemm_1",
        ]
    )
    assert found["entry_point"] == "a/model.py(12): forward"


def test_kernels_share_the_beginning_of_their_stack() -> None:
    builder = trace().op("aten::mm", MM).launches("main", us=9)
    builder.child("aten::sum").launches("sum", us=3)
    assert row(builder)["call_stack_full"] == repr(["aten::mm", ["aten::sum", "sum"], ["main"]])


def test_a_row_for_one_gpu_event_has_that_alone() -> None:
    found = row(trace().op("aten::mm", MM).up().graph(("k", 5.0)))
    assert (found["call_stack_full"], found["entry_point"]) == ("['k']", NOT_FOUND)


def test_equal_stacks_are_merged() -> None:
    assert merged([("a", "k"), ("a", "k")]) == ["a", "k"]
    assert merged([("a", "k"), ("a", "b", "k"), ("a", "k")]) == ["a", ["k"], ["b", "k"]]
    assert merged([]) == []


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        (["a.py(1): main", "b.py(2): step"], "b.py(2): step"),
        (["a.py(1): main", "torch/nn/modules/module.py(9): _call_impl"], "a.py(1): main"),
        (["a.py(1): main", "b.py(2): wrapper"], "a.py(1): main"),
        (["a.py(1): main", "nn.Module: Linear"], "a.py(1): main"),
        (["torch/_ops.py(5): __call__"], NOT_FOUND),
        ([], NOT_FOUND),
    ],
)
def test_the_entry_point_is_the_nearest_frame_that_is_no_wrapper(
    frames: list[str], expected: str
) -> None:
    assert entry_point("aten::mm", [(*frames, "aten::mm", "gemm")]) == expected


def test_a_frame_with_the_operators_name_comes_first() -> None:
    stack = ("a.py(1): main", "aten::Gelu", "kernels.py(3): run_gelu_tanh", "k")
    assert entry_point("aten::Gelu", [stack]) == "kernels.py(3): run_gelu_tanh"


def test_the_innermost_of_nested_calls_counts() -> None:
    stack = ("a.py(1): main", "aten::copy_", "b.py(2): inner", "aten::copy_", "k")
    assert entry_point("aten::copy_", [stack]) == "b.py(2): inner"


def test_frames_that_end_together_all_stay() -> None:
    """As doubles of this size the inner frame would end after the outer one."""
    builder = trace()
    origin = 2204338329563.468
    builder.python("outer.py(1): a/b", us=0)
    builder.python("inner.py(2): c/d", us=0).child("aten::mm", MM).launches("gemm", us=5)
    document = builder.document()
    outer, inner = (e for e in document["traceEvents"] if e["cat"] == "python_function")
    shift = origin - outer["ts"]
    for event in document["traceEvents"]:
        event["ts"] = round(event["ts"] + shift, 3)
    outer["dur"] = 4361.132
    inner["ts"], inner["dur"] = 2204338329567.085, 4357.515
    assert inner["ts"] + inner["dur"] > outer["ts"] + outer["dur"]
    for event in document["traceEvents"]:
        if event["cat"] in ("cpu_op", "cuda_runtime"):
            event["ts"] = round(event["ts"] + 10, 3)
    assert row(builder)["call_stack_full"] == repr(
        ["outer.py(1): a/b", "inner.py(2): c/d", "aten::mm", "gemm"]
    )


def test_with_recompute_detection_kernel_details_include_stacks() -> None:
    builder = trace().python("a/b.py(1): f").child("aten::mm", MM).launches("gemm", us=5)
    options = ReportOptions(detect_recompute=True)
    sheet = TraceLensReport(builder.read(), None, options=options).sheets()["unified_perf_summary"]
    text = sheet["kernel_details_summary"].to_list()[0]
    assert text.startswith(
        "[{'name': 'gemm', 'stream': 7, 'call_stack': ['a/b.py(1): f', 'aten::mm'], 'count': 1, "
    )
    assert "kernel_call_stacks" not in sheet.columns
    assert "call_stack_full" not in sheet.columns
