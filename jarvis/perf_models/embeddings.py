"""Lookups in several embedding tables at once, as FBGEMM makes them, and their backward."""

from dataclasses import dataclass

from jarvis.perf_models.arguments import Tensor, integer, optional_tensor, tensor, total_bytes
from jarvis.perf_models.dtypes import compute_spec, is_floating
from jarvis.perf_models.registry import (
    NoModelForCallError,
    OpCost,
    OpSignature,
    UnexpectedArgumentsError,
    perf_model,
)

NO_POOLING = 2


@dataclass(frozen=True, slots=True)
class Lookup:
    """n indices into T tables of ``total_width`` columns together, in bags of each table."""

    weights: Tensor
    indices: Tensor
    offsets: Tensor
    tables: int
    total_width: int
    is_pooled: bool
    is_weighted: bool

    @property
    def read(self) -> float:
        """Elements of the rows that are looked up, as many in each table."""
        return self.indices.numel * self.total_width / self.tables

    @property
    def pooled(self) -> float:
        """Elements of the output."""
        bags = (self.offsets.numel - 1) // self.tables
        return bags * self.total_width if self.is_pooled else self.read

    def cost(self, flops: float, moved: float) -> OpCost:
        """Return the cost of moving elements of the tables' dtype, besides the indices."""
        weighted = (self.indices.numel, 4) if self.is_weighted else (0, 4)
        return OpCost(
            flops=flops,
            bytes=total_bytes(
                (moved, self.weights.real_size),
                (self.indices.numel, self.indices.real_size),
                (self.offsets.numel, self.offsets.real_size),
                weighted,
            ),
            compute=compute_spec("vector", self.weights.dtype),
            params={
                "tables": self.tables,
                "total_width": self.total_width,
                "num_indices": self.indices.numel,
                "pooled": self.is_pooled,
            },
        )


def _is_list(op: OpSignature, index: int) -> bool:
    """Return whether argument ``index`` is a list of whole numbers on the GPU."""
    return len(op.input_dims[index]) == 1 and "int" in op.input_types[index]


def _lookup(op: OpSignature, total_width: int | None = None) -> Lookup:
    """Find the arguments by their order, which all versions share.

    First row of each table and one more (``hash_size_cumsum``), a number, indices, offsets, the
    mode of pooling, weights of the indices.
    """
    for at in range(len(op.input_dims) - 4):
        if not (_is_list(op, at) and not op.input_dims[at + 1]):
            continue
        if _is_list(op, at + 2) and _is_list(op, at + 3):
            break
    else:
        raise UnexpectedArgumentsError(f"{op.name} was recorded without indices and offsets.")
    tables = op.input_dims[at][0] - 1
    indices, offsets = tensor(op, at + 2), tensor(op, at + 3)
    if tables < 1 or (offsets.numel - 1) % tables:
        raise UnexpectedArgumentsError(f"The offsets of {op.name} do not fit {tables} tables.")
    if total_width is None:
        total_width = _total_width(op, at, tables)
    floats = [tensor(op, i) for i in range(at) if is_floating(op.input_types[i])]
    return Lookup(
        max(floats, key=lambda each: each.numel),
        indices,
        offsets,
        tables,
        total_width,
        is_pooled=integer(op, at + 4, 0) != NO_POOLING,
        is_weighted=optional_tensor(op, at + 5).given,
    )


def _total_width(op: OpSignature, before: int, tables: int) -> int:
    """Return the sum of the widths, the number after the first column of each table."""
    for index in range(before):
        if op.input_dims[index] == (tables + 1,) and (width := integer(op, index + 1, 0)):
            return width
    raise UnexpectedArgumentsError(f"{op.name} was recorded without the width of its tables.")


@perf_model("fbgemm::split_embedding_codegen_lookup_*", "fbgemm::dense_embedding_codegen_lookup_*")
def table_batched_embedding(op: OpSignature) -> OpCost:
    """Return the cost of rows of T tables at n indices, pooled into bags; d: mean width.

    FLOPs nd (2nd with a weight for each index, 0 without pooling); bytes nd read, the output (bags
    times the sum of the widths; nd without pooling) written, indices, offsets and weights read.
    """
    of = _lookup(op)
    flops = of.read * (2 if of.is_weighted else 1) if of.is_pooled else 0
    return of.cost(flops, of.read + of.pooled)


@perf_model("fbgemm::split_embedding_backward_codegen_*")
def table_batched_embedding_backward(op: OpSignature) -> OpCost:
    """Return the cost of updating rows of T tables at n indices from the gradient of the bags.

    FLOPs nd; bytes of the gradient, indices, offsets and weights read, nd read and written. The
    state of the optimizer is not counted.
    """
    grad = tensor(op, 0)
    of = _lookup(op, grad.shape[-1])
    return of.cost(of.read, grad.numel + 2 * of.read)


@perf_model("torch::autograd::CppNode<SplitLookupFunction_*")
def lookup_node(op: OpSignature) -> OpCost:
    """Return no cost: FLOPs and bytes depend on the indices, of which the node has no record."""
    raise NoModelForCallError(f"{op.name} was recorded without its indices.")
