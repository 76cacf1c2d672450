"""Find the scope of each step: the module, function or operator whose steps form a chain.

The scope is the innermost module, else the outermost function or operator, of which all steps can
be fused ("bounded"); else the nearest frame with more than one step.
"""

import numpy as np
import polars as pl

from jarvis.core.arrays import Bools, Int64s
from jarvis.core.expressions import first_of
from jarvis.perf_report.call_tree.frames import NONE, Marked
from jarvis.perf_report.call_tree.stacks import MODULE_PREFIX
from jarvis.perf_report.calls import HostCalls
from jarvis.schemas.names import C
from jarvis.trace.tables import CPU_OP, PYTHON_FUNCTION

MAX_STEPS = 15
"""Maximum steps of a chain; a frame with more steps cannot be replaced by one kernel."""

MODULE, FUNCTION, OPERATOR, SEQUENCE = "module", "function", "operator", "sequence"

_BUILT_IN = "<built-in"
_CALL_FRAMES = 4
"""Maximum calls between a module and its code."""


def scopes(
    steps: Marked, at: Int64s, can_fuse: Bools, host_calls: HostCalls
) -> tuple[Int64s, Bools]:
    """Return the position of each step's scope in the tree (or NONE), and whether it is bounded.

    ``at``: the position of each step, ascending.
    """
    scope = _bounded(steps, ~can_fuse, host_calls)
    is_bounded = scope >= 0
    scope[~is_bounded] = _nearest(steps, at[~is_bounded])
    return scope, is_bounded


def _bounded(steps: Marked, ends_chain: Bools, host_calls: HostCalls) -> Int64s:
    """Return the bounded scope of each step, or NONE."""
    frames = steps.frames
    first, last = steps.inside(np.arange(frames.uid.size))
    ends_before = np.concatenate([[0], np.cumsum(ends_chain)])
    is_pure = (last - first >= 2) & (last - first <= MAX_STEPS) & ~frames.is_dropped
    places = np.flatnonzero(is_pure)
    places = places[ends_before[last[places]] == ends_before[first[places]]]
    named = _named(steps, places, host_calls)
    place = named["scope"].to_numpy()
    inside = (
        pl.DataFrame({"scope": place, "step": first[place], "end": last[place]})
        .with_columns(is_module=named[C.kind] == MODULE, step=pl.int_ranges("step", "end"))
        .explode("step")
    )
    module = pl.col("scope").filter("is_module").max()
    chosen = inside.group_by("step").agg(scope=pl.coalesce(module, pl.col("scope").min()))
    scope = np.full(ends_chain.size, NONE, dtype=np.int64)
    scope[chosen["step"].to_numpy()] = chosen["scope"].to_numpy()
    return scope


def _nearest(steps: Marked, at: Int64s) -> Int64s:
    """Return the nearest frame above each position with more than one step, or NONE."""
    here = steps.frames.parent(at)
    climbs = np.flatnonzero(here >= 0)
    while (climbs := climbs[steps.count(here[climbs]) < 2]).size:
        here[climbs] = steps.frames.parent(here[climbs])
        climbs = climbs[here[climbs] >= 0]
    return here


def _named(steps: Marked, places: Int64s, host_calls: HostCalls) -> pl.DataFrame:
    """Return ``scope, name, kind`` of the frames at these positions, without runtime calls and
    built-ins."""
    category, name = pl.col(C.cat).cast(pl.String), pl.col(C.name).cast(pl.String)
    is_function = (category == PYTHON_FUNCTION) & ~name.str.starts_with(_BUILT_IN)
    frames = steps.frames
    calls = host_calls.select(pl.Series(frames.uid[places]), C.name, C.cat)
    return (
        calls.with_columns(scope=pl.Series(frames.position[calls[C.uid].to_numpy()]))
        .filter((category == CPU_OP) | is_function)
        .select(
            "scope",
            **{
                C.name: name,
                C.kind: first_of(
                    {OPERATOR: category == CPU_OP, MODULE: name.str.starts_with(MODULE_PREFIX)},
                    FUNCTION,
                ),
            },
        )
    )


def scope_labels(steps: Marked, places: Int64s, host_calls: HostCalls) -> pl.DataFrame:
    """Return ``scope, scope_kind, scope_name``, with names without instance numbers.

    A module runs in functions below it (``_call_impl``, ``forward``): if the module has no other
    steps, its name is used for them. ``places`` are distinct.
    """
    levels = [places]
    for _ in range(_CALL_FRAMES):
        below = levels[-1]
        above = steps.frames.parent(below)
        has_more = steps.count(above) > steps.count(below)
        levels.append(np.where((above >= 0) & ~has_more, above, below))
    named = _named(steps, np.unique(np.concatenate(levels)), host_calls)
    return (
        pl.concat(
            pl.DataFrame({C.place: places, "scope": level}).with_columns(level=pl.lit(number))
            for number, level in enumerate(levels)
        )
        .join(named, on="scope")
        .sort(C.place, pl.col(C.kind) != MODULE, "level")
        .unique(C.place, keep="first", maintain_order=True)
        .select(scope=C.place, **{C.scope_kind: pl.col(C.kind), C.scope_name: _base_name()})
    )


def _base_name() -> pl.Expr:
    """Shorten ``nn.Module: RMSNorm_3`` to ``RMSNorm``, ``model.py(61): forward`` to ``forward``."""
    name, kind = pl.col(C.name), pl.col(C.kind)
    module = name.str.strip_prefix(MODULE_PREFIX).str.replace(r"(.)_\d+$", "$1")
    return (
        pl.when(kind == MODULE)
        .then(module)
        .when(kind == FUNCTION)
        .then(name.str.replace(r"^.*: ", ""))
        .otherwise(name)
    )
