"""Which module, function or operator a step runs in, so that the steps of one are a chain.

A frame of the call tree of which all steps can be fused bounds them: the innermost module, else the
outermost function or operator. Other steps have the nearest frame that holds more than one step.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from jarvis.perf_report.calls import HostCalls
from jarvis.trace.tables import CPU_OP, PYTHON_FUNCTION

MAX_STEPS = 15
"""A frame with more steps drives many kernels, it is no chain that one kernel could replace."""

MODULE, FUNCTION, OPERATOR, SEQUENCE = "module", "function", "operator", "sequence"
MODULE_PREFIX = "nn.Module: "

_BUILT_IN = "<built-in"
_CALL_FRAMES = 4
"""How many calls may stand between a module and its code."""

_NONE = -1

Int64s = NDArray[np.int64]


@dataclass(frozen=True)
class _Frames:
    """The call tree as arrays over positions, and how many steps start below each position."""

    uid: Int64s
    end: Int64s
    parent_uid: Int64s
    is_dropped: NDArray[np.bool_]
    position: Int64s
    steps_before: Int64s

    def inside(self, places: Int64s) -> tuple[Int64s, Int64s]:
        """The first step below each place, and the first one after it."""
        return self.steps_before[places + 1], self.steps_before[self.end[places]]

    def count(self, places: Int64s) -> Int64s:
        """The number of steps below each place."""
        first, last = self.inside(places)
        return last - first

    def parent(self, places: Int64s) -> Int64s:
        """The place above each place; -1 for none, and for -1."""
        uid = np.where(places >= 0, self.parent_uid[places], _NONE)
        return np.where(uid >= 0, self.position[uid], _NONE)


def scopes(steps: pl.DataFrame, tree: pl.DataFrame, host_calls: HostCalls) -> pl.DataFrame:
    """``scope`` (a place of the tree, -1 for none), ``is_bounded``, ``scope_kind``, ``scope_name``.

    ``steps``: ``order`` of each step in the tree, ascending, and whether it ``can_fuse``.
    """
    at = steps["order"].to_numpy()
    frames = _frames(tree, at)
    bounded = _bounded(frames, ~steps["can_fuse"].to_numpy(), host_calls)
    scope = np.where(bounded >= 0, bounded, _nearest(frames, at))
    labels = _labels(frames, np.unique(scope[scope >= 0]), host_calls)
    return (
        pl.DataFrame({"scope": scope, "is_bounded": bounded >= 0})
        .join(labels, on="scope", how="left", maintain_order="left")
        .with_columns(pl.col("scope_kind").fill_null(SEQUENCE))
    )


def _frames(tree: pl.DataFrame, at: Int64s) -> _Frames:
    uid = tree["uid"].to_numpy()
    position = np.full(int(uid.max(initial=0)) + 1, _NONE, dtype=np.int64)
    position[uid] = np.arange(uid.size)
    steps_before = np.zeros(uid.size + 1, dtype=np.int64)
    np.cumsum(np.bincount(at, minlength=uid.size), out=steps_before[1:])
    return _Frames(
        uid=uid,
        end=tree["subtree_end"].to_numpy(),
        parent_uid=tree["parent_uid"].fill_null(_NONE).to_numpy(),
        is_dropped=tree["is_dropped"].to_numpy(),
        position=position,
        steps_before=steps_before,
    )


def _bounded(frames: _Frames, ends_chain: NDArray[np.bool_], host_calls: HostCalls) -> Int64s:
    """For each step the frame that bounds it; -1 for none."""
    first, last = frames.inside(np.arange(frames.uid.size))
    ends_before = np.concatenate([[0], np.cumsum(ends_chain)])
    is_pure = (last - first >= 2) & (last - first <= MAX_STEPS) & ~frames.is_dropped
    places = np.flatnonzero(is_pure)
    places = places[ends_before[last[places]] == ends_before[first[places]]]
    named = _named(frames, places, host_calls)
    place = named["scope"].to_numpy()
    inside = (
        pl.DataFrame({"scope": place, "step": first[place], "end": last[place]})
        .with_columns(is_module=named["kind"] == MODULE, step=pl.int_ranges("step", "end"))
        .explode("step")
    )
    module = pl.col("scope").filter("is_module").max()
    chosen = inside.group_by("step").agg(scope=pl.coalesce(module, pl.col("scope").min()))
    found = np.full(ends_chain.size, _NONE, dtype=np.int64)
    found[chosen["step"].to_numpy()] = chosen["scope"].to_numpy()
    return found


def _nearest(frames: _Frames, at: Int64s) -> Int64s:
    """For each step the nearest frame above with more than one step; -1 for none."""
    here = frames.parent(at)
    while (above := here >= 0).any():
        if not (climbs := above & (frames.count(here) < 2)).any():
            break
        here[climbs] = frames.parent(here[climbs])
    return here


def _named(frames: _Frames, places: Int64s, host_calls: HostCalls) -> pl.DataFrame:
    """``scope, name, kind`` of the frames at these places; no runtime calls, no built-ins."""
    category, name = pl.col("cat").cast(pl.String), pl.col("name").cast(pl.String)
    is_function = (category == PYTHON_FUNCTION) & ~name.str.starts_with(_BUILT_IN)
    found = host_calls.select(pl.Series(frames.uid[places]), "name", "cat")
    return (
        found.with_columns(scope=pl.Series(frames.position[found["uid"].to_numpy()]))
        .filter((category == CPU_OP) | is_function)
        .select(
            "scope",
            name=name,
            kind=pl.when(category == CPU_OP)
            .then(pl.lit(OPERATOR))
            .when(name.str.starts_with(MODULE_PREFIX))
            .then(pl.lit(MODULE))
            .otherwise(pl.lit(FUNCTION)),
        )
    )


def _labels(frames: _Frames, places: Int64s, host_calls: HostCalls) -> pl.DataFrame:
    """``scope, scope_kind, scope_name``: names without the number of the instance.

    The code of a module runs in functions below it (``_call_impl``, ``forward``): where the module
    holds no other steps, it gives the name.
    """
    levels = [places]
    for _ in range(_CALL_FRAMES):
        below = levels[-1]
        above = frames.parent(below)
        holds_more = frames.count(above) > frames.count(below)
        levels.append(np.where((above >= 0) & ~holds_more, above, below))
    named = _named(frames, np.unique(np.concatenate(levels)), host_calls)
    return (
        pl.concat(
            pl.DataFrame({"place": places, "scope": level}).with_columns(level=pl.lit(number))
            for number, level in enumerate(levels)
        )
        .join(named, on="scope")
        .sort("place", pl.col("kind") != MODULE, "level")
        .unique("place", keep="first", maintain_order=True)
        .select(scope="place", scope_kind="kind", scope_name=_base_name())
    )


def _base_name() -> pl.Expr:
    """``nn.Module: RMSNorm_3`` -> ``RMSNorm``; ``model.py(61): rotate_half`` -> ``rotate_half``."""
    name, kind = pl.col("name"), pl.col("kind")
    module = name.str.strip_prefix(MODULE_PREFIX).str.replace(r"(.)_\d+$", "$1")
    return (
        pl.when(kind == MODULE)
        .then(module)
        .when(kind == FUNCTION)
        .then(name.str.replace(r"^.*: ", ""))
        .otherwise(name)
    )
