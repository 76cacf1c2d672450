"""What TraceLens has: its perf models, and the families of its roofline sheets.

With ``--models tracelens`` the sheets use these models alone, and those of extensions. In
``jarvis.perf_models`` a model has a category exactly where TraceLens has the model too.
"""

from jarvis.perf_models import BUILTIN, PerfModel, Registry

_FAMILIES = (
    "GEMM",
    "SDPA",
    "CONV",
    "InferenceAttention",
    "BinaryElementwise",
    "GroupedGEMM",
    "MoE_comm",
    "SSM",
    "RoPE",
    "CrossEntropy",
    "UnaryElementwise",
    "MoE_fused",
    "MoE_unfused",
    "MoE_aux",
    "RMSNorm",
    "elementwise",
    "GroupQuant",
    "FusedRoPE",
    "CustomCollective",
    "mHC",
    "Normalization",
    "Reduce",
)

ONE_SHEET_FAMILIES = frozenset({"GEMM", "UnaryElementwise", "BinaryElementwise", "Normalization"})
"""Families that fill one sheet of their name; the others fill ``<family>_fwd`` and ``_bwd``."""

ONE_SHEET_FAMILIES_OF_INFERENCE = ONE_SHEET_FAMILIES - {"Normalization"}
"""The same of the inference report, which has no ``_bwd`` sheets."""

_BATCHED = "batched_gemm_a8w8_a_per_token_group_prequant_w_per_batched_tensor_quant"

_BY_NAMESPACE = {
    "": """
        ConvBiasReLU_ ConvBias_ CrossEntropyFunction EvoformerAttention FlashAttnFunc
        FusedRoPEFunc LigerSiLUMulFunction MambaSplitConv1dScanCombinedFn MoECombine
        MoEDispatch _LayerNormLinearBackward_wgrad_mm _LayerNormLinearBackward_xgrad_mm
        _LayerNormLinear_yfwd_mm _LinearBackward_wgrad_mm _LinearBackward_xgrad_mm
        _Linear_yfwd_mm pseudo_mla_decode_fwd pseudo_mla_prefill_fwd
        pseudo_v4_paged_decode_csa pseudo_v4_paged_decode_hca pseudo_v4_paged_decode_swa
        triton_per_* triton_poi_* triton_red_*
    """,
    "DaoAILab::": "_causal_conv1d_fwd_cpp",
    "_C::": "silu_and_mul",
    "_C_custom_ar::": "all_reduce qr_all_reduce",
    "aiter::": """
        _flash_attn_backward _flash_attn_forward _fuse_rmsnorm_fp4_quant _gemm_a16w16_asm
        _gemm_a4w4_asm _gemm_a8w8_blockscale_bpreshuffle_asm _groupnorm_run add_rmsnorm
        all_gather_reg batched_gemm_a16wfp4_ biased_grouped_topk_hip ck_moe_stage1
        ck_moe_stage2 dynamic_per_group_scaled_quant dynamic_per_group_scaled_quant_fp4
        dynamic_per_tensor_quant dynamic_per_token_scaled_quant flatmm_a8w8_blockscale_asm
        fmha_v3_fwd fmha_v3_varlen_fwd fmoe_fp8_blockscale_g1u1 fmoe_g1u1
        fused_add_rmsnorm_pad_ fused_allreduce_rmsnorm fused_allreduce_rmsnorm_
        fused_dynamic_mx_quant_moe_sort_hip fused_dynamic_mxfp4_quant_moe_sort_hip
        fused_qk_rope_cat_and_cache_mla fused_qk_rope_concat_and_cache_mla gelu_and_mul
        gelu_tanh_and_mul gemm_a16w16 gemm_a16w16_atomic_ gemm_a4w4
        gemm_a8w8_blockscale_bpreshuffle_ck gemm_a8w8_blockscale_bpreshuffle_cktile
        gemm_a8w8_blockscale_ck gemm_a8w8_blockscale_cktile gemm_a8w8_bpreshuffle
        gemm_a8w8_bpreshuffle_ck gemm_a8w8_ck gemm_afp4wfp4_ gfx950_a8w8_blockscale_asm
        linear_attention_with_output_base mha_batch_prefill mha_bwd mha_fwd mha_varlen_fwd
        mhc_fused_post_pre_gemm_sqrsum mhc_post mhc_pre_big_fuse_rmsnorm mhc_pre_gemm_sqrsum
        mixed_sample_outer_exponential moe_cktile2stages_gemm1_ck moe_cktile2stages_gemm2_ck
        moe_sorting_fwd mxfp4_moe_sort_hip pa_decode_gluon pa_sparse_prefill_opus_fwd
        reduce_scatter rms_norm rmsnorm rmsnorm2d_fwd_ck rmsnorm2d_fwd_with_add_ck
        rmsnorm2d_fwd_with_dynamicquant_ck rmsnorm_quant rope_cached_positions_2c_fwd_impl
        silu_and_mul topk_softplus wrapper_fmha_v3_bwd wrapper_fmha_v3_fwd
    """,
    "aten::": """
        _fused_rms_norm _fused_rms_norm_backward _scaled_dot_product_cudnn_attention
        _scaled_dot_product_efficient_attention _scaled_dot_product_flash_attention
        _scaled_mm add add_ addmm amax amin baddbmm batch_norm batch_norm_backward bmm
        clamp_max clamp_max_ clamp_min clamp_min_ convolution convolution_backward copy
        copy_ cudnn_batch_norm cudnn_batch_norm_backward cudnn_group_norm
        cudnn_group_norm_backward cudnn_instance_norm cudnn_layer_norm
        cudnn_layer_norm_backward cudnn_rms_norm_backward cumprod cumsum div div_ group_norm
        group_norm_backward instance_norm layer_norm layer_norm_backward linalg_norm
        logsumexp max mean min miopen_batch_norm miopen_batch_norm_backward
        miopen_group_norm miopen_group_norm_backward miopen_instance_norm miopen_layer_norm
        miopen_layer_norm_backward miopen_rms_norm_backward mm mul mul_ native_batch_norm
        native_batch_norm_backward native_group_norm native_group_norm_backward
        native_instance_norm native_layer_norm native_layer_norm_backward
        native_rms_norm_backward neg norm pow replication_pad1d replication_pad2d
        replication_pad3d rms_norm_backward rsqrt sigmoid sigmoid_backward silu std sum
        threshold_backward upsample_nearest1d upsample_nearest2d upsample_nearest3d var
    """,
    "bitsandbytes::": "int8_linear_matmul",
    "flash_attn::": """
        _flash_attn_backward _flash_attn_forward _flash_attn_varlen_backward
        _flash_attn_varlen_forward
    """,
    "flash_attn_3::": "fwd",
    "primus::": "fused_ln_modulate fused_ln_modulate_backward quantize_mxfp4_dual",
    "primus_turbo::": """
        grouped_gemm grouped_gemm_impl grouped_gemm_variable_k grouped_gemm_variable_k_impl
        hipblaslt_gemm_fp4 hipblaslt_gemm_fp8 quantize_fp8_tensorwise quantize_mxfp4_dual
    """,
    "primus_turbo_cpp_extension::": """
        ck_grouped_gemm ck_grouped_gemm_variable_k grouped_gemm grouped_gemm_variable_k
        hipblaslt_gemm_fp4 hipblaslt_gemm_fp8 quantize_fp8_tensorwise quantize_mxfp4_dual
    """,
    "pseudo_op::": """
        moe_aiter_fused_1stage moe_flydsl_stage1 moe_flydsl_stage2 moe_gptq_awq_down
        moe_gptq_awq_up moe_triton_unfused_down moe_triton_unfused_up
    """,
    "sgl_kernel::": "all_reduce_reg qr_all_reduce rotary_embedding silu_and_mul",
    "sglang::": "reg_all_gather_into_tensor store_cache",
    "sglang_profiler::": """
        attention_paged_attention_ragged fp8_utils_gemm_a8w8_blockscale
        fused_moe_triton_kernels_fused_append_shared_experts
        fused_moe_triton_kernels_invoke_fused_moe_kernel
        fused_mxfp4_quant_fused_flatten_mxfp4_quant fused_mxfp4_quant_fused_rms_mxfp4_quant
        gemm_a8w8_blockscale_gemm_a8w8_blockscale gemm_kernels_flydsl_hgemm
        quant_dynamic_mxfp4_quant tilelang_kernel_tilelang_sparse_fwd
    """,
    "tex_ts::": "te_gemm_ts",
    "trtllm::": "cublas_scaled_mm",
    "vllm::": """
        _rocm_aiter_preshuffled_per_token_w8a8_gemm gdn_attention_core
        gemm_with_dynamic_quant rocm_aiter_rmsnorm_fp8_group_quant
        rocm_aiter_rmsnorm_with_add_fp8_group_quant rocm_aiter_triton_add_rmsnorm_pad
        rocm_aiter_triton_gemm_a8w8_blockscale rocm_unquantized_gemm
        triton_per_token_group_quant_fp8 unified_attention_with_output
    """,
}

TRACELENS_MODELS = frozenset(
    namespace + name for namespace, names in _BY_NAMESPACE.items() for name in names.split()
) | {f"sglang_profiler::{_BATCHED}_{_BATCHED}"}
"""The ops that have a perf model in TraceLens; the rows of its sheets depend on this list."""


def is_in_tracelens(model: PerfModel) -> bool:
    """Return whether TraceLens would use the model: it has it, or an extension adds it."""
    return model.is_extension or model.name in TRACELENS_MODELS


def sheet_families(registry: Registry = BUILTIN) -> list[str]:
    """Families with at least one formula, in the order of their sheets; unknown ones come last."""
    present = {model.sheet: None for model in registry.all_models() if model.sheet}
    return [name for name in _FAMILIES if name in present] + [
        name for name in present if name not in _FAMILIES
    ]
