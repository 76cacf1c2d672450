"""Attention as single operators: a softmax between two matrix products that share its shape."""

from typing import Any

import polars as pl
import pytest

from jarvis.perf_report import PerfReport
from tests.builders import TraceBuilder, trace

B, H, N, D = 2, 4, 128, 64
Q, K_T, SCORES, V = [B * H, N, D], [B * H, D, N], [B * H, N, N], [B * H, N, D]
MASKED = [B, H, N, N]
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4>"
SOFTMAX = "void at::native::cunn_SoftMaxForward<4>"


def add(built: TraceBuilder, name: str, dims: list[Any], us: float, kernel: str) -> None:
    built.child(f"aten::{name}", dims).launches(kernel, us=us).up()


def attention(built: TraceBuilder, softmax: tuple[str, ...] = ("_softmax",)) -> None:
    """Scores, scale, mask, softmax, copy, values: 100 + 10 + 20 + 30 each + 5 + 90 µs."""
    add(built, "bmm", [Q, K_T], 100, "Cijk_scores")
    add(built, "mul", [MASKED, []], 10, ELEMENTWISE)
    add(built, "add", [MASKED, [B, 1, 1, N], []], 20, ELEMENTWISE)
    for name in softmax:
        kernel = SOFTMAX if "softmax" in name else ELEMENTWISE
        add(built, name, [MASKED, [], []], 30, kernel)
    add(built, "copy_", [MASKED, MASKED, []], 5, ELEMENTWISE)
    add(built, "bmm", [SCORES, V], 90, "Cijk_values")


def report(built: TraceBuilder) -> PerfReport:
    return PerfReport(built.read(), None, strict=True)


def groups(built: TraceBuilder) -> pl.DataFrame:
    return report(built).attention_groups


def layers(count: int = 3, softmax: tuple[str, ...] = ("_softmax",)) -> TraceBuilder:
    built = trace()
    built.python("run.py(1): main")
    for layer in range(count):
        built.python(f"nn.Module: SelfAttention_{layer}").python("model.py(9): forward")
        add(built, "addmm", [[D], [B * N, D], [D, D]], 40, "Cijk_projection")
        attention(built, softmax)
        add(built, "mm", [[B * N, D], [D, D]], 40, "Cijk_projection")
        built.up(2)
    return built


def test_the_group_runs_from_one_product_to_the_other() -> None:
    (row,) = groups(layers()).iter_rows(named=True)
    assert row["scope_name"] == "SelfAttention"
    assert [name.removeprefix("aten::") for name in row["step_names"]] == [
        "bmm",
        "mul",
        "add",
        "_softmax",
        "copy_",
        "bmm",
    ]
    assert (row["instance_count"], row["kernel_count"]) == (3, 18)
    assert row["kernel_time_us"] == 3 * (100 + 10 + 20 + 30 + 5 + 90)


def test_the_sizes_come_from_the_products_and_the_softmax() -> None:
    row = groups(layers(1)).row(0, named=True)
    names = ("batch", "heads", "n_q", "n_kv", "d_qk", "d_v", "dtype")
    assert [row[name] for name in names] == [B, H, N, N, D, D, "c10::BFloat16"]
    assert row["fused_flops"] == 4 * B * H * N * N * D
    assert row["fused_bytes"] == 4 * B * H * N * D * 2
    assert row["compute"] == "matrix_bf16"


def test_a_softmax_of_three_operators_is_one_too() -> None:
    built = layers(2, ("amax", "sub", "exp", "sum", "div"))
    (row,) = groups(built).iter_rows(named=True)
    assert row["instance_count"] == 2


def test_the_steps_of_a_group_are_no_chain() -> None:
    assert report(layers()).fusion_chains.is_empty()


def test_the_steps_name_their_operations() -> None:
    found = report(layers())
    steps = found.attention_steps
    assert set(steps["group"]) == {1}
    assert steps["kernel_time_us"].sum() == found.attention_groups["kernel_time_us"][0]
    assert set(steps["operation_uid"]) <= set(found.operations["uid"])


def test_without_stacks_the_shapes_suffice() -> None:
    built = trace()
    built.op("aten::_scaled_dot_product_attention_math", [Q, Q, Q])
    attention(built)
    (row,) = groups(built).iter_rows(named=True)
    assert row["scope_kind"] == "operator"


def classifier(built: TraceBuilder) -> None:
    """A softmax after a projection, then a product that does not read it."""
    add(built, "addmm", [[10], [32, D], [D, 10]], 40, "Cijk_head")
    add(built, "_softmax", [[32, 10], [], []], 5, SOFTMAX)
    add(built, "mm", [[32, D], [D, 10]], 40, "Cijk_other")


def no_product_after(built: TraceBuilder) -> None:
    """Scores and softmax, and nothing multiplies the values."""
    add(built, "bmm", [Q, K_T], 100, "Cijk_scores")
    add(built, "_softmax", [SCORES, [], []], 30, SOFTMAX)


def no_softmax(built: TraceBuilder) -> None:
    """Two products of fitting shapes with a scale between them."""
    add(built, "bmm", [Q, K_T], 100, "Cijk_scores")
    add(built, "mul", [SCORES, []], 30, ELEMENTWISE)
    add(built, "bmm", [SCORES, V], 90, "Cijk_values")


def another_product_between(built: TraceBuilder) -> None:
    """A projection of the values after the softmax, which cannot be fused."""
    add(built, "bmm", [Q, K_T], 100, "Cijk_scores")
    add(built, "_softmax", [SCORES, [], []], 30, SOFTMAX)
    add(built, "mm", [[B * N, D], [D, D]], 40, "Cijk_projection")
    add(built, "_softmax", [[7, 7], [], []], 30, SOFTMAX)
    add(built, "bmm", [SCORES, V], 90, "Cijk_values")


def fused(built: TraceBuilder) -> None:
    """One kernel for the whole attention."""
    shape = [B, H, N, D]
    built.child(
        "aten::_scaled_dot_product_flash_attention",
        [shape, shape, shape, [], [], [], []],
        types=["c10::BFloat16"] * 3 + ["Scalar"] * 4,
        concrete=["", "", "", "0.", "False", "False", ""],
    ).launches("attn_fwd", us=40).up()


@pytest.mark.parametrize(
    "near_miss", [classifier, no_product_after, no_softmax, another_product_between, fused]
)
def test_chains_that_are_not_unfused_attention(near_miss: Any) -> None:
    built = trace()
    built.python("run.py(1): main")
    near_miss(built)
    assert groups(built).is_empty()
