"""Rows with costs of models that TraceLens lacks."""

from jarvis.hardware import HardwareSpec
from jarvis.tracelens.report import TraceLensReport
from tests.builders import TraceBuilder, trace

PEAKS = {"matrix_bf16": 100.0, "vector_bf16": 10.0, "vector_fp32": 10.0}
SPEC = HardwareSpec(
    name="Test GPU",
    memory_gb=80,
    mem_bw_gbps=1000,
    max_achievable_tflops=PEAKS,
    sources={"default": "made up for tests"},
)
MILLION = 1_000_000
KERNEL = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous "
    "namespace)::TensorListMetadata<1>, at::native::(anonymous namespace)::BinaryOpScalarFunctor"
    "<c10::BFloat16, 1, 1, 0>, std::multiplies<float>, float>(...)"
)


def _only_row(builder: TraceBuilder) -> dict[str, object]:
    found = TraceLensReport(builder.read(), SPEC).operations
    assert found.height == 1
    row: dict[str, object] = found.row(0, named=True)
    return row


def test_a_fused_kernel_of_float32_has_a_roofline() -> None:
    name = "triton_poi_fused_add_0"
    types, concrete = ["float", "float", "Scalar"], ["", "", str(MILLION)]
    builder = trace().op(name, [[MILLION], [MILLION], []], types=types, concrete=concrete)
    row = _only_row(builder.launches(name, us=16))
    assert (row["flops"], row["bytes"]) == (MILLION, 8 * MILLION)
    assert (row["bound"], row["pct_roofline"]) == ("memory", 50.0)  # 8 us of 16
    assert row["op_category"] == "triton"


def test_an_op_over_lists_is_priced_by_the_type_in_its_kernel() -> None:
    builder = trace().op(
        "aten::_foreach_mul_",
        [[[MILLION], [MILLION]], []],
        types=["TensorList", "Scalar"],
        strides=[[[1], [1]], []],
        concrete=["", "2."],
    )
    row = _only_row(builder.launches(KERNEL, us=16))
    assert (row["flops"], row["bytes"]) == (2 * MILLION, 8 * MILLION)
    assert (row["bound"], row["pct_roofline"]) == ("memory", 50.0)
    assert (row["model_origin"], row["op_category"]) == ("jarvis", "multi_tensor_apply")


def test_own_models_choose_no_rows() -> None:
    builder = trace().op("aten::relu", [[8, 4]]).child("aten::clamp_min", [[8, 4], []])
    row = _only_row(builder.launches("void at::native::vectorized_elementwise_kernel<4>", us=5))
    assert row["name"] == "aten::clamp_min"


def test_own_models_can_be_left_out() -> None:
    builder = trace().op("aten::tanh", [[8, 4]]).launches("k", us=5).op("aten::neg", [[8, 4]])
    loaded = builder.launches("k", us=4).read()
    with_own = TraceLensReport(loaded, SPEC).unified_perf_summary
    without = TraceLensReport(loaded, SPEC, tracelens_models_only=True).unified_perf_summary
    assert with_own["has_perf_model"].to_list() == [True, True]
    assert without["has_perf_model"].to_list() == [False, True]
    assert with_own["name"].to_list() == without["name"].to_list()
    assert with_own["op_category"].to_list() == without["op_category"].to_list()
