"""Indexed reads, writes and selections: they move data and compute little.

The access pattern of an index is unknown; bytes are those of the elements that it names, each
moved once, so the roofline time is a lower bound. ``aten::index`` and other ops whose result
depends on an index that the profiler does not record have no model here.
"""

from math import ceil, log2

from jarvis.perf_models.arguments import (
    Tensor,
    copied_size,
    flag,
    integer,
    layout_params,
    list_numel,
    list_shapes,
    optional_tensor,
    tensor,
    total_bytes,
)
from jarvis.perf_models.dtypes import INDEX_BYTES, compute_spec, is_floating
from jarvis.perf_models.registry import (
    NoModelForCallError,
    OpCost,
    OpSignature,
    UnexpectedArgumentsError,
    perf_model,
)


def _moved(x: Tensor, elements: int, *others: Tensor, flops: int = 0) -> OpCost:
    """Return the cost of ``elements`` of the dtype of x, and the other tensors once."""
    return OpCost(
        flops=flops if is_floating(x.dtype) else 0,
        bytes=total_bytes((elements, x.real_size), *((t.numel, t.real_size) for t in others)),
        compute=compute_spec("vector", x.dtype) if flops else "",
        params=layout_params(x),
    )


def _dim(op: OpSignature, index: int, x: Tensor, default: int) -> int:
    """Return the extent of x along the dim at argument ``index``."""
    return x.shape[integer(op, index, default)] if x.shape else 1


@perf_model("aten::embedding")
def embedding(op: OpSignature) -> OpCost:
    """Return the cost of rows of a table [V,d] at n indices.

    FLOPs 0; bytes 2nd of the table's dtype + indices.
    """
    table, index = tensor(op, 0), tensor(op, 1)
    return _moved(table, 2 * index.numel * table.shape[-1], index)


@perf_model("aten::embedding_dense_backward")
def embedding_backward(op: OpSignature) -> OpCost:
    """Return the cost of gradient [..., d], n indices.

    FLOPs nd; bytes nd + indices read, the table [V,d] written.
    """
    grad, index = tensor(op, 0), tensor(op, 1)
    table = integer(op, 2, 0) * grad.shape[-1]
    return _moved(grad, grad.numel + table, index, flops=grad.numel)


@perf_model("aten::_embedding_bag", "aten::_embedding_bag_forward_only")
def embedding_bag(op: OpSignature) -> OpCost:
    """Return the cost of rows of a table [V,d] at n indices, pooled into b bags.

    FLOPs nd (2nd with a weight for each index); bytes nd read, bd written, indices, offsets and
    weights read.
    """
    table, index, offsets = tensor(op, 0), tensor(op, 1), tensor(op, 2)
    weights = optional_tensor(op, 6)
    bags = offsets.numel - flag(op, 7)  # the last offset is the number of indices
    others = (index, offsets, weights) if weights.given else (index, offsets)
    pooled = index.numel * table.shape[-1]
    flops = pooled * (2 if weights.given else 1)
    return _moved(table, pooled + bags * table.shape[-1], *others, flops=flops)


@perf_model("aten::_embedding_bag_dense_backward")
def embedding_bag_backward(op: OpSignature) -> OpCost:
    """Return the cost of gradient [b,d] of bags, n indices.

    FLOPs nd; bytes bd, indices and the bag of each index read, the table [V,d] written.
    """
    grad, index, bag_of_index = tensor(op, 0), tensor(op, 1), tensor(op, 2)
    rows = integer(op, 5, 0)
    if not rows:
        raise UnexpectedArgumentsError(f"{op.name} was recorded without the rows of its table.")
    width = grad.shape[-1]
    return _moved(grad, grad.numel + rows * width, index, bag_of_index, flops=index.numel * width)


@perf_model("aten::index_select")
def index_select(op: OpSignature) -> OpCost:
    """Return the cost of n slices of x along dim.

    FLOPs 0; bytes 2n prod(x)/x[dim] of x's dtype + indices.
    """
    x, index = tensor(op, 0), tensor(op, 2)
    return _moved(x, 2 * index.numel * (x.numel // _dim(op, 1, x, 0)), index)


@perf_model("aten::gather")
def gather(op: OpSignature) -> OpCost:
    """Return the cost of an element for each of n indices.

    FLOPs 0; bytes 2n of x's dtype + indices.
    """
    x, index = tensor(op, 0), tensor(op, 2)
    return _moved(x, 2 * index.numel, index)


@perf_model("aten::scatter_", "aten::scatter")
def scatter(op: OpSignature) -> OpCost:
    """Return the cost of writes at n indices.

    FLOPs 0; bytes of indices and source (n, or a number) read, n written. Out of place, x is copied
    first: 2 prod(x) more.
    """
    x, index, source = tensor(op, 0), tensor(op, 2), optional_tensor(op, 3)
    read = index.numel if source.given else 0
    copied = 0 if op.name.endswith("_") else 2 * x.numel
    return _moved(x, read + index.numel + copied, index)


@perf_model(
    "aten::scatter_add_",
    "aten::scatter_add",
    "aten::scatter_reduce_",
)
def scatter_add(op: OpSignature) -> OpCost:
    """Return the cost of adds at n indices.

    FLOPs n; bytes of indices, source and destination (n each) read, n written. Out of place, x is
    copied first: 2 prod(x) more.
    """
    x, index = tensor(op, 0), tensor(op, 2)
    copied = 0 if op.name.endswith("_") else 2 * x.numel
    return _moved(x, 3 * index.numel + copied, index, flops=index.numel)


@perf_model("aten::index_add_", "aten::index_add")
def index_add(op: OpSignature) -> OpCost:
    """Return the cost of adding slices, n elements.

    FLOPs n; bytes of indices, source and destination (n) read, n written. Out of place, x is copied
    first: 2 prod(x) more.
    """
    x, index, source = tensor(op, 0), tensor(op, 2), tensor(op, 3)
    copied = 0 if op.name.endswith("_") else 2 * x.numel
    return _moved(x, 3 * source.numel + copied, index, flops=source.numel)


@perf_model("aten::index_copy_")
def index_copy(op: OpSignature) -> OpCost:
    """Return the cost of writing slices, n elements.

    FLOPs 0; bytes of indices and n read, n written.
    """
    x, index, source = tensor(op, 0), tensor(op, 2), tensor(op, 3)
    return _moved(x, 2 * source.numel, index)


@perf_model("aten::index_fill_")
def index_fill(op: OpSignature) -> OpCost:
    """Return the cost of filling n slices of x along dim.

    FLOPs 0; bytes of indices read, n prod(x)/x[dim] written.
    """
    x, index = tensor(op, 0), tensor(op, 2)
    return _moved(x, index.numel * (x.numel // _dim(op, 1, x, 0)), index)


@perf_model("aten::index_put_", "aten::_index_put_impl_")
def index_put(op: OpSignature) -> OpCost:
    """Return the cost of n values.

    FLOPs 0 (n if they are accumulated); bytes n read, n written (and read if accumulated).
    The profiler does not record the indices: they are not counted, and values broadcast over them
    count only once. A single value has no model for that reason.
    """
    x, values = tensor(op, 0), tensor(op, 2)
    if values.numel <= 1:
        raise NoModelForCallError(f"{op.name} was recorded without the shape of its indices.")
    added = op.concrete_inputs[3:4] == ("True",)
    return _moved(x, (3 if added else 2) * values.numel, flops=values.numel * added)


@perf_model("aten::cat", "aten::stack", needs_kernels=True)
def concatenation(op: OpSignature) -> OpCost:
    """Return the cost of a concatenation: FLOPs 0; bytes of all tensors read and written.

    The element size is read from the kernel name.
    """
    elements = list_numel(op, 0)
    return OpCost(
        flops=0,
        bytes=total_bytes((2 * elements, copied_size(op))),
        params={"tensors": len(list_shapes(op, 0)), "num_elems": elements},
    )


@perf_model(
    "aten::roll",
    "aten::flip",
    "aten::triu",
    "aten::tril",
    "aten::triu_",
    "aten::tril_",
    "aten::split_with_sizes_copy",
)
def rearrangement(op: OpSignature) -> OpCost:
    """Return the cost of moving elements to other positions: FLOPs 0; bytes n read, n written."""
    x = tensor(op, 0)
    return _moved(x, 2 * x.numel)


def _with_indices(x: Tensor, outputs: int, flops: int) -> OpCost:
    """Return the cost of reading x, and writing values of its dtype and their int64 indices."""
    return OpCost(
        flops=flops if is_floating(x.dtype) else 0,
        bytes=total_bytes((x.numel + outputs, x.real_size), (outputs, INDEX_BYTES)),
        compute=compute_spec("vector", x.dtype),
        params=layout_params(x),
    )


@perf_model("aten::topk")
def topk(op: OpSignature) -> OpCost:
    """Return the cost of the k largest along a dim.

    FLOPs n (a comparison each); bytes n read, values + indices written. Kernels that read the input
    several times run below their roofline.
    """
    x = tensor(op, 0)
    k = integer(op, 1, 0)
    if not k:
        raise UnexpectedArgumentsError(f"{op.name} was recorded without k.")
    return _with_indices(x, x.numel // _dim(op, 2, x, -1) * k, x.numel)


@perf_model("aten::sort")
def sort(op: OpSignature) -> OpCost:
    """Return the cost of sorting rows of L.

    FLOPs n ceil(log2 L); bytes n read, n values + n indices written. The stable form has its flag
    before the dim.
    """
    x = tensor(op, 0)
    stable = len(op.input_dims) in (4, 6)
    length = _dim(op, 2 if stable else 1, x, -1)
    return _with_indices(x, x.numel, x.numel * ceil(log2(max(length, 1))))
