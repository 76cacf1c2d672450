"""Pseudo ops: position, arguments, and effects on the report."""

import polars as pl
import pytest

from jarvis.trace import Trace
from jarvis.tracelens.options import ReportOptions
from jarvis.tracelens.pseudo_ops import with_pseudo_ops
from jarvis.tracelens.report import TraceLensReport
from tests.builders import TraceBuilder, trace

BF16, FP8 = "c10::BFloat16", "c10::Float8_e4m3fn"
TOKENS, SCORES = [2, 8], [2, 4]
UP, DOWN, CHOICES = [4, 8, 8], [4, 8, 4], [2, 2]
FUSED = "aiter::fmoe_bf16_g1u1"
STAGE = "aiter/fused_moe.py(88): flydsl_moe_stage{}"
DECODE_FRAME = "aiter/mla.py(155): mla_decode_fwd"


def added(builder: TraceBuilder) -> tuple[Trace, pl.DataFrame]:
    """Return the trace with pseudo ops, and the pseudo ops."""
    read = builder.read()
    result = with_pseudo_ops(read)
    known = read.cpu_ops["uid"].implode()
    return result, result.cpu_ops.filter(~pl.col("uid").is_in(known))


def names_above(result: Trace, kernel: str) -> list[str]:
    """Return the CPU ops above the launch of a kernel, nearest first."""
    gpu_uid = result.gpu_events.filter(pl.col("name") == kernel)["uid"].item()
    uid = result.launches.filter(pl.col("gpu_uid") == gpu_uid)["runtime_uid"].item()
    parents = dict(result.call_tree.select("uid", "op_uid").iter_rows())
    names = dict(result.cpu_ops.select("uid", "name").iter_rows())
    found = []
    while (uid := parents[uid]) is not None:
        found.append(names[uid])
    return found


def fused_experts(*kernels: str) -> TraceBuilder:
    builder = trace().op("vllm::moe_forward", [TOKENS, SCORES])
    builder.child(
        "vllm::rocm_aiter_fused_moe", [TOKENS, UP, DOWN, CHOICES], types=[BF16, FP8, FP8, "int"]
    )
    for kernel in kernels:
        builder.launches(kernel, us=10)
    return builder


def routed_experts(choice: list[str] | None) -> TraceBuilder:
    builder = trace().op("vllm::moe_forward", [TOKENS, SCORES])
    if choice is not None:
        builder.child("TopKForward", [SCORES, []], concrete=choice).up()
    builder.launches("_matmul_ogs_bf16_mxfp4_swiglu").launches("_matmul_ogs_bf16_mxfp4")
    return builder.launches("_finalize_matmul_scatter").launches("other")


def test_a_fused_kernel_is_given_the_arguments_of_its_op() -> None:
    builder = fused_experts("aiter::MoeSorting_fmoe", FUSED, "aiter::fmoe_quant")
    event_count = len(builder.events)
    result, pseudo = added(builder)
    assert pseudo["name"].to_list() == ["pseudo_op::moe_aiter_fused_1stage"]
    assert pseudo["uid"].to_list() == [event_count]
    assert result.event_count == event_count + 1
    assert names_above(result, FUSED) == [
        "pseudo_op::moe_aiter_fused_1stage",
        "vllm::rocm_aiter_fused_moe",
        "vllm::moe_forward",
    ]
    assert names_above(result, "aiter::fmoe_quant")[0] == "vllm::rocm_aiter_fused_moe"
    assert pseudo["input_dims"].item() == "[[2,8],[4,8,8],[4,8,4],[2,2]]"


def test_a_pseudo_op_is_priced_in_the_report() -> None:
    result, _ = added(fused_experts("aiter::MoeSorting", FUSED))
    report = TraceLensReport(result, None, strict=True)
    sheet = report.roofline_sheets["MoE_fused_fwd"]
    assert sheet.select("name", "gflops", "kernel_time_us_sum").rows() == [
        ("pseudo_op::moe_aiter_fused_1stage", 816 / 1e9, 10.0)
    ]
    unified = report.unified_perf_summary.sort("name").select("name", "kernel_time_us_sum")
    assert unified.rows() == [
        ("pseudo_op::moe_aiter_fused_1stage", 10.0),
        ("vllm::rocm_aiter_fused_moe->aiter::MoeSorting (Synthetic Op)", 10.0),
    ]
    uids = report.unified_perf_summary["ex_uid"]
    assert uids.n_unique() == 2


def test_in_the_inference_layout_the_ops_sheets_have_the_op_around_a_pseudo_op() -> None:
    read = fused_experts("aiter::MoeSorting", FUSED).read()

    def names(options: ReportOptions) -> list[tuple[str, int]]:
        sheet = TraceLensReport(read, None, options=options).ops_unique_args
        return sheet.select("name", "operation_count").rows()

    owner = "vllm::rocm_aiter_fused_moe"
    inference = ReportOptions(enable_pseudo_ops=True, inference=True)
    assert names(inference) == [(owner, 1)]
    assert set(names(ReportOptions(enable_pseudo_ops=True))) == {
        (owner, 1),
        ("pseudo_op::moe_aiter_fused_1stage", 1),
    }
    unified = TraceLensReport(read, None, options=inference).unified_perf_summary["name"]
    assert "pseudo_op::moe_aiter_fused_1stage" in unified.to_list()


def test_sheets_have_the_concrete_inputs_of_the_op() -> None:
    read = routed_experts(["", "2"]).read()
    report = TraceLensReport(read, None, options=ReportOptions(enable_pseudo_ops=True))
    sheets = (report.unified_perf_summary, *report.roofline_sheets.values())
    rows = pl.concat(
        sheet.filter(pl.col("name").str.starts_with("pseudo_op::moe_triton")).select(
            "name", pl.col("concrete_inputs").cast(pl.String)
        )
        for sheet in sheets
    )
    stem = "pseudo_op::moe_triton_unfused_"
    assert set(rows["name"]) == {f"{stem}up", f"{stem}down"}
    assert not rows["concrete_inputs"].str.contains("experts_per_token").any()


def test_several_fused_kernels_are_left_alone() -> None:
    _, pseudo = added(fused_experts(FUSED, "aiter::fmoe_other"))
    assert pseudo.is_empty()


@pytest.mark.parametrize(
    ("choice", "carried"),
    [
        (["", "2"], '["","","experts_per_token=2","gated=True"]'),
        (["", "many"], '["","","experts_per_token=4","gated=True"]'),
        (None, '["","","experts_per_token=4","gated=True"]'),
    ],
)
def test_routed_experts(choice: list[str] | None, carried: str) -> None:
    result, pseudo = added(routed_experts(choice))
    assert pseudo["name"].to_list() == [
        "pseudo_op::moe_triton_unfused_up",
        "pseudo_op::moe_triton_unfused_down",
        "pseudo_op::moe_triton_unfused_finalize_matmul_scatter",
    ]
    assert pseudo["concrete_inputs"].to_list() == [carried, carried, '["",""]']
    assert names_above(result, "_matmul_ogs_bf16_mxfp4")[0] == "pseudo_op::moe_triton_unfused_down"
    assert names_above(result, "other") == ["vllm::moe_forward"]


def test_routed_experts_without_a_gate_are_priced() -> None:
    builder = trace().op("vllm::moe_forward", [TOKENS, SCORES])
    builder.launches("_matmul_ogs_bf16_fp8_up").launches("_matmul_ogs_bf16_fp8_down")
    result, _ = added(builder)
    sheet = TraceLensReport(result, None, strict=True).roofline_sheets["MoE_unfused_fwd"]
    assert sheet.sort("name").select("name", "gflops", "param_topk", "param_gated").rows() == [
        ("pseudo_op::moe_triton_unfused_down", 1024 / 1e9, 4, "False"),
        ("pseudo_op::moe_triton_unfused_up", 1024 / 1e9, 4, "False"),
    ]


@pytest.mark.parametrize(("choices", "experts"), [(CHOICES, 2), ([], 8)])
@pytest.mark.parametrize(("rows", "gated"), [(8, "True"), (4, "False")])
def test_four_bit_experts(choices: list[int], experts: int, rows: int, gated: str) -> None:
    builder = trace().op(
        "vllm::outplace_fused_experts", [TOKENS, [4, rows, 4], [4, 8, 2], CHOICES, choices]
    )
    builder.launches("fused_moe_kernel_gptq_awq").launches("silu")
    builder.launches("fused_moe_kernel_gptq_awq")
    _, pseudo = added(builder)
    assert pseudo["name"].to_list() == [
        "pseudo_op::moe_gptq_awq_up",
        "pseudo_op::moe_gptq_awq_down",
    ]
    carried = f'["","","","","","experts_per_token={experts}","gated={gated}"]'
    assert pseudo["concrete_inputs"].to_list() == [carried, carried]


def test_frames_of_expert_stages_take_the_arguments_of_the_op_above() -> None:
    builder = trace().op("aiter::fused_moe_", [TOKENS, UP, DOWN, CHOICES])
    builder.python(STAGE.format(1)).child("aiter::inner").launches("first", us=4).up(2)
    builder.python(STAGE.format(2)).launches("second", us=6).up()
    builder.python(STAGE.format(1)).up()
    result, pseudo = added(builder)
    assert pseudo["name"].to_list() == [
        "pseudo_op::moe_flydsl_stage1",
        "pseudo_op::moe_flydsl_stage2",
    ]
    assert names_above(result, "first") == [
        "aiter::inner",
        "pseudo_op::moe_flydsl_stage1",
        "aiter::fused_moe_",
    ]
    sheet = TraceLensReport(result, None, strict=True).roofline_sheets["MoE_unfused_fwd"]
    assert sheet.sort("name")["kernel_time_us_sum"].to_list() == [4.0, 6.0]


def test_a_stage_outside_its_op_is_left_alone() -> None:
    builder = trace().op("other", [TOKENS]).python(STAGE.format(1)).launches("first")
    _, pseudo = added(builder)
    assert pseudo.is_empty()


def test_attention_frames_take_the_arguments_of_the_op_below() -> None:
    builder = trace().op("vllm::attention", [[2, 32]]).python(DECODE_FRAME).python(DECODE_FRAME)
    builder.child("aten::empty", [[1]]).up()
    builder.child("aiter::mla_stage1", [[2, 4, 8], [100, 1, 1, 8]]).launches("stage1").up()
    builder.child("aiter::mla_reduce").launches("reduce")
    result, pseudo = added(builder)
    assert pseudo.select("name", "input_dims").rows() == [
        ("pseudo_mla_decode_fwd", "[[2,4,8],[100,1,1,8]]")
    ]
    for kernel in ("stage1", "reduce"):
        assert names_above(result, kernel)[1:] == ["pseudo_mla_decode_fwd", "vllm::attention"]


def test_an_attention_frame_without_shapes_below_is_left_alone() -> None:
    builder = trace().python(DECODE_FRAME).child("aiter::mla_stage1").launches("stage1")
    _, pseudo = added(builder)
    assert pseudo.is_empty()


def test_numbers_behind_profiler_ops_are_cut_off() -> None:
    builder = trace().op("sglang_profiler::quant_dynamic_mxfp4_quant_12", [[4, 8]]).launches("a")
    builder.op("other::op_12", [[4]]).launches("b")
    result, pseudo = added(builder)
    assert result.cpu_ops["name"].to_list() == [
        "sglang_profiler::quant_dynamic_mxfp4_quant",
        "other::op_12",
    ]
    assert pseudo.is_empty()


@pytest.mark.parametrize("name", ["_rocm_C::paged_attention", "aiter::paged_attention_v1"])
def test_paged_attention_does_not_affect_other_models(name: str) -> None:
    builder = fused_experts(FUSED).up(2)
    builder.op(name, [[2, 4, 8]]).launches("paged")
    _, pseudo = added(builder)
    assert pseudo["name"].to_list() == ["pseudo_op::moe_aiter_fused_1stage"]


def test_kernels_of_one_graph_launch_are_left_alone() -> None:
    builder = trace().op("vllm::moe_forward", [TOKENS, SCORES])
    builder.graph(("_matmul_ogs_up", 5.0), ("_matmul_ogs_down", 5.0))
    _, pseudo = added(builder)
    assert pseudo.is_empty()


def test_a_trace_without_such_ops_stays_as_it_is() -> None:
    read = trace().op("aten::mm", [[8, 4], [4, 2]]).launches("gemm").read()
    result = with_pseudo_ops(read)
    assert result.cpu_ops.equals(read.cpu_ops)
    assert result.event_count == read.event_count
