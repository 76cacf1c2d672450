"""Blocks of a model by kernel name."""

from collections import Counter

import pytest

from jarvis.perf_report.kernel_blocks import block_of, blocks, rule_of, rules

NAMES = {
    "comm": "ncclDevKernel_Generic_1 vllm::cross_device_reduce_2stage",
    "kv_write": "vllm::reshape_and_cache_flash_kernel store_kvcache concat_and_cache_mla_kernel",
    "moe_route": "moe_align_block_size_kernel vllm::moe::topkGatingSoftmax grouped_topk_kernel",
    "moe_gemm": "fused_moe_kernel _matmul_ogs_NNT_bf16 ck::kernel_moe_gemm",
    "attention": "kernel_unified_attention_2d flash_fwd_splitkv_kernel _ZN7ck_tile13FmhaFwdKernel"
    " sage_quant_kernel QuantInt8Kernel cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma",
    "rope": "vllm::rotary_embedding_kernel _rope_kernel",
    "norm": "vllm::rms_norm_kernel at::native::RowwiseMomentsCUDAKernel"
    " cudnn::bn_bw_1C11_kernel_new",
    "sampler": "TopKTopPSamplingFromProbKernel at::native::distribution_elementwise",
    "quant": "per_token_group_quant_8bit_kernel scaled_fp8_quant_kernel",
    "activation": "vllm::act_and_mul_kernel silu_and_mul_kernel",
    "index": "create_flashinfer_kv_indices_triton resolve_future_token_ids_kernel"
    " indexSelectLargeIndex DeviceScanKernel",
    "conv": "miopenSp3AsmConv_v30 igemm_fwd_gtcx35_nhwc_bf16 naive_conv_fwd"
    " cudnn::detail::dgrad_engine cudnn::cnn::wgrad_alg0_engine volta_scudnn_128x64_relu_interior"
    " turing_fp16_s1688cudnn_fp16_128x128 sm80_xmma_fprop_implicit_gemm_f32"
    " kernel_batched_gemm_xdlops_bwd_weight transpose_CNHW2NCHW_V2_2D_WG_off64",
    "gemm": "Cijk_Alik_Bljk_BBS_BH_MT256x256x64 nvjet_tst_128x256 volta_sgemm_128x64_tn"
    " triton_tem_fused_addmm_1 wvSplitKreduce",
    "copy": "direct_copy_kernel_cuda CatArrayBatchedCopy_aligned16_contig __amd_rocclr_fillBuffer"
    " triton_poi_fused_cat_0 triton_poi_fused_constant_pad_nd_view_3",
    "elementwise": "vectorized_elementwise_kernel reduce_kernel triton_poi_fused_add_mul_0",
    "other": "my_kernel fbgemm_gpu::jagged",
}
"""Names by block; mangled and demangled ones as they are recorded."""

NEAR_MISSES = {
    "triton_poi_fused_moe_constant_pad_nd_1": "elementwise",
    "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0": "norm",
    "triton_poi_fused_mul_silu_1": "activation",
    "triton_poi_fused_cos_mul_sin_2": "rope",
    "moe_gemm_attention_helper": "moe_gemm",
    "upsample_nearest2d_kernel": "elementwise",
    "wgrad_gemm_accum_fp32": "gemm",
    "cudnn::ops::nchwToNhwcKernel": "copy",
    "direct_copy_kernel_convert": "copy",
}
"""Words of a module or of another block do not decide."""


@pytest.mark.parametrize(
    ("kernel", "block"),
    [(kernel, block) for block, kernels in NAMES.items() for kernel in kernels.split()]
    + list(NEAR_MISSES.items()),
)
def test_block_of_each_kernel(kernel: str, block: str) -> None:
    assert block_of(kernel) == block


def test_each_rule_decides_two_names() -> None:
    deciding = Counter(rule_of(name) for names in NAMES.values() for name in names.split())
    undecided = [rule.pattern.pattern for rule in rules() if deciding[rule] < 2]
    assert undecided == []


def test_each_block_has_two_names() -> None:
    assert set(blocks()) <= NAMES.keys()
    assert all(len(kernels.split()) >= 2 for kernels in NAMES.values())
