"""Inference engines: categories of attention over a paged cache and of hyper-connections."""

from jarvis.perf_models.registry import categorize

_V4_ATTENTION = "aiter::v4_attention_with_output->{} (Synthetic Op)"

categorize(
    "InferenceAttention",
    "vllm::unified_attention_with_output",
    "aiter::mha_varlen_fwd",
    "aiter::fmha_v3_varlen_fwd",
    "aiter::mha_batch_prefill",
    "sglang_profiler::attention_paged_attention_ragged",
    "pseudo_mla_decode_fwd",
    "pseudo_mla_prefill_fwd",
    "aiter::pa_decode_gluon",
    "pseudo_v4_paged_decode_swa",
    "pseudo_v4_paged_decode_csa",
    "pseudo_v4_paged_decode_hca",
    "aiter::pa_sparse_prefill_opus_fwd",
    "sglang_profiler::tilelang_kernel_tilelang_sparse_fwd",
    "vllm::gdn_attention_core",
    "aiter::linear_attention_with_output_base",
    "sglang::store_cache",
    "_C_cache_ops::reshape_and_cache_flash",
    "_C_cache_ops::concat_and_cache_mla",
    "hipModuleLaunchKernel->kv_indices_generate_kernel (Synthetic Op)",
    "aiter::get_mla_metadata_v1",
    "aiter::indexer_score_topk",
    *(
        _V4_ATTENTION.format(kernel)
        for kernel in (
            "_update_compressor_states_kernel",
            "_swa_write_kernel",
            "fused_compress_attn_D512_RD64_R4_OVL_SS8_KB32_rmsbf16_pf_flydsl",
            "fused_compress_attn_D128_RD64_R4_OVL_SS8_KB32_Q_ue8m0_psh_rmsbf16_pf_flydsl",
            "hca_compress_forward_D512_R128_NW4_SL256_S128_flydsl",
            "hca_compress_forward_D512_R128_NW8_SL128_S128_flydsl",
        )
    ),
)
categorize(
    "FusedRoPE",
    "aiter::unified_attention_with_output_base->_fused_qk_rope_reshape_and_cache_kernel"
    " (Synthetic Op)",
    *(
        _V4_ATTENTION.format(kernel)
        for kernel in (
            "_inverse_rope_gptj_kernel",
            "qk_norm_rope_H32_D512_RD64_flydsl",
            "qk_norm_rope_H64_D512_RD64_flydsl",
            "hca_norm_rope_scatter_D512_RD64_R128_KB1_rmsbf16_flydsl",
        )
    ),
)
categorize(
    "mHC",
    "aiter::mhc_post",
    "aiter::mhc_pre_gemm_sqrsum",
    "aiter::mhc_pre_big_fuse_rmsnorm",
    "aiter::mhc_fused_post_pre_gemm_sqrsum",
)
