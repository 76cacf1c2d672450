"""Look-ups of rows by index: they move bytes and compute nothing."""

from jarvis.perf_models.arguments import Tensor, integer, layout_params, tensor, total_bytes
from jarvis.perf_models.registry import OpCost, OpSignature, perf_model


def _gathered(table: Tensor, index: Tensor, elements: int) -> OpCost:
    """The rows are read and written, the index is read."""
    return OpCost(
        flops=0,
        bytes=total_bytes((2 * elements, table.real_size), (index.numel, index.real_size)),
        params=layout_params(table),
    )


@perf_model("aten::embedding", category="", tracelens=False)
def embedding(op: OpSignature) -> OpCost:
    """Rows of a table [V,d] at n indices: flops 0; bytes 2nd of the table's dtype + indices."""
    table, index = tensor(op, 0), tensor(op, 1)
    return _gathered(table, index, index.numel * table.shape[-1])


@perf_model("aten::index_select", category="", tracelens=False)
def index_select(op: OpSignature) -> OpCost:
    """n slices of x along dim: flops 0; bytes 2n prod(x)/x[dim] of x's dtype + indices."""
    x, index = tensor(op, 0), tensor(op, 2)
    dim = integer(op, 1, 0)
    return _gathered(x, index, index.numel * (x.numel // x.shape[dim]))
