"""Operations and modules of the kernels of layers, where calls are recorded or captured."""

import re
from collections.abc import Callable, Sequence

import polars as pl

from jarvis.perf_report.call_tree.stacks import INSTANCE_NUMBER
from jarvis.schemas.names import C
from jarvis.text.format import arguments
from jarvis.text.shapes import call_shapes
from jarvis.text.short_names import LAUNCHED

Modules = Callable[[pl.Series], Sequence[list[str]]]
"""Returns the modules around GPU events, outermost first, by their uids."""

_PLACE = (C.kind, C.position)


def with_operations(
    rows: pl.DataFrame, events: pl.DataFrame, gpu_work: pl.DataFrame
) -> pl.DataFrame:
    """Return rows with ``operation_uid``: the operation with most time at the position.

    Args:
        rows: The table ``inference_layers``.
        events: ``kind, position, uid`` of the GPU events in layers.
        gpu_work: The table ``gpu_work``.
    """
    owners = (
        events.join(gpu_work.select(C.uid, C.operation_uid, C.dur_ns), on=C.uid)
        .drop_nulls(C.operation_uid)
        .group_by(*_PLACE, C.operation_uid)
        .agg(pl.col(C.dur_ns).sum())
        .sort(*_PLACE, C.dur_ns, C.operation_uid, descending=[False, False, True, False])
        .unique(_PLACE, keep="first")
        .select(*_PLACE, C.operation_uid)
    )
    return rows.join(owners, on=_PLACE, how="left", maintain_order="left")


def with_figures(rows: pl.DataFrame, operations: pl.DataFrame) -> pl.DataFrame:
    """Return rows with name, shapes, module and efficiency of their operations.

    Work of graph launches without a captured call has no name: its row is that of one kernel.

    Args:
        rows: Rows with ``operation_uid``.
        operations: The table ``operations``; its efficiency is that of all calls.
    """
    used = operations.filter(pl.col(C.uid).is_in(rows[C.operation_uid].drop_nulls().implode()))
    shapes = [
        call_shapes(arguments(dims, types), params)
        for dims, types, params in used.select(C.input_dims, C.input_types, C.params).iter_rows()
    ]
    name = pl.col(C.name).cast(pl.String)
    figures = used.select(
        pl.col(C.uid).alias(C.operation_uid),
        pl.when(~name.str.contains(LAUNCHED, literal=True)).then(name).alias(C.operation),
        pl.Series(C.shapes, shapes, dtype=pl.String),
        pl.col(C.module_path).list.last().str.replace(INSTANCE_NUMBER, "").alias(C.module),
        C.pct_roofline,
    )
    stored = [name for name in figures.columns[1:] if name in rows.columns]
    return rows.drop(stored).join(figures, on=C.operation_uid, how="left", maintain_order="left")


def with_layer_modules(
    rows: pl.DataFrame, anchors: Sequence[pl.Series], modules: Modules
) -> pl.DataFrame:
    """Return rows with ``layer_module`` and ``module_count``: class and instances of the modules
    that change from layer to layer.

    Args:
        rows: The table ``inference_layers``.
        anchors: By kind, the uids of one GPU event in each layer of a sequence.
        modules: The modules around GPU events.
    """
    found = [(kind, *layer_module(modules(uids))) for kind, uids in enumerate(anchors)]
    schema = {C.kind: pl.Int64, C.layer_module: pl.String, C.module_count: pl.Int64}
    of_kind = pl.DataFrame(found, schema=schema, orient="row")
    return rows.join(of_kind, on=C.kind, how="left", maintain_order="left")


def layer_module(chains: Sequence[list[str]]) -> tuple[str | None, int | None]:
    """Return the class of which most instances are around layers, and their number.

    The outermost of equal ones counts; (None, None) if all layers have the same modules.

    Args:
        chains: The modules around each layer, outermost first, with the number of the instance.
    """
    depth = min(map(len, chains), default=0)
    best: tuple[str | None, int | None] = (None, None)
    for level in range(depth):
        names = {chain[level] for chain in chains}
        classes = {re.sub(INSTANCE_NUMBER, "", name) for name in names}
        if len(classes) == 1 and len(names) > (best[1] or 1):
            best = (classes.pop(), len(names))
    return best
