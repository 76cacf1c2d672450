"""Two built traces with the findings that the recorded ones do not have."""

from collections.abc import Callable

from tests.builders import TraceBuilder, trace


def products_and_attention() -> TraceBuilder:
    """Odd products, one with helper kernels, one too fast to be true, one unsteady; attention in
    three operators; many short calls."""
    built = trace(device="AMD Instinct MI300X")
    for _ in range(3):
        built.op("aten::mm", [[4096, 4096], [4096, 4096]]).launches("gemm_a", us=400)
        built.op("aten::mm", [[4097, 4096], [4096, 1025]]).launches("gemm_b", us=900)
        built.op("aten::bmm", [[2048, 32, 32], [2048, 32, 32]]).launches("gemm_c", us=700)
        built.op("aten::addmm", [[256], [256, 16384], [16384, 256]])
        built.launches("gemm_d_MT64x64x64", us=300).launches("splitKreduce_kernel", us=90)
        built.op("aten::mm", [[8192, 8192], [8192, 8192]]).launches("gemm_e", us=1200)
    for length in (20.0, 20.0, 900.0) * 5:
        built.op("aten::mul", [[8192, 8192], [8192, 8192]]).launches("vectorized_mul", us=length)
    for layer in range(4):
        built.op("nn_root").python(f"nn.Module: SelfAttention_{layer}")
        built.child("aten::bmm", [[128, 512, 64], [128, 64, 512]], strides=[[32768, 64, 1]] * 2)
        built.launches("gemm_scores", us=120).up()
        built.child("aten::_softmax", [[128, 512, 512], [], []], concrete=["", "-1", "False"])
        built.launches("softmax_warp_forward", us=80).up()
        built.child("aten::bmm", [[128, 512, 512], [128, 512, 64]]).launches("gemm_out", us=110)
    for _ in range(150):
        built.op("aten::topk", [[64, 64]]).launches("sort_kernel", us=6)
    return built


def training_with_waits() -> TraceBuilder:
    """Exposed collectives, copies in both directions, host waits, a depthwise and a large
    convolution, batch normalization, a chain of short operators."""
    built = trace(device="NVIDIA H100 80GB HBM3")
    bf16 = ["c10::BFloat16"]
    for step in range(12):
        built.op("aten::copy_", [[1024, 1024], [1024, 1024]])
        for _ in range(6):
            built.launches(
                "Memcpy HtoD (Pageable -> Device)",
                us=40.0,
                cat="gpu_memcpy",
                call="cudaMemcpyAsync",
                bytes=2097152,
            )
        built.op("root").python(f"nn.Module: Block_{step}")
        shape = [32, 256, 1024]
        for name in ("aten::pow", "aten::mean", "aten::rsqrt", "aten::mul"):
            built.child(name, [shape, shape] if name == "aten::mul" else [shape], types=bf16 * 2)
            built.launches(f"kernel_of_{name[6:]}", us=30).up()
        built.op(
            "aten::native_batch_norm",
            [[32, 64, 112, 112], [64], [64], [64], [64], [], [], []],
            concrete=["", "", "", "", "", "True", "0.1", "1e-05"],
        ).launches("batch_norm_collect_statistics_kernel", us=260)
        built.op("aten::layer_norm", [[4096, 1024], [], [1024], [1024]])
        built.launches("layer_norm_kernel", us=45)
        built.op("c10d::allreduce_", []).launches("ncclDevKernel_AllReduce", us=900.0, stream=9)
        built.waits(4_000)
        built.op("aten::item").runtime("cudaStreamSynchronize", us=500.0)
        built.launches(
            "Memcpy DtoH (Device -> Pageable)",
            us=3.0,
            cat="gpu_memcpy",
            call="cudaMemcpyAsync",
            bytes=64,
        )
    return built


BUILT: dict[str, Callable[[], TraceBuilder]] = {
    "products-and-attention": products_and_attention,
    "training-with-waits": training_with_waits,
}
