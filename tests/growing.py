"""Traces that grow in one dimension each; the costs of an analysis must grow no faster.

``GROWING`` maps a kind of growth to a builder of the trace of a given size.
"""

from collections.abc import Callable, Mapping

from tests.builders import TraceBuilder, trace

KERNEL = "void at::native::vectorized_elementwise_kernel<4, float>(int)"
FRAME_LETTERS = 200
GEMM_DIMS = [[64, 64], [64, 64]]


def arguments(count: int) -> TraceBuilder:
    """One operator with many tensor arguments."""
    return trace().op("aten::add", [[64, 64]] * count).launches(KERNEL)


def tensor_list(count: int) -> TraceBuilder:
    """One operator with a long list of tensors."""
    built = trace().op(
        "aten::cat", [[[64, 64]] * count, []], types=["TensorList", "Scalar"], strides=[[], []]
    )
    return built.launches("void CatArrayBatchedCopy<OpaqueType<4u> >()")


def rank(count: int) -> TraceBuilder:
    """One tensor of many dimensions."""
    return trace().op("aten::add", [[1] * count + [64], [64]]).launches(KERNEL)


def fused_names(tokens: int) -> TraceBuilder:
    """A compiled kernel whose name is a long list of fused operators."""
    name = "triton_poi_fused_" + "add_" * tokens + "0"
    return trace().op(name, [[64, 64], []], concrete=["", "4096"]).launches(name)


def unknown_fused_names(tokens: int) -> TraceBuilder:
    """The same, with a last token that is not an operator."""
    name = "triton_poi_fused_" + "add_" * tokens + "nothing_0"
    return trace().op(name, [[64, 64], []], concrete=["", "4096"]).launches(name)


def kernel_names(repeats: int) -> TraceBuilder:
    """A kernel whose name repeats the text of name patterns."""
    built = trace()
    for part in ("CatArrayBatchedCopy", "multi_tensor_apply_kernel<", "Functor<A, ", "_1_"):
        dims = [[[64, 64]] * 3, []]
        built.op("aten::cat", dims, types=["TensorList", "Scalar"], strides=[[], []])
        built.launches(part * repeats)
        built.op("aten::_foreach_add_", dims, types=["TensorList", "Scalar"], strides=[[], []])
        built.launches("multi_tensor_apply_kernel<" + part * repeats)
    return built


def operator_names(repeats: int) -> TraceBuilder:
    """Operators, modules, frames and annotations with long names."""
    built = trace()
    for part in (
        "aten::mm",
        "nn.Module: Block_1/",
        "path/file.py(12): f ",
        "((((",
        "<<<<",
        "a.b_1 ",
    ):
        name = part * repeats
        built.op(f"ProfilerStep#{name}").child(name, GEMM_DIMS)
        built.python(f"nn.Module: {name}").python(f"{name}.py(1): {name}")
        built.child(f"aten::add{name}", GEMM_DIMS).launches(name).launches(f"nccl{name}")
    return built


def depth(levels: int) -> TraceBuilder:
    """A few operators below a long chain of Python frames and modules."""
    return nested(levels, operations=20)


def nested_operations(levels: int) -> TraceBuilder:
    """As many operators as levels above them, with long names."""
    return nested(levels, operations=levels)


def chained_operators(levels: int) -> TraceBuilder:
    """Nested operators, each with a launch."""
    built = trace()
    for number in range(levels):
        built.child("aten::mm", [[64, 64 + number], [64 + number, 64]]).launches("gemm_kernel")
    return built


def long_names(letters: int) -> TraceBuilder:
    """A few operators below modules and frames with long names."""
    return nested(20, operations=20, letters=letters)


def nested(levels: int, operations: int, letters: int = FRAME_LETTERS) -> TraceBuilder:
    """Operators below a chain of modules and Python frames with names of this length."""
    built = trace()
    for level in range(levels):
        name = f"nn.Module: Block_{level}" if level % 2 else f"m/f.py({level}): f{level}"
        built.python(name.ljust(letters, "x"))
    for number in range(operations):
        built.child("aten::mm", [[64, 64 + number], [64 + number, 64]]).launches(
            f"gemm_{number}_kernel", us=10 + number
        ).up()
    return built


def operations(count: int) -> TraceBuilder:
    """Equal operators, one after another."""
    built = trace()
    for _ in range(count):
        built.op("aten::mm", GEMM_DIMS).launches("gemm_kernel")
    return built


def shapes(count: int) -> TraceBuilder:
    """Operators of analyzed categories, each call with a different shape."""
    built = trace()
    for number in range(count):
        rows = 64 + number
        built.op("aten::mm", [[rows, 64], [64, 32]]).launches("gemm_kernel")
        built.op("aten::add", [[rows, 64], [rows, 64]]).launches(KERNEL)
        built.op("aten::sum", [[rows, 64], []]).launches("reduce_kernel")
        built.op("aten::copy_", [[rows, 64], [rows, 64]]).launches(KERNEL)
    return built


def names(count: int) -> TraceBuilder:
    """Operators and kernels with distinct names."""
    built = trace()
    for number in range(count):
        built.op(f"aten::op_{number}", GEMM_DIMS).launches(f"kernel_{number}")
    return built


def kernels(count: int) -> TraceBuilder:
    """One operator that launches many kernels."""
    built = trace().op("aten::mm", GEMM_DIMS)
    for number in range(count):
        built.launches(f"gemm_kernel_{number % 9}")
    return built


def graph_kernels(count: int) -> TraceBuilder:
    """One graph launch with many kernels."""
    return trace().op("aten::mm", GEMM_DIMS).graph(*[("gemm_kernel", 5.0)] * count)


def streams(count: int) -> TraceBuilder:
    """Each kernel on a separate stream, concurrent with all others."""
    built = trace().op("aten::mm", GEMM_DIMS)
    for number in range(count):
        built.launches("gemm_kernel", 10_000, stream=7 + number)
    return built


def threads(count: int) -> TraceBuilder:
    """Each operator on a separate host thread."""
    built = trace()
    for number in range(count):
        built.thread(1 + number, f"thread {number}").op("aten::mm", GEMM_DIMS)
        built.launches("gemm_kernel")
    return built


def processes(count: int) -> TraceBuilder:
    """Each operator and kernel in a separate process and on a separate GPU."""
    built = trace()
    for number in range(count):
        begin = len(built.events)
        built.op("aten::mm", GEMM_DIMS).launches("gemm_kernel")
        for event in built.events[begin:]:
            event["pid"] += 1000 * number
    return built


def modules(count: int) -> TraceBuilder:
    """Sibling modules, each with an operator."""
    built = trace().python("m/train.py(1): main").python("nn.Module: Model_0")
    for number in range(count):
        built.python(f"nn.Module: Block_{number}").python(f"m/f.py({number}): forward{number}")
        built.child("aten::mm", GEMM_DIMS).launches("gemm_kernel").up(3)
    return built


def collectives(count: int) -> TraceBuilder:
    """Collectives, each in a separate process group."""
    built = trace()
    for number in range(count):
        built.op("record_param_comms", [[1024]]).launches(
            "ncclDevKernel_AllReduce_Sum_f32_RING",
            stream=9,
            **{
                "Collective name": "allreduce",
                "Process Group Name": f"group{number}",
                "dtype": "Float",
                "In msg nelems": 1024,
                "Out msg nelems": 1024,
                "Group size": 2,
            },
        )
    built.header["distributedInfo"] = {
        "rank": 0,
        "world_size": 2,
        "pg_config": [{"pg_name": f"group{n}", "ranks": [0, 1]} for n in range(count)],
    }
    return built


def annotations(count: int) -> TraceBuilder:
    """Steps and annotations on the host and on the GPU."""
    built = trace()
    for number in range(count):
        built.op("aten::mm", GEMM_DIMS).launches("gemm_kernel")
        last = built.events[-3]
        for cat, name in (("user_annotation", f"ProfilerStep#{number}"), ("user_annotation", "x")):
            built.events.append({**last, "cat": cat, "name": name, "dur": 3.0, "args": {}})
        gpu = next(e for e in reversed(built.events) if e.get("cat") == "kernel")
        built.events.append({**gpu, "cat": "gpu_user_annotation", "name": f"step {number}"})
    return built


def overlapping_annotations(count: int) -> TraceBuilder:
    """Annotations that overlap each other and all operators."""
    built = operations(count)
    for number in range(count):
        for cat, pid, tid in (("user_annotation", 100, 1), ("gpu_user_annotation", 0, 7)):
            event = {"ph": "X", "cat": cat, "name": f"a{number}", "pid": pid, "tid": tid}
            built.events.append({**event, "ts": 1000.0 + number, "dur": 100.0 * count, "args": {}})
    return built


def overlapping_calls(count: int) -> TraceBuilder:
    """Host calls that overlap without nesting."""
    built = operations(count)
    for number in range(count):
        event = {"ph": "X", "cat": "cpu_op", "name": f"aten::op{number}", "pid": 100, "tid": 1}
        built.events.append({**event, "ts": 1000.0 + number, "dur": 100.0 * count, "args": {}})
    return built


def backward(count: int) -> TraceBuilder:
    """Forward operators and the autograd nodes that differentiate them."""
    built = trace().python("m/train.py(1): main").python("nn.Module: Model_0")
    for number in range(count):
        built.child("aten::mm", GEMM_DIMS, seq=number).launches("gemm_kernel").up()
    built.thread(2, "autograd")
    for number in reversed(range(count)):
        built.op("autograd::engine::evaluate_function: MmBackward0", seq=number)
        built.child("MmBackward0", seq=number).child("aten::mm", GEMM_DIMS).launches("gemm_kernel")
    return built


def copies(count: int) -> TraceBuilder:
    """Copies and fills of memory, synchronizations between them."""
    built = trace()
    for number in range(count):
        built.op("aten::copy_", GEMM_DIMS)
        built.launches("Memcpy HtoD (Pageable -> Device)", cat="gpu_memcpy", bytes=64 + number)
        built.launches("Memset (Device)", cat="gpu_memset", bytes=64)
        built.runtime("cudaStreamSynchronize")
    return built


def unlinked(count: int) -> TraceBuilder:
    """Kernels whose launch was not recorded."""
    built = trace().op("aten::mm", GEMM_DIMS).launches("gemm_kernel")
    for number in range(count):
        built.unlinked(f"gemm_kernel_{number}")
    return built


def chains(count: int) -> TraceBuilder:
    """A long chain of elementwise operators, each on the last result."""
    built = trace().python("nn.Module: Block_0")
    for number in range(count):
        name = ("aten::add", "aten::mul", "aten::relu", "aten::copy_")[number % 4]
        built.child(name, [[1024, 1024]] * 2).launches(KERNEL).up()
    return built


def categories(count: int) -> TraceBuilder:
    """Events of many categories and with many keys."""
    built = trace().op("aten::mm", GEMM_DIMS).launches("gemm_kernel")
    for number in range(count):
        built.events.append(
            {
                "ph": "X",
                "cat": f"cat{number}",
                "name": f"x{number}",
                "pid": 100,
                "tid": 1,
                "ts": 1000.0,
                "dur": 1.0,
                "args": {f"key{number}": number},
            }
        )
    return built


GROWING: Mapping[str, Callable[[int], TraceBuilder]] = {
    build.__name__: build
    for build in (
        *(arguments, tensor_list, rank, fused_names, unknown_fused_names, kernel_names),
        *(
            operator_names,
            long_names,
            depth,
            nested_operations,
            chained_operators,
            operations,
            shapes,
        ),
        *(names, kernels, graph_kernels, streams, threads, processes, modules, collectives),
        *(annotations, overlapping_annotations, overlapping_calls, backward, copies, unlinked),
        *(chains, categories),
    )
}
