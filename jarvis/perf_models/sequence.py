"""State space layers, rotary embedding, cross entropy: categories of their fused kernels."""

from jarvis.perf_models.registry import categorize

categorize("SSM_fwd", "DaoAILab::_causal_conv1d_fwd_cpp", "MambaSplitConv1dScanCombinedFn")
categorize("SSM_bwd", "DaoAILab::_causal_conv1d_bwd_cpp", "MambaSplitConv1dScanCombinedFnBackward")
categorize(
    "RoPE_fwd",
    "FusedRoPEFunc",
    "aiter::rope_cached_positions_2c_fwd_impl",
    "sgl_kernel::rotary_embedding",
    "aiter::fused_qk_rope_cat_and_cache_mla",
    "aiter::fused_qk_rope_concat_and_cache_mla",
)
categorize("RoPE_bwd", "FusedRoPEFuncBackward")
categorize("CrossEntropy_fwd", "CrossEntropyFunction")
categorize("CrossEntropy_bwd", "CrossEntropyFunctionBackward")
