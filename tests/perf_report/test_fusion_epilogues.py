"""Epilogues of matrix products: elementwise work directly after one, and other work."""

from typing import Any

import polars as pl
import pytest

from jarvis.perf_report import PerfReport
from tests.builders import TraceBuilder, trace

B, S, K, N = 4, 256, 512, 2048
INPUT, WEIGHT, RESULT = [B * S, K], [K, N], [B, S, N]
RESULT_BYTES = B * S * N * 2
FLOAT, HALF = "float", "c10::BFloat16"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4>"


def add(built: TraceBuilder, name: str, dims: list[Any], us: float = 10, **options: Any) -> None:
    built.child(f"aten::{name}", dims, **options).launches(ELEMENTWISE, us=us).up()


def product(built: TraceBuilder, us: float = 50) -> None:
    built.child("aten::mm", [INPUT, WEIGHT]).launches("Cijk_product", us=us).up()


def layer_norm(built: TraceBuilder) -> None:
    concrete = ["", f"[{N}]", "", "", "1e-05", "True"]
    add(built, "layer_norm", [RESULT, [], [N], [N], [], []], concrete=concrete)


def layer() -> TraceBuilder:
    return trace().python("run.py(1): main").python("nn.Module: MLP_0")


def report(built: TraceBuilder) -> PerfReport:
    return PerfReport(built.read(), None, strict=True)


def epilogues(built: TraceBuilder) -> list[dict[str, Any]]:
    found = report(built).fusion_chains
    return found.filter(pl.col("product_name").is_not_null()).to_dicts()


def test_an_activation_behind_a_product_is_its_epilogue() -> None:
    built = layer()
    for us in (10, 30):
        product(built)
        add(built, "gelu", [RESULT, []], us)
        built.child("aten::mm", [[B * S, N], [N, K]]).launches("Cijk_next", us=50).up()
    found = report(built)
    (row,) = found.fusion_chains.to_dicts()
    assert (row["scope_name"], row["product_name"]) == ("MLP", "aten::mm")
    assert row["step_names"] == ["aten::gelu"]
    assert (row["instance_count"], row["kernel_count"]) == (2, 2)
    assert (row["kernel_time_us"], row["product_time_us"]) == (40, 100)
    assert (row["product_kernel"], row["product_dims"]) == (
        "Cijk_product",
        "((1024, 512), (512, 2048))",
    )
    assert (row["fused_bytes"], row["step_bytes"]) == (0, 2 * 2 * RESULT_BYTES)
    assert set(found.fusion_steps["name"]) == {"aten::gelu"}


def test_the_kernel_of_a_product_is_its_longest() -> None:
    built = layer()
    built.child("aten::mm", [INPUT, WEIGHT])
    built.launches("Memset (Device)", us=1, cat="gpu_memset", call="cudaMemsetAsync")
    built.launches("Cijk_product", us=50).up()
    add(built, "gelu", [RESULT, []])
    (row,) = epilogues(built)
    assert row["product_kernel"] == "Cijk_product"


def test_other_inputs_of_the_steps_are_still_read() -> None:
    built = layer()
    product(built)
    add(built, "silu", [RESULT])
    product(built)
    add(built, "mul", [RESULT, RESULT])
    gate, activation = sorted(epilogues(built), key=lambda row: row["step_names"][0])
    assert gate["fused_bytes"] == RESULT_BYTES
    assert activation["fused_bytes"] == 0


def test_a_cast_writes_what_it_widens() -> None:
    built = layer()
    product(built)
    add(built, "copy_", [RESULT, RESULT, []], types=[FLOAT, HALF, "Scalar"])
    (row,) = epilogues(built)
    assert row["fused_bytes"] == 2 * RESULT_BYTES - RESULT_BYTES


def test_a_result_that_a_later_step_reads_is_written_too() -> None:
    built = layer()
    product(built)
    add(built, "gelu", [RESULT, []])
    built.child("custom::combine", [RESULT, RESULT]).launches("combine_kernel").up()
    (row,) = epilogues(built)
    assert (row["kept_count"], row["fused_bytes"]) == (1, RESULT_BYTES)


@pytest.mark.parametrize(("name", "kept"), [("gelu", 1), ("relu", 0)])
def test_a_result_that_the_backward_pass_reads_is_written_too(name: str, kept: int) -> None:
    built = layer()
    product(built)
    add(built, name, [RESULT], seq=3)
    node = f"autograd::engine::evaluate_function: {name}Backward0"
    built.thread(2).op(node, None, seq=3)
    built.child(f"aten::{name}_backward", [RESULT, RESULT]).launches(ELEMENTWISE)
    (row,) = epilogues(built)
    assert row["kept_count"] == kept


def test_the_same_operator_on_many_tensors_is_no_long_epilogue() -> None:
    built = layer()
    product(built)
    for _ in range(5):
        add(built, "mul", [RESULT, []])
    (row,) = epilogues(built)
    assert (row["step_names"], row["kernel_count"]) == (["aten::mul"], 1)


def test_steps_of_a_chain_belong_to_the_chain() -> None:
    built = layer()
    product(built)
    add(built, "add", [RESULT, RESULT, []])
    layer_norm(built)
    assert epilogues(built) == []
    assert report(built).fusion_chains["step_names"].to_list() == [
        ["aten::add", "aten::layer_norm"]
    ]


def test_attention_keeps_its_scale() -> None:
    built = layer()
    scores = [8, 128, 128]
    built.child("aten::bmm", [[8, 128, 64], [8, 64, 128]]).launches("Cijk_scores").up()
    add(built, "mul", [scores, []])
    add(built, "_softmax", [scores, [], []])
    built.child("aten::bmm", [scores, [8, 128, 64]]).launches("Cijk_values").up()
    assert epilogues(built) == []


def test_an_operator_that_reads_operands_of_the_product_is_no_epilogue() -> None:
    built = layer()
    product(built)
    add(built, "mul", [INPUT, INPUT])
    assert epilogues(built) == []


def test_another_view_of_the_result_is_no_epilogue() -> None:
    built = layer()
    product(built)
    add(built, "mul", [[B, 16, S, N // 16], [B, 16, S, N // 16]])
    assert epilogues(built) == []


def test_a_copy_to_another_layout_is_no_epilogue() -> None:
    built = layer()
    product(built)
    add(built, "copy_", [RESULT, RESULT, []])
    assert epilogues(built) == []


def test_a_reduction_or_normalization_is_no_epilogue() -> None:
    built = layer()
    product(built)
    add(built, "mean", [RESULT, [], [], []])
    product(built)
    layer_norm(built)
    assert epilogues(built) == []


def test_another_stream_thread_or_kernel_between_prevents_an_epilogue() -> None:
    built = trace()
    built.op("aten::mm", [INPUT, WEIGHT]).launches("Cijk_product")
    built.op("aten::gelu", [RESULT, []]).launches(ELEMENTWISE, stream=8)
    built.op("aten::mm", [INPUT, WEIGHT]).launches("Cijk_product")
    built.thread(2).op("aten::gelu", [RESULT, []]).launches(ELEMENTWISE)
    built.thread(3).op("aten::mm", [INPUT, WEIGHT]).launches("Cijk_product")
    built.op("aten::copy_", [RESULT, RESULT, []]).launches(
        "Memcpy DtoD (Device -> Device)", cat="gpu_memcpy", call="cudaMemcpyAsync"
    )
    built.op("aten::gelu", [RESULT, []]).launches(ELEMENTWISE)
    assert epilogues(built) == []
