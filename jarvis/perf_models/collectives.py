"""Collective communication outside the framework's own: categories of its kernels."""

from jarvis.perf_models.registry import categorize

categorize(
    "CustomCollective",
    "aiter::fused_allreduce_rmsnorm",
    "aiter::fused_allreduce_rmsnorm_",
    "_C_custom_ar::all_reduce",
    "_C_custom_ar::qr_all_reduce",
    "aiter::reduce_scatter",
    "aiter::all_gather_reg",
    "sgl_kernel::all_reduce_reg",
    "sgl_kernel::qr_all_reduce",
    "sglang::reg_all_gather_into_tensor",
    *(
        f"aiter::allgather_lastdim<std::bfloat16_t, {ranks}>(aiter::RankData*, "
        "aiter::RankSignals, aiter::Signal*, std::bfloat16_t*, int, int, int) (Synthetic Op)"
        for ranks in (2, 4)
    ),
)
categorize("record_param_comms", "record_param_comms*")
