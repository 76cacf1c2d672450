"""Chains that one kernel could replace, by frames or by shapes."""

from typing import Any

import polars as pl
import pytest

from jarvis.perf_report import PerfReport
from tests.builders import TraceBuilder, trace

X, ROW, WEIGHT = [16, 32, 64], [16, 32, 1], [64]
HALF = "c10::BFloat16"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4>"
REDUCE = "void at::native::reduce_kernel<512>"
NORM = ("copy_", "pow", "mean", "add", "rsqrt", "mul", "copy_", "mul")
NORM_DIMS: tuple[list[Any], ...] = (
    [X, X, []],
    [X, []],
    [X, [], []],
    [ROW, [], []],
    [ROW],
    [X, ROW],
    [X, X, []],
    [WEIGHT, X],
)
NORM_TYPES: tuple[list[str], ...] = (
    ["float", HALF, "Scalar"],
    ["float", "Scalar"],
    ["float", "ScalarList", "Scalar"],
    ["float", "double", "Scalar"],
    ["float"],
    ["float", "float"],
    [HALF, "float", "Scalar"],
    [HALF, HALF],
)


def op(built: TraceBuilder, name: str, dims: list[Any], us: float = 10.0, **options: Any) -> None:
    """One operator inside the open frame, with one kernel."""
    kernel = REDUCE if name in ("mean", "sum") else ELEMENTWISE
    built.child(f"aten::{name}", dims, **options).launches(kernel, us=us).up()


def norm(built: TraceBuilder, us: float = 10.0) -> None:
    """The eight operators of a normalization by root mean square."""
    for name, dims, types in zip(NORM, NORM_DIMS, NORM_TYPES, strict=True):
        op(built, name, dims, us, types=types)


def product(built: TraceBuilder) -> None:
    """A matrix product."""
    built.child("aten::mm", [[512, 64], [64, 64]]).launches("Cijk_gemm", us=50).up()


def chains(built: TraceBuilder) -> pl.DataFrame:
    """Return chains of steps that fuse with each other, without those that fuse into a product."""
    found = PerfReport(built.read(), None, strict=True).fusion_chains
    return found.filter(pl.col("product_name").is_null())


def modules(count: int, us: tuple[float, ...] | None = None) -> TraceBuilder:
    """Add layers of a product and a normalization, each in its module."""
    built = trace()
    built.python("run.py(1): main")
    for layer in range(count):
        built.python(f"nn.Module: Layer_{layer}").python("model.py(5): forward")
        product(built)
        built.python(f"nn.Module: RMSNorm_{layer}")
        built.python("torch/nn/modules/module.py(1755): _call_impl")
        built.python("model.py(218): forward")
        norm(built, us[layer] if us else 10.0)
        built.up(5)
    return built


def test_a_module_of_eight_operators_is_one_chain() -> None:
    row = chains(modules(3)).row(0, named=True)
    assert (row["scope_kind"], row["scope_name"]) == ("module", "RMSNorm")
    assert row["step_names"] == [f"aten::{name}" for name in NORM]
    assert (row["instance_count"], row["kernel_count"]) == (3, 24)
    assert row["is_bounded"]
    assert row["has_data_flow"]


def test_the_time_is_that_of_all_instances_not_of_the_first_times_their_number() -> None:
    row = chains(modules(3, (10.0, 20.0, 40.0))).row(0, named=True)
    assert row["kernel_time_us"] == 8 * (10 + 20 + 40)


def test_a_fused_kernel_reads_what_comes_from_outside_and_writes_the_last_result() -> None:
    row = chains(modules(2)).row(0, named=True)
    one_pass = 16 * 32 * 64 * 2
    assert row["fused_bytes"] == 2 * (one_pass + 64 * 2 + one_pass)
    assert row["step_bytes"] > 5 * row["fused_bytes"]


def test_nested_frames_give_one_chain() -> None:
    assert chains(modules(2)).height == 1


def test_steps_sum_to_the_chain() -> None:
    report = PerfReport(modules(3).read(), None, strict=True)
    steps = report.fusion_steps
    assert steps["position"].to_list() == list(range(8))
    assert steps["kernel_time_us"].sum() == report.fusion_chains["kernel_time_us"][0]
    assert set(steps["operation_uid"]) <= set(report.operations["uid"])


def test_a_python_function_bounds_a_chain_and_its_helpers_belong_to_it() -> None:
    built = trace()
    built.python("run.py(1): main")
    q, half, table = [2, 4, 8, 64], [2, 4, 8, 32], [1, 1, 8, 64]
    for _ in range(2):
        product(built)
        built.python("model.py(68): apply_rotary_pos_emb")
        for _ in ("q", "k"):
            op(built, "mul", [q, table])
            built.python("model.py(61): rotate_half")
            op(built, "neg", [half])
            op(built, "cat", [[half, half], []], types=["TensorList", "Scalar"])
            built.up()
            op(built, "mul", [q, table])
            op(built, "add", [q, q, []])
        built.up()
    (row,) = chains(built).iter_rows(named=True)
    assert row["scope_name"] == "apply_rotary_pos_emb"
    assert [name.removeprefix("aten::") for name in row["step_names"]] == [
        "mul",
        "neg",
        "cat",
        "mul",
        "add",
    ]
    assert row["instance_count"] == 4  # queries and keys of two calls
    assert not row["has_data_flow"]  # the halves are views, which no shape proves


def test_without_stacks_neighbors_whose_shapes_fit_are_a_chain() -> None:
    built = trace()
    for _ in range(3):
        built.op("aten::mm", [[512, 64], [64, 64]]).launches("Cijk_gemm", us=50).up()
        for name, dims, types in zip(NORM, NORM_DIMS, NORM_TYPES, strict=True):
            built.op(f"aten::{name}", dims, types=types).launches(ELEMENTWISE, us=10).up()
    (row,) = chains(built).iter_rows(named=True)
    assert (row["scope_kind"], row["scope_name"]) == ("sequence", None)
    assert (len(row["step_names"]), row["instance_count"]) == (8, 3)
    assert row["has_data_flow"]


def test_siblings_under_one_operator_are_a_chain() -> None:
    built = trace()
    for _ in range(2):
        built.op("RMSNormFunction", [X])
        norm(built)
        built.up()
    (row,) = chains(built).iter_rows(named=True)
    assert (row["scope_kind"], row["scope_name"]) == ("operator", "RMSNormFunction")


@pytest.mark.parametrize("frame", ["nn.Module: Driver_0", "train.py(3): clear", None])
def test_the_same_operator_on_many_tensors_is_no_chain(frame: str | None) -> None:
    built = trace()
    if frame:
        built.python("run.py(1): main").python(frame)
    for _ in range(6):
        op(built, "mul", [X, []])
    if frame:
        built.up()
        product(built)
    assert chains(built).is_empty()


def test_neighbors_of_other_shapes_are_no_chain() -> None:
    built = trace()
    built.python("run.py(1): main")
    product(built)
    op(built, "exp", [[8, 8]])
    op(built, "mul", [[1000], [1000]])
    assert chains(built).is_empty()


def test_a_module_whose_operators_do_not_share_data_is_no_chain() -> None:
    built = trace()
    built.python("run.py(1): main")
    product(built)
    built.python("nn.Module: Counter_0")
    op(built, "add_", [[], [], []])
    op(built, "exp", [X])
    built.up()
    assert chains(built).is_empty()


@pytest.mark.parametrize(
    ("name", "dims", "kernel"),
    [
        ("aten::mm", [[512, 64], [64, 64]], "Cijk_gemm"),
        ("triton_poi_fused_mul_0", [X, X], "triton_poi_fused_mul_0"),
        ("_C::silu_and_mul", [X, X], "act_and_mul_kernel"),
        ("c10d::allreduce_", [X], "ncclDevKernel_AllReduce"),
        ("aten::batch_norm", [X, [32], [32], [32], [32], [], [], [], []], "bn_fw_tr_1C11"),
    ],
)
def test_operators_that_cannot_be_fused_split_a_chain(
    name: str, dims: list[Any], kernel: str
) -> None:
    built = trace()
    built.op("aten::exp", [X]).launches(ELEMENTWISE)
    built.op(name, dims).launches(kernel)
    built.op("aten::mul", [X, X]).launches(ELEMENTWISE)
    assert chains(built).is_empty()


def test_a_copy_of_memory_splits_a_chain() -> None:
    built = trace()
    built.op("aten::exp", [X]).launches(ELEMENTWISE)
    built.op("aten::copy_", [X, X, []]).launches(
        "Memcpy DtoD (Device -> Device)", cat="gpu_memcpy", call="cudaMemcpyAsync"
    )
    built.op("aten::mul", [X, X]).launches(ELEMENTWISE)
    assert chains(built).is_empty()


def test_another_thread_or_stream_splits_a_chain() -> None:
    built = trace()
    built.op("aten::exp", [X]).launches(ELEMENTWISE)
    built.thread(2).op("aten::mul", [X, X]).launches(ELEMENTWISE)
    built.thread(3).op("aten::exp", [X]).launches(ELEMENTWISE)
    built.op("aten::mul", [X, X]).launches(ELEMENTWISE, stream=8)
    assert chains(built).is_empty()


def test_a_function_with_very_many_steps_is_no_chain() -> None:
    built = trace()
    built.python("run.py(1): main")
    product(built)
    built.python("model.py(1): everything")
    for _ in range(5):
        for name in ("exp", "mul", "add", "neg"):
            op(built, name, [X, X])
    op(built, "exp", [X])
    built.up()
    assert chains(built).is_empty()
