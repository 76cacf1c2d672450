"""Short names of kernels and Python frames."""

import pytest

from jarvis.text.short_names import short_frame_name, short_kernel_name, without_namespaces

ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, "


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("volta_sgemm_128x64_nn", "volta_sgemm_128x64_nn"),
        ("Memcpy DtoH (Device -> Pinned)", "Memcpy DtoH (Device -> Pinned)"),
        ("Memcpy DtoD (Device -> Device)", "Memcpy DtoD"),
        (
            "void (anonymous namespace)::softmax_warp_forward<float, 10>(float*)",
            "softmax_warp_forward",
        ),
        ("cask_cudnn::computeOffsetsKernel(cask_cudnn::Params)", "computeOffsetsKernel"),
        (
            "void cutlass::Kernel2<cutlass_80_gemm_nn>(cutlass_80_gemm_nn::Params)",
            "cutlass_80_gemm_nn",
        ),
        (ELEMENTWISE + "at::native::CUDAFunctor_add<c10::BFloat16>, 3ul>(int)", "CUDAFunctor_add"),
        (
            ELEMENTWISE + "at::native::BinaryFunctor<float, float, at::native::binary_internal::"
            "MulFunctor<float> >, std::array<char*, 3ul> >(int)",
            "MulFunctor",
        ),
        (
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, "
            "at::native::MeanOps<float, float>, unsigned int> >(int)",
            "MeanOps",
        ),
        ("void at::native::reduce_kernel<512, 1>(int)", "reduce_kernel"),
        (
            ELEMENTWISE + "at::native::BinaryFunctor<c10::BFloat16, c10…",
            "vectorized_elementwise_kernel",
        ),
        ("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bEEvPT0_", "add_rmsnorm_quant_kernel"),
        ("_Zbroken", "_Zbroken"),
        (
            "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_MT256x32x64_MI16x16x1_SN",
            "Cijk_Alik_Bljk_BBS MT256x32x64",
        ),
    ],
)
def test_a_kernel_is_called_by_what_distinguishes_it(name: str, short: str) -> None:
    assert short_kernel_name(name) == short


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("moca/library/profile.py(34): run", "run (profile.py:34)"),
        ("<built-in method add of Tensor object at 0x7f>", "add"),
        ("<built-in function len>", "len"),
        ("aten::mm", "aten::mm"),
    ],
)
def test_a_frame_is_called_by_its_function(name: str, short: str) -> None:
    assert short_frame_name(name) == short


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("aten::mm", "mm"),
        ("torch::autograd::AccumulateGrad (autograd)", "AccumulateGrad (autograd)"),
        ("torch.distributed.ddp.reducer::copy_bucket_to_grad", "copy_bucket_to_grad"),
        ("model.py(12): forward", "model.py(12): forward"),
        ("ns::", "ns::"),
    ],
)
def test_operators_are_named_without_their_namespaces(name: str, short: str) -> None:
    assert without_namespaces(name) == short
