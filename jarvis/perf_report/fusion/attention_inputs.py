"""Find chains whose result attention reads: the normalization before its projections.

A chain feeds attention if attention runs in the next part of the enclosing frame (a decoder layer),
and the first step of that part, a projection or attention itself, reads the chain's result.
"""

import numpy as np
import polars as pl

from jarvis.perf_report.call_tree.frames import NONE, Bools, Int64s, Marked, marked
from jarvis.perf_report.fusion.data_flow import takes
from jarvis.perf_report.fusion.launch_order import LaunchOrder


def feeding_attention(
    order: LaunchOrder, chains: pl.DataFrame, attention: pl.DataFrame
) -> pl.Series:
    """Return the ``instance`` of ``chains`` (members) that feed attention.

    Args:
        attention: Members of unfused attention; fused attention is a kind of step.
    """
    steps = order.steps
    is_attention = steps["is_attention"].to_numpy(writable=True)
    is_attention[attention["step"].to_numpy()] = True
    if not is_attention.any():
        return chains["instance"].head(0)
    instances = chains.group_by("instance", maintain_order=True).agg(last=pl.col("step").max())
    last = instances["last"].to_numpy()
    at = steps["order"].to_numpy()
    has_next = last + 1 < at.size
    following = np.where(has_next, last + 1, last)
    starts_attention = is_attention[following] | steps["is_product"].to_numpy()[following]
    part = _next_part(order, last, at[following])
    in_part = _contains_attention(marked(order.marks.frames, at[is_attention]), part)
    feeds = has_next & starts_attention & in_part & _takes_result(order, last, following)
    return instances["instance"].filter(pl.Series(feeds))


def _next_part(order: LaunchOrder, last: Int64s, places: Int64s) -> Int64s:
    """Return the child, of the frame around the step ``last``, that contains each position; NONE if
    the frame does not contain it."""
    frames = order.marks.frames
    scope = order.steps["scope"].to_numpy()[last]
    is_bounded = order.steps["is_bounded"].to_numpy()[last]
    around = np.where(is_bounded, order.marks.parent_with_more(scope), scope)
    here = np.where((around >= 0) & (around < places) & (places < frames.end[around]), places, NONE)
    while (climbs := (here >= 0) & (frames.parent(here) != around)).any():
        here = np.where(climbs, frames.parent(here), here)
    return here


def _contains_attention(attention: Marked, places: Int64s) -> Bools:
    """Return whether attention runs at or below each position; False for NONE."""
    counts = attention.before[attention.frames.end[places]] - attention.before[places]
    return (places >= 0) & (counts > 0)


def _takes_result(order: LaunchOrder, last: Int64s, following: Int64s) -> Bools:
    """Return whether the step ``following`` has an operand like the result of the step ``last``."""
    operation, calls = order.steps["operation"].to_numpy(), order.calls
    pairs = np.stack([operation[last], operation[following]], axis=1)
    distinct, which = np.unique(pairs, axis=0, return_inverse=True)
    known = [
        one >= 0 <= other and takes(calls[one].traffic, calls[other].traffic)
        for one, other in distinct
    ]
    return np.array(known, dtype=np.bool_)[which]
