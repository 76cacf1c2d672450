"""Find the inference-engine step around an op, for the models that read its annotation."""

import numpy as np
import polars as pl

from jarvis.core.arrays import Int64s
from jarvis.perf_models import BUILTIN, Registry
from jarvis.perf_models.step_annotation import parse
from jarvis.perf_report.intervals import END
from jarvis.schemas.names import C
from jarvis.text.format import cut
from jarvis.trace.tables import HOST_ANNOTATION

ANNOTATION_SCHEMA = {C.uid: pl.Int64, "annotation": pl.String}

_NOTHING = -1


def step_annotations(
    calls: pl.DataFrame, annotations: pl.DataFrame, registry: Registry = BUILTIN
) -> pl.DataFrame:
    """Return ``uid, annotation`` of the calls whose model reads annotations.

    Of the steps of an inference engine that enclose a call, on any thread, the innermost one that
    gives the lengths of its requests, else the innermost one; null if there is none.

    Args:
        calls: ``uid, name, ts_ns, dur_ns``.
        annotations: ``name, cat, ts_ns, dur_ns``.
    """
    models = {name: registry.find_model(name) for name in calls[C.name].unique()}
    readers = [name for name, model in models.items() if model and model.needs_annotation]
    if not readers:
        return pl.DataFrame(schema=ANNOTATION_SCHEMA)
    ops = calls.filter(pl.col(C.name).is_in(readers)).drop_nulls([C.ts_ns, C.dur_ns])
    return ops.select(C.uid, annotation=enclosing_steps(ops, annotations))


def enclosing_steps(calls: pl.DataFrame, annotations: pl.DataFrame) -> pl.Series:
    """Return the annotation of the step around each call (see ``step_annotations``)."""
    host = annotations.filter(pl.col(C.cat) == HOST_ANNOTATION).drop_nulls([C.ts_ns, C.dur_ns])
    steps = {name: step for name in host[C.name].unique() if (step := parse(cut(name)))}
    detailed = [name for name, step in steps.items() if step.context is not None]
    found = [
        _innermost(calls, host.filter(pl.col(C.name).is_in(of))) for of in (detailed, [*steps])
    ]
    return pl.select(pl.coalesce(*found)).to_series()


def _innermost(ops: pl.DataFrame, steps: pl.DataFrame) -> pl.Series:
    """Return the name of the last step to begin of those that enclose each op, null if none."""
    if steps.is_empty():
        return pl.repeat(None, ops.height, dtype=pl.String, eager=True)
    ordered = steps.with_columns(END.alias(C.end_ns)).sort(
        C.ts_ns, C.end_ns, descending=[False, True], maintain_order=True
    )
    starts, ends = (ordered[name].to_numpy() for name in (C.ts_ns, C.end_ns))
    around = _around(ends)
    op_ends = ops.select(END).to_series().to_numpy()
    at = np.searchsorted(starts, ops[C.ts_ns].to_numpy(), side="right") - 1
    while (short := (at != _NOTHING) & (ends.take(at, mode="clip") < op_ends)).any():
        at[short] = around[at[short]]
    return (
        ordered[C.name]
        .cast(pl.String)
        .gather(pl.Series(at, dtype=pl.Int64).replace(_NOTHING, None))
    )


def _around(ends: Int64s) -> Int64s:
    """Return the last earlier step that ends after each step, by position."""
    open_steps: list[int] = []
    around = []
    for position, end in enumerate(ends.tolist()):
        while open_steps and ends[open_steps[-1]] <= end:
            open_steps.pop()
        around.append(open_steps[-1] if open_steps else _NOTHING)
        open_steps.append(position)
    return np.array(around, dtype=np.int64)
