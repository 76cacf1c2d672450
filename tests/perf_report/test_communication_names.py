"""Names of communication kernels: the kind of each name that was seen in a trace or a library."""

import pytest

from jarvis.perf_report import PerfReport
from jarvis.perf_report.communication_names import kind_of, rule_of, symbol
from jarvis.tracelens.report import TraceLensReport
from tests.builders import trace

KINDS = {
    "all_reduce": """
        ncclAllReduceRingLLKernel_sum_f32
        ncclKernel_AllReduce_RING_LL_Sum_float
        ncclKernel_AllReduce_TREE_LL128_Sum_half
        ncclDevKernel_AllReduce_Sum_bf16_RING_LL
        ncclSymDevKernel_AllReduce_RSxLD_AGxST_sum_bf16
        ncclSymkDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_bf16
        ncclSymkDevKernel_AllReduce_AGxLL_R_sum_f32
        vllm::cross_device_reduce_1stage
        vllm::cross_device_reduce_2stage
        aiter::cross_device_reduce_2stage_naive
        (anonymous namespace)::one_shot_all_reduce_kernel
        two_shot_all_reduce_kernel
        two_shot_all_reduce_kernel_inplace
        multimem_all_reduce_kernel
        multimem_one_shot_all_reduce_kernel
        one_shot_all_reduce_kernel_optimized
        mscclpp::collective::allreducePacket
        mscclpp::collective::allreduceFullmesh
        oneShotAllReduceKernel
        twoShotAllReduceKernel
        twoshot_allreduce_kernel
        userbuffers_fp16_sum_inplace_gpu_mc
        oneccl_allreduce_pcie
        allreduce_fusion_kernel_oneshot_lamport
        allreduce_fusion_kernel_twoshot_sync
        moereduce_allreduce_fusion_kernel_oneshot_lamport
        aiter::allreduce_fusion_kernel_1stage
        aiter::allreduce_fusion_kernel_2stage_per_group
        _ZN5aiter30allreduce_fusion_kernel_1stageIDF16bLi8EEEvPNS_8RankDataE
        lowPrecisionTwoShotAllReduceKernel
        quickreduce::allreduce_prototype_twoshot
        gemm_one_shot_all_reduce_kernel
    """,
    "all_gather": """
        ncclDevKernel_AllGather_RING_LL
        ncclKernel_AllGather_RING_LL_Sum_int8_t
        ncclSymDevKernel_AllGather_STMC
        ncclSymkDevKernel_AllGather_ST
        multimem_all_gather_kernel
        aiter::allgather_lastdim
        mscclpp::collective::allgatherFullmesh2
        userbuffers_fp16_sum_inplace_gpu_rw_ag
    """,
    "reduce_scatter": """
        ncclDevKernel_ReduceScatter_Sum_f32_RING_LL
        ncclSymkDevKernel_ReduceScatter_LDMC_sum_bf16
        aiter::reduce_scatter_cross_device_store
        userbuffers_fp16_sum_inplace_gpu_rr_rs_oop_fp8
    """,
    "broadcast": "ncclDevKernel_Broadcast_RING_LL",
    "reduce": "ncclDevKernel_Reduce_Sum_f32_RING_LL",
    "send_recv": """
        ncclDevKernel_SendRecv
        ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t
        kuserbuffers_pushsend
        kuserbuffers_pushrecv
    """,
    "all_to_all": """
        ncclKernel_AllToAllPivot_RING_SIMPLE_Sum_int8_t
        alltoall_on_stream_kernel
        dlslime::intranode_alltoall_kernel
    """,
    "all_to_all_v": """
        allToAllV
        exchangeSplitAndOffset
        exchangeSplitAndOffset_2d
        mscclpp::collective::alltoallvKernel
    """,
    "dispatch": """
        deep_ep::intranode::dispatch
        deep_ep::internode::dispatch
        dpsk::ep::internode::dispatch
        _ZN7deep_ep9intranode8dispatchILi8ELi768EEEvP4int4Pf
        hybrid_ep::dispatch_kernel
        mori::moe::EpDispatchIntraNodeKernel
        EpDispatchInterNodeV1Kernel
        EpDispatchInterNodeV1KernelLowLatency_bf16
        moeA2ADispatchKernel
        deep_ep::internode_ll::dispatch
    """,
    "combine": """
        deep_ep::intranode::combine
        deep_ep::internode::combine
        deep_ep::internode_ll::combine
        hybrid_ep::combine_kernel
        EpCombineIntraNodeKernel_bf16
        moeA2ACombineKernel
    """,
    "notify": """
        deep_ep::intranode::notify_dispatch
        deep_ep::internode::notify_dispatch
        deep_ep::internode::cached_notify
        deep_ep::intranode::cached_notify_combine
    """,
    "barrier": """
        sync_all_on_stream_kernel_block
        barrier_on_stream_kernel_threadgroup
        barrier_kernel
        hybrid_ep::device_sync_kernel
        EpCombineSyncBarrier_bf16
        deep_ep::internode_ll::clean_low_latency_buffer
    """,
    "put": """
        nvshmemi_proxy_rma_signal_entrypoint
        put_signal_kernel
        wait_signal_kernel
    """,
    "p2p_copy": """
        Memcpy PtoP (Device -> Device)
    """,
    "unknown": """
        ncclDevKernel_Generic
        ncclDevKernel_Generic_4
        ncclDevKernelDebug_Generic_1
        mscclKernel_Sum_half_Simple_false
    """,
    "staging": """
        split_with_sizes_copy_out_contiguous_no_cast_kernel
        chunk_cat_cuda_kernel
        EpDispatchCopyToStaging_bf16
        EpCombineSync_bf16
    """,
    "local": """
        deep_ep::intranode::get_dispatch_layout
        dpsk::ep::intranode::get_dispatch_layout
        aiter::local_device_load_rmsnorm
        cub::DeviceReduceByKeyKernel
        wvSplitKreduce
        moe_finalize_unpermute_combine
        moe_finalize_combine
        CatArrayBatchedCopy
        triton_poi_fused_add_all_reduce_4
        triton_red_fused__to_copy_nccl_all_gather_mean_0
        dpsk::grouped_gemm::kernel
        cutlass::device_kernel
    """,
}
"""Names by kind."""

NAMES = [
    (name.strip(), kind) for kind, names in KINDS.items() for name in names.strip().splitlines()
]

NEAR_MISSES = (
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(int)",
    "void at::native::vectorized_elementwise_kernel<4, ncclDevKernel_AllReduce>(int)",
    "__amd_rocclr_copyBuffer",
    "void at::native::unrolled_elementwise_kernel(AllReduceFunctor)",
    "reduce_segments",
    "dispatch_kernel",
    "combine_attn_seqk_parallel",
    "my_barrier_kernel_free",
    "void gather_kernel<float>(float*)",
    "fbgemm_all_to_one_local",
)
"""Kernels that only share words with communication."""


@pytest.mark.parametrize(("name", "kind"), NAMES)
def test_kind_of_each_name(name: str, kind: str) -> None:
    assert kind_of(name) == kind
    assert (
        kind_of(f"void {name}<float, 8, Op<int>>(float const*, (anonymous namespace)::X)") == kind
    )


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_names_that_only_look_similar(name: str) -> None:
    assert kind_of(name) is None


def test_a_symbol_has_no_arguments() -> None:
    name = "void (anonymous namespace)::Outer<int>::Kernel<a<b>, (c)3>(d*) [clone .kd]"
    assert symbol(name) == "void ::outer::kernel"


@pytest.mark.parametrize("name", ["", "<<<<", "((((", "a>b", "f<" * 5000])
def test_malformed_names_have_no_kind(name: str) -> None:
    assert kind_of(name) is None


def test_kernels_that_also_compute_are_marked() -> None:
    found = [rule_of(name) for name in ("gemm_one_shot_all_reduce_kernel", "multimem_all_reduce")]
    assert [rule and rule.also_computes for rule in found] == [True, False]


def fused_layers(kernel: str) -> PerfReport:
    built = trace().op("aten::mm", [[64, 64], [64, 64]]).launches("gemm", us=30)
    return PerfReport(built.op("custom::op").launches(kernel, us=20).read(), None)


@pytest.mark.parametrize("kernel", ["two_shot_all_reduce_kernel", "deep_ep::intranode::dispatch"])
def test_they_count_as_communication_not_as_compute(kernel: str) -> None:
    report = fused_layers(f"void {kernel}<8>(int)")
    assert (report.totals.total_comm_time_ms, report.totals.compute_time_ms) == (0.02, 0.03)
    assert report.operations["name"].to_list() == ["aten::mm"]
    assert report.collectives.height == 1


@pytest.mark.parametrize("kernel", ["triton_poi_fused_all_reduce_0", "get_dispatch_layout"])
def test_local_work_counts_as_compute(kernel: str) -> None:
    report = fused_layers(kernel)
    assert (report.totals.total_comm_time_ms, report.totals.compute_time_ms) == (0.0, 0.05)
    assert report.collectives.is_empty()


def test_a_recorded_collective_is_communication_whatever_the_name() -> None:
    built = trace().op("custom::op").launches("executor_kernel", **{"Collective name": "allreduce"})
    built.launches("chunk_cat_cuda_kernel", **{"Collective name": "allreduce"})
    report = PerfReport(built.read(), None)
    assert report.gpu_work["kind"].to_list() == ["communication", "compute"]


def test_a_collective_without_a_record_is_named_by_its_kernel() -> None:
    built = trace().op("vllm::all_reduce").launches("vllm::cross_device_reduce_1stage<half>", us=3)
    built.launches("ncclDevKernel_Generic_1").launches("multimem_all_gather_kernel")
    found = PerfReport(built.read(), None).collectives["collective"].to_list()
    assert found == ["allreduce", None, "all_gather"]


def test_sheets_of_tracelens_have_its_communication() -> None:
    built = trace().op("custom::op").launches("two_shot_all_reduce_kernel", us=20)
    built.launches("triton_nccl_like", us=5)
    shares = {
        only: TraceLensReport(built.read(), None, tracelens_models_only=only).totals
        for only in (True, False)
    }
    assert shares[True].total_comm_time_ms == 0.005
    assert shares[False].total_comm_time_ms == 0.02
