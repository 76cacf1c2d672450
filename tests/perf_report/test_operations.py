"""The operations table, call paths and the GPU work table."""

import polars as pl
import pytest

from jarvis.perf_report import PerfReport
from jarvis.trace.links import BACKWARD_PREFIX
from tests.builders import TraceBuilder, trace

MM = [[8, 4], [4, 2]]


def report(builder: TraceBuilder) -> PerfReport:
    return PerfReport(builder.read(), None)


def model() -> TraceBuilder:
    """A linear layer called from a user's file through the framework."""
    builder = trace().python("train.py(10): <module>").python("model.py(7): forward")
    builder.python("nn.Module: Net_0").python("torch/nn/modules/module.py(1743): _call_impl")
    builder.python("model.py(21): forward").python("nn.Module: Linear_3")
    builder.python("torch/nn/modules/linear.py(125): forward")
    builder.python("<built-in function linear>")
    return builder.child("aten::linear").child("aten::addmm", [[2], *MM])


def test_modules_and_entry_point_of_the_example_call() -> None:
    row = report(model().launches("gemm", us=5)).operations.row(0, named=True)
    assert row["module_path"] == ["Net_0", "Linear_3"]
    assert row["entry_point"] == "model.py(21): forward"


@pytest.mark.parametrize(
    "frame",
    [
        "/usr/lib/site-packages/torch/nn/functional.py(2134): linear",
        "contextlib.py(78): inner",
        "accelerate/hooks.py(170): wrapper",
        "<built-in function linear>",
    ],
)
def test_frames_that_are_not_entry_points(frame: str) -> None:
    builder = trace().python(frame).child("aten::mm", MM).launches("gemm")
    assert report(builder).operations["entry_point"].to_list() == [None]


def test_a_backward_call_belongs_to_the_module_of_its_forward_op() -> None:
    builder = trace().python("model.py(21): forward").python("nn.Module: Linear_3")
    builder.child("aten::mm", MM, seq=7).launches("k").thread(2)
    builder.op("autograd::engine::evaluate_function: MmBackward0", seq=7)
    builder.child("aten::mm", [[8, 2], [2, 4]]).launches("k_backward")
    row = report(builder).operations.filter(pl.col("input_dims") == "((8, 2), (2, 4))")
    assert row["module_path"].to_list() == [["Linear_3"]]
    assert row["entry_point"].to_list() == ["model.py(21): forward"]


def test_without_python_stacks_there_is_no_module_path() -> None:
    row = report(trace().op("aten::mm", MM).launches("gemm")).operations.row(0, named=True)
    assert (row["module_path"], row["entry_point"]) == ([], None)


def test_launchers_below_an_operation() -> None:
    builder = trace()
    for extra in ("aten::zero_", "aten::fill_"):
        builder.op("aten::mm", MM).child("aten::copy_x").launches("cast", us=1).up()
        builder.child(extra).launches("fill", us=1).up().launches("gemm", us=3)
    row = report(builder).operations.row(0, named=True)
    assert row["operation_count"] == 2
    assert row["launcher_names"] == ["aten::copy_x", "aten::zero_", "aten::mm", "aten::fill_"]
    assert len(row["launcher_uids"]) == 3  # of the example call alone
    assert [(k["name"], k["count"], k["total_us"]) for k in row["kernels"]] == [
        ("gemm", 2, 6.0),
        ("cast", 2, 2.0),
        ("fill", 2, 2.0),
    ]
    assert row["kernel_count"] == 6


def test_kernel_time_is_busy_time_and_shares_are_of_the_timeline() -> None:
    builder = trace().op("aten::mm", MM).launches("a", us=10, at_us=2000.0)
    builder.launches("b", us=10, at_us=2005.0, stream=8)
    builder.launches("Memcpy DtoD (Device -> Device)", us=15, at_us=2015.0, cat="gpu_memcpy")
    row = report(builder).operations.row(0, named=True)
    assert row["kernel_time_us"] == 30.0
    assert row["percent_of_compute"] == pytest.approx(100.0)  # of the sum of kernels
    assert row["percent_of_total"] == pytest.approx(100.0)


def test_spread_over_the_calls() -> None:
    builder = trace()
    for us in (2.0, 4.0, 9.0):
        builder.op("aten::mm", MM, us=50.0).launches("gemm", us=us)
    row = report(builder).operations.row(0, named=True)
    assert (row["kernel_time_us"], row["kernel_time_us_mean"]) == (15.0, 5.0)
    assert row["kernel_time_us_std"] == pytest.approx(13**0.5)
    assert row["host_time_us"] == 150.0
    single = report(trace().op("aten::mm", MM).launches("gemm")).operations.row(0, named=True)
    assert single["kernel_time_us_std"] is None


def test_direction_by_category_then_by_the_autograd_node_above() -> None:
    conv = [[1, 3, 8, 8], [4, 3, 3, 3], []]
    builder = trace().op("aten::cudnn_convolution", conv).launches("conv", us=30).up()
    builder.thread(2).op(BACKWARD_PREFIX + " MmBackward0").child("MmBackward0")
    builder.child("aten::mm", MM).launches("gemm", us=20)
    builder.thread(3).op("aten::mm", [[4, 4], [4, 4]]).launches("gemm", us=10)
    assert report(builder).operations["direction"].to_list() == ["forward", "backward", None]


def test_call_path_of_an_operation() -> None:
    builder = model().child("aten::expand", [[2]]).up().launches("gemm", us=5)
    found = report(builder)
    uid = found.operations["uid"][0]
    path = found.call_paths([uid])[uid]
    assert path.op_name == "aten::addmm"
    assert path.input_dims == "((2,), (8, 4), (4, 2))"
    assert [(f.kind, f.name) for f in path.parent_chain[:3]] == [
        ("python", "train.py(10): <module>"),
        ("python", "model.py(7): forward"),
        ("module", "nn.Module: Net_0"),
    ]
    assert (path.parent_chain[-1].kind, path.parent_chain[-1].name) == ("op", "aten::linear")
    assert path.nn_module_chain == ("Net_0", "Linear_3")
    assert path.entry_point == "model.py(21): forward"
    assert [(e.kind, e.name, e.depth, e.kernel) for e in path.subtree] == [
        ("op", "aten::expand", 1, None),
        ("runtime", "cudaLaunchKernel", 1, "gemm"),
        ("kernel", "gemm", 2, "gemm"),
    ]
    first, launch, _ = path.subtree
    assert first.input_dims == "((2,),)"
    assert launch.kernel_dur_us == 5.0
    assert [(k.name, k.dur_us, k.stream) for k in path.kernels] == [("gemm", 5.0, 7)]


def test_call_path_of_a_synthetic_row_and_of_a_call_that_is_no_operation() -> None:
    builder = trace().python("serve.py(3): step").graph(("a", 2.0), ("b", 3.0)).up()
    found = report(builder.op("outer").child("aten::mm", MM).launches("gemm"))
    synthetic = next(
        uid
        for uid, name in found.operations.select("uid", "name").iter_rows()
        if name.startswith("cudaGraphLaunch->a")
    )
    outer = found.trace.cpu_ops["uid"][0]
    paths = found.call_paths([synthetic, outer])
    assert paths[synthetic].entry_point == "serve.py(3): step"
    assert [k.name for k in paths[synthetic].kernels] == ["a"]
    assert list(paths[synthetic].subtree) == []
    assert [k.name for k in paths[outer].kernels] == ["gemm"]
    assert paths[outer].op_name == "outer"


def test_gpu_work_knows_who_launched_it() -> None:
    builder = trace().unlinked("lost").op("aten::linear").child("aten::mm", MM)
    builder.launches("gemm").op("c10d::x").launches("ncclDevKernel")
    found = report(builder)
    lost, gemm, nccl = found.gpu_work.iter_rows(named=True)
    mm = found.operations["uid"][0]
    assert (lost["linked"], lost["launcher_uid"], lost["operation_uid"]) == (False, None, None)
    assert (gemm["launcher_name"], gemm["launcher_uid"], gemm["operation_uid"]) == (
        "aten::mm",
        mm,
        mm,
    )
    assert (nccl["kind"], nccl["launcher_name"], nccl["operation_uid"]) == (
        "communication",
        "c10d::x",
        None,
    )
    assert gemm["dur_ns"] == 10_000


def test_copies_and_communication_are_no_compute_and_shares_add_up() -> None:
    built = trace().op("aten::copy_", [[8], [8]])
    built.launches("Memcpy DtoD (Device -> Device)", us=30.0, cat="gpu_memcpy")
    built.op("aten::mul", [[8], [8]]).launches("mul_kernel", us=40.0)
    built.op("aten::mm", [[8, 8], [8, 8]]).launches("gemm", us=40.0, stream=9)
    shares = dict(report(built).operations.select("name", "percent_of_compute").rows())
    assert shares["aten::copy_"] == 0.0
    assert shares["aten::mm"] == shares["aten::mul"] == pytest.approx(50.0)
