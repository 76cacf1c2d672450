"""Claims: each operation belongs to exactly one analysis; top operations are joined by events."""

from pathlib import Path

import polars as pl
import pytest

from jarvis.analyses import load_analyses
from jarvis.analyses.base import Analysis, Claim
from jarvis.analyses.claims import claim_operations, top_operations
from jarvis.perf_report import PerfReport
from jarvis.trace import read_trace
from tests.analyses.rows import operation, operations, table


def category_of(name: str, op_category: str = "other", kernel: str = "some_kernel") -> str:
    row = operation(name, time_us=1.0, op_category=op_category, kernels=[(kernel, 1.0)])
    rows = operations(row)
    return claim_operations(rows, load_analyses().values())["category"][0]


@pytest.mark.parametrize(
    ("name", "op_category", "expected"),
    [
        ("aten::mm", "GEMM", "gemm"),
        ("primus_turbo::grouped_gemm", "GroupedGEMM_fwd", "gemm"),
        ("aten::_scaled_dot_product_flash_attention", "SDPA_fwd", "sdpa_fwd"),
        ("FlashAttnFuncBackward", "SDPA_bwd", "sdpa_fwd"),
        ("vllm::unified_attention_with_output", "InferenceAttention", "sdpa_fwd"),
        ("DaoAILab::_causal_conv1d_fwd_cpp", "SSM_fwd", "sdpa_fwd"),
        ("MambaSplitConv1dScanCombinedFnBackward", "SSM_bwd", "sdpa_fwd"),
        ("aten::batch_norm", "NORM_fwd", "batchnorm"),
        ("aiter::rms_norm", "RMSNorm", "batchnorm"),
        ("aten::convolution_backward", "CONV_bwd", "convolution"),
        ("aiter::fmoe_g1u1", "MoE_fused", "moe_fused"),
        ("aiter::moe_sorting_fwd", "MoE_aux", "moe_fused"),
        ("aten::add", "elementwise", "elementwise"),
        ("aten::_foreach_add_", "multi_tensor_apply", "elementwise"),
        ("aten::sum", "reduce", "reduce"),
        ("triton_red_fused_native_layer_norm_0", "triton", "triton"),
        ("aten::cat", "other", "other"),
        ("aten::mysterious", "NeverHeardOf", "other"),
    ],
)
def test_registered_categories_decide(name: str, op_category: str, expected: str) -> None:
    assert category_of(name, op_category) == expected


@pytest.mark.parametrize(
    ("name", "op_category", "expected"),
    [
        ("aten::_softmax", "reduce", "reduce"),
        ("vllm::some_new_gemm", "other", "gemm"),
        ("custom::moe_gemm", "elementwise", "moe_fused"),
        ("custom::layer_norm_fused", "reduce", "batchnorm"),
        ("vllm::causal_conv1d_update", "other", "sdpa_fwd"),
        ("mamba_ssm::selective_scan_fwd", "other", "sdpa_fwd"),
        ("custom::conv1d_update", "other", "convolution"),
        ("hipGraphLaunch->Cijk_Alik_Bljk_MT256x32x64 (Synthetic Op)", "other", "gemm"),
        ("hipGraphLaunch->void paged_attention_kernel<1> (Synthetic Op)", "other", "sdpa_fwd"),
        ("hipLaunchKernel->SubTensorOpWithCastTensor1d (Synthetic Op)", "other", "convolution"),
        ("aten::normal_", "elementwise", "elementwise"),
        ("aten::_convert_weight", "other", "other"),
        ("hipGraphLaunch->volta_sgemm_128x64_tn (Synthetic Op)", "other", "gemm"),
        ("hipGraphLaunch->ampere_fp16_s16816gemm_fp16_128x64_ldg8 (Synthetic Op)", "other", "gemm"),
        ("hipGraphLaunch->wvSplitKreduce_kernel (Synthetic Op)", "other", "gemm"),
        ("hipGraphLaunch->triton_tem_fused_addmm_gemm_3 (Synthetic Op)", "other", "gemm"),
        ("hipGraphLaunch->void aiter::fmoe_bf16_g1u1<1> (Synthetic Op)", "other", "moe_fused"),
        ("hipGraphLaunch->void cunn_SoftMaxForward<8> (Synthetic Op)", "other", "reduce"),
        ("hipGraphLaunch->FusedAddRMSNormKernel (Synthetic Op)", "other", "batchnorm"),
    ],
)
def test_names_decide_where_only_a_kernel_suggests_the_category(
    name: str, op_category: str, expected: str
) -> None:
    assert category_of(name, op_category) == expected


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("_matmul_ogs_NNT_bf16", "moe_fused"),
        ("moe_align_block_size_kernel", "moe_fused"),
        ("void flash::reduce_segments<gemm>", "sdpa_fwd"),
        ("marlin_kernel", "gemm"),
        ("RowwiseMomentsCUDAKernel", "batchnorm"),
        ("naive_conv_fwd", "convolution"),
        ("triton_red_fused_native_layer_norm_0", "triton"),
        ("vllm::concat_and_cache_mla_kernel", "other"),
    ],
)
def test_a_replayed_kernel_is_in_the_category_of_its_block(kernel: str, expected: str) -> None:
    assert category_of(f"hipGraphLaunch->{kernel} (Synthetic Op)") == expected


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("Cijk_Alik_Bljk_MT64x64x64", "gemm"),
        ("void flash::flash_fwd_kernel<128>", "sdpa_fwd"),
        ("cudnn::cnn::wgrad_alg0_engine", "convolution"),
        ("cudnn::bn_bw_1C11_kernel_new", "batchnorm"),
        ("fused_moe_kernel", "moe_fused"),
        ("void causal_conv1d_fwd_kernel<Causal_conv1d_fwd_kernel_traits<128>>", "sdpa_fwd"),
        ("void selective_scan_fwd_kernel<64>", "sdpa_fwd"),
        ("vllm::reshape_and_cache_flash_kernel", "other"),
        ("CatArrayBatchedCopy", "other"),
        ("my_kernel", "other"),
    ],
)
def test_a_kernel_has_one_category_linked_to_an_unknown_operator_or_replayed(
    kernel: str, expected: str
) -> None:
    linked = category_of("mylib::layer", kernel=kernel)
    replayed = category_of(f"hipGraphLaunch->{kernel} (Synthetic Op)", kernel=kernel)
    assert (linked, replayed) == (expected, expected)


@pytest.mark.parametrize(
    ("name", "op_category", "kernel", "expected"),
    [
        ("aten::cudnn_convolution_backward_weight", "other", "volta_sgemm", "convolution"),
        ("aten::convolution", "CONV_fwd", "Cijk_Alik_Bljk_MT64x64x64", "convolution"),
    ],
)
def test_a_known_operator_decides_before_its_kernel(
    name: str, op_category: str, kernel: str, expected: str
) -> None:
    assert category_of(name, op_category, kernel) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fbgemm::jagged_dense_elementwise_add", "elementwise"),
        ("fbgemm::permute_2D_sparse_data", "other"),
        ("SplitLookupFunction_Dense_Op", "other"),
        ("hipGraphLaunch->triton_poi_fused_moe_constant_pad_nd_3 (Synthetic Op)", "triton"),
        ("hipGraphLaunch->triton_red_fused_attention_gemm_softmax_1 (Synthetic Op)", "triton"),
        ("hipGraphLaunch->void vllm::reshape_and_cache_flash_kernel<1> (Synthetic Op)", "other"),
        ("custom::smoemaker", "other"),
    ],
)
def test_words_count_only_where_they_begin_and_not_in_lists_of_fused_operators(
    name: str, expected: str
) -> None:
    assert category_of(name) == expected


@pytest.mark.parametrize(
    ("pattern", "name", "does_match"),
    [
        ("*::peek", "mylib::peek", True),
        ("mylib::*", "mylib::peek", True),
        ("*peek", "mylib::peek", True),
        ("*peek", "mylib::PEEK", True),
        ("*peek", "mylib::fastPeek", True),
        ("*peek", "mylib::fastpeek", False),
        ("aten::*grouped_mm", "aten::_grouped_mm", True),
    ],
)
def test_patterns_of_extensions(pattern: str, name: str, does_match: bool) -> None:
    analysis = Analysis("T", ":material/radar:", (), claim=Claim(op_names=(pattern,)), key="found")
    rows = operations(operation(name, time_us=1.0))
    assert (claim_operations(rows, [analysis])["category"][0] == "found") is does_match


def test_every_operation_of_every_trace_has_one_category(reference_root: Path) -> None:
    keys = {key for key, analysis in load_analyses().items() if analysis.claim}
    for path in sorted((reference_root / "traces").glob("*.json.gz")):
        rows = PerfReport(read_trace(path), None).operations
        claimed = claim_operations(rows, load_analyses().values())
        assert claimed.height == rows.height
        assert set(claimed["category"]) <= keys, path.name
        shared = claimed.group_by("category").agg(pl.col("kernel_time_us").sum())
        assert shared["kernel_time_us"].sum() == pytest.approx(rows["kernel_time_us"].sum())


def summary(*rows: tuple[str, float]) -> pl.DataFrame:
    return table(
        "ops_summary",
        *({"name": n, "direct_kernel_time_us": us, "count": 3} for n, us in rows),
    )


def work(*rows: tuple[str, int, int]) -> pl.DataFrame:
    return table(
        "gpu_work",
        *(
            {"uid": i, "kind": "compute", "launcher_name": n, "operation_uid": op, "dur_ns": us}
            for i, (n, op, us) in enumerate(rows)
        ),
    )


def test_top_operations_find_their_rows_through_the_events() -> None:
    rows = operations(
        operation("aten::convolution", time_us=900.0, op_category="CONV_fwd", pct_roofline=10.0),
        operation("aten::layer_norm", time_us=100.0, op_category="NORM_fwd"),
    )
    claimed = claim_operations(rows, load_analyses().values())
    top = top_operations(
        summary(("aten::miopen_convolution", 850.0), ("aten::native_layer_norm", 90.0)),
        work(
            ("aten::miopen_convolution", 1, 850),
            ("aten::copy_", 1, 50),
            ("aten::native_layer_norm", 2, 90),
            ("aten::copy_", 2, 10),
        ),
        claimed,
        compute_ms=1.0,
        total_ms=2.0,
    )
    assert top["name"].to_list() == ["aten::miopen_convolution", "aten::native_layer_norm"]
    assert top["category"].to_list() == ["convolution", "batchnorm"]
    assert top["operation_uids"].to_list() == [[1], [2]]
    assert top["efficiency_pct"].to_list() == [10.0, None]
    assert top["percent_of_compute"].to_list() == pytest.approx([85.0, 9.0])


def test_calls_of_the_runtime_are_no_operations() -> None:
    names = [f"cudaLaunchKernel->{kernel} (Synthetic Op)" for kernel in ("gemm_a", "gemm_b")]
    rows = operations(*(operation(name, time_us=40.0) for name in (*names, "cudnn::op")))
    top = top_operations(
        summary(("cudaLaunchKernel", 80.0), ("cudnn::op", 40.0)),
        work(("cudaLaunchKernel", 1, 40), ("cudaLaunchKernel", 2, 40), ("cudnn::op", 3, 40)),
        claim_operations(rows, load_analyses().values()),
        compute_ms=1.0,
        total_ms=1.0,
    )
    assert top["name"].to_list() == ["cudnn::op", "gemm_a", "gemm_b"]
    assert top["operation_uids"].to_list() == [[3], [1], [2]]


def test_the_copies_of_an_operator_are_no_compute() -> None:
    rows = operations(operation("aten::copy_", time_us=40.0), operation("aten::to", time_us=40.0))
    copies = work(("aten::copy_", 1, 40)).with_columns(kind=pl.lit("copy"))
    top = top_operations(
        summary(("aten::copy_", 40.0), ("aten::to", 40.0)),
        pl.concat([copies, work(("aten::to", 2, 40))]),
        claim_operations(rows, load_analyses().values()),
        compute_ms=1.0,
        total_ms=1.0,
    )
    assert top["percent_of_compute"].to_list() == [None, pytest.approx(4.0)]


def test_a_launcher_that_leads_no_row_still_names_the_one_it_works_in() -> None:
    rows = claim_operations(
        operations(operation("aten::layer_norm", time_us=100.0, op_category="NORM_fwd")),
        load_analyses().values(),
    )
    top = top_operations(
        summary(("aten::copy_", 10.0)),
        work(("aten::native_layer_norm", 1, 90), ("aten::copy_", 1, 10)),
        rows,
        compute_ms=1.0,
        total_ms=1.0,
    )
    assert top["uid"].to_list() == [1]
    assert top["category"].to_list() == ["batchnorm"]
    assert top["operation_uids"].to_list() == [[]], "its row is not one of the top operations"


def test_kernels_without_an_operator_are_listed_instead_of_the_call_that_launches_them() -> None:
    rows = operations(
        operation("hipGraphLaunch->attn_fwd (Synthetic Op)", time_us=60.0, count=2),
        operation("hipLaunchKernel->attn_fwd (Synthetic Op)", time_us=10.0),
        operation("aten::topk->sort_kernel (Synthetic Op)", time_us=20.0),
    )
    top = top_operations(
        summary(("hipGraphLaunch", 60.0), ("aten::topk", 20.0), ("hipLaunchKernel", 10.0)),
        work(("hipGraphLaunch", 1, 60), ("hipLaunchKernel", 2, 10), ("aten::topk", 3, 20)),
        claim_operations(rows, load_analyses().values()),
        compute_ms=0.09,
        total_ms=0.09,
    )
    assert top["name"].to_list() == ["attn_fwd", "aten::topk"]
    assert top["time_ms"].to_list() == pytest.approx([0.07, 0.02])
    assert top["count"].to_list() == [3, 3]
    assert top["operation_uids"].to_list() == [[1, 2], [3]]
    assert top["category"][0] == "sdpa_fwd"


def test_only_ten_by_time() -> None:
    many = [(f"aten::op{i}", float(i)) for i in range(15)]
    top = top_operations(
        summary(*many), work(), operations().with_columns(category=None), compute_ms=1, total_ms=1
    )
    assert top["rank"].to_list() == list(range(1, 11))
    assert top["name"][0] == "aten::op14"
