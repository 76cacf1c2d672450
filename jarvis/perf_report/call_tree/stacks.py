"""Python frames, modules and operators around host calls, from the tree with Python frames."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import polars as pl

from jarvis.core.arrays import has_any
from jarvis.core.expressions import first_of
from jarvis.perf_report.calls import HostCalls
from jarvis.schemas.names import C
from jarvis.text.format import cut
from jarvis.trace.links import BACKWARD_PREFIX
from jarvis.trace.tables import CPU_OP, PYTHON_FUNCTION

MODULE_PREFIX = "nn.Module: "

INSTANCE_NUMBER = r"_\d+$"
"""The number that the profiler adds to the class of a module."""

MAX_CHAIN_LENGTH = 4_000
"""Maximum characters of the names around one call in a row of a table; recordings have fewer than
2,000. The tree (``call_paths``) has all names."""

# A frame reads "path/file.py(12): function".
_PYTHON_FRAME = re.compile(r"^(?P<file>\S.*?\.py)\(\d+\): (?P<function>.*)$")
# Frames that are not entry points: of the framework and its libraries, and wrappers.
_FRAMEWORK_FILE = re.compile(
    r"(^|/)((torch|triton)/.*|(contextlib|functools|runpy|threading|weakref)\.py)$"
)
_FSDP_FILE = re.compile(r"(^|/)torch/distributed/fsdp/")
_WRAPPERS = frozenset({"wrapper", "wrapped", "inner", "custom_wrapper", "outer_wrapper"})

Kind = Literal["module", "python", "op", "runtime", "kernel"]

KIND_OF_CALL = first_of(
    {
        "op": pl.col(C.cat) == CPU_OP,
        "runtime": pl.col(C.cat) != PYTHON_FUNCTION,
        "module": pl.col(C.name).str.starts_with(MODULE_PREFIX),
    },
    "python",
)


class Frame(NamedTuple):
    """One call around another; the name is cut at MAX_NAME_LENGTH."""

    name: str
    kind: Kind


Nearest = dict[int, int | None]
"""The nearest call of some kind above each call, by uid."""


@dataclass(frozen=True)
class CallStacks:
    """The chain of calls above some host calls.

    ``rows`` maps a uid to its parent's uid and its frame, for these calls and all above them,
    parents first. ``forwards`` maps an autograd node among them to the op that it differentiates:
    the autograd thread has no Python frames, so modules and entry point of a backward call are
    those of its forward op.
    """

    rows: dict[int, tuple[int | None, Frame]]
    forwards: dict[int, int]

    def parent(self, uid: int) -> int | None:
        """Return the uid of the enclosing call, None at the top."""
        return self.rows[uid][0] if uid in self.rows else None

    def nearest_above(self, is_wanted: Callable[[Frame], bool]) -> Nearest:
        """Return the innermost wanted call around each call."""
        return self._nearest(lambda uid: is_wanted(self.rows[uid][1]))

    def chain(self, uid: int, nearest: Nearest) -> list[str]:
        """Return the names that ``nearest`` leads to from a call, outermost first.

        Only the innermost ones, with at most MAX_CHAIN_LENGTH characters in total.
        """
        return shortest_chain(self.rows[place][1].name for place in _steps(uid, nearest))

    def modules(self, uid: int) -> list[str]:
        """Return the names of the modules around a call, outermost first, limited as ``chain``."""
        names = self.chain(self._with_python(uid), self._module_above)
        return [name.removeprefix(MODULE_PREFIX) for name in names]

    def entry_point(self, uid: int) -> str | None:
        """Return the nearest Python frame outside the framework, or None."""
        frame_uid = self._own_frame_above.get(self._with_python(uid))
        return None if frame_uid is None else self.rows[frame_uid][1].name

    def is_in_autograd(self, uid: int) -> bool:
        """Return whether the call runs under an autograd node."""
        return self._autograd_above.get(uid) is not None

    def is_in_fsdp(self, uid: int) -> bool:
        """Return whether a function of FSDP makes the call, not a module or code of its own inside
        FSDP."""
        place = self.parent(self._with_python(uid))
        while place is not None:
            place, frame = self.rows[place]
            if frame.kind == "module" or _is_own(frame):
                return False
            if (match := _PYTHON_FRAME.match(frame.name)) and _FSDP_FILE.search(match["file"]):
                return True
        return False

    def _with_python(self, uid: int) -> int:
        """Return the call itself if Python frames are above it, else its forward op if any."""
        if uid not in self.rows or _is_python(self.rows[uid][1]) or self._python_above[uid]:
            return uid
        node = uid if uid in self.forwards else self._differentiated_above[uid]
        return uid if node is None else self.forwards[node]

    def _nearest(self, is_wanted: Callable[[int], bool]) -> Nearest:
        wanted = {uid for uid in self.rows if is_wanted(uid)}
        nearest: Nearest = {}
        for uid, (parent, _) in self.rows.items():
            nearest[uid] = parent if parent in wanted or parent is None else nearest[parent]
        return nearest

    @cached_property
    def _module_above(self) -> Nearest:
        return self.nearest_above(lambda frame: frame.kind == "module")

    @cached_property
    def _own_frame_above(self) -> Nearest:
        return self.nearest_above(lambda frame: frame.kind == "python" and _is_own(frame))

    @cached_property
    def _python_above(self) -> Nearest:
        return self.nearest_above(_is_python)

    @cached_property
    def _autograd_above(self) -> Nearest:
        return self.nearest_above(lambda frame: frame.name.startswith(BACKWARD_PREFIX))

    @cached_property
    def _differentiated_above(self) -> Nearest:
        return self._nearest(self.forwards.__contains__)


def own_frames(innermost_first: Iterable[Frame]) -> list[str]:
    """Return the modules and Python functions of a chain, outermost first, as ``shortest_chain``.

    Functions of the framework are excluded.
    """
    return shortest_chain(
        frame.name.removeprefix(MODULE_PREFIX)
        for frame in innermost_first
        if frame.kind == "module" or _is_own(frame)
    )


def shortest_chain(innermost_first: Iterable[str]) -> list[str]:
    """Return names outermost first, limited to the innermost MAX_CHAIN_LENGTH characters.

    ``…`` replaces the others.
    """
    names, remaining = [], MAX_CHAIN_LENGTH
    for name in innermost_first:
        remaining -= len(name)
        if remaining < 0:
            names.append("…")
            break
        names.append(name)
    return names[::-1]


def _steps(uid: int, nearest: Nearest) -> Iterator[int]:
    place = nearest.get(uid)
    while place is not None:
        yield place
        place = nearest[place]


def _is_python(frame: Frame) -> bool:
    return frame.kind in ("python", "module")


def _is_own(frame: Frame) -> bool:
    return is_own_function(frame.name)


def is_own_function(name: str) -> bool:
    """Return whether a call is a Python function outside the framework, and no wrapper."""
    match = _PYTHON_FRAME.match(name)
    return match is not None and not (
        match["function"] in _WRAPPERS or _FRAMEWORK_FILE.search(match["file"])
    )


def call_stacks(
    tree: pl.DataFrame, host_calls: HostCalls, backward_links: pl.DataFrame, uids: pl.Series
) -> CallStacks:
    """Return the chains above the calls ``uids``, and above the forward ops of autograd nodes.

    ``tree`` and ``host_calls`` have Python functions; ``backward_links``: ``Trace.backwards``.
    """
    nodes = _with_ancestors(tree, uids)[C.uid]
    links = backward_links.filter(pl.col(C.backward_uid).is_in(nodes.implode()))
    rows = _with_ancestors(tree, pl.concat([uids, links[C.forward_uid]]))
    named = host_calls.select(rows[C.uid], C.name, C.cat).with_columns(KIND_OF_CALL.alias(C.kind))
    frames = (
        rows.join(named, on=C.uid, maintain_order="left")
        .select(C.uid, C.parent_uid, C.name, C.kind)
        .iter_rows()
    )
    return CallStacks(
        {uid: (parent, Frame(cut(name), kind)) for uid, parent, name, kind in frames},
        dict(links.select(C.backward_uid, C.forward_uid).iter_rows()),
    )


def _with_ancestors(tree: pl.DataFrame, uids: pl.Series) -> pl.DataFrame:
    """Return ``uid, parent_uid`` of these calls and of all calls above them, parents first."""
    wanted = tree.select(pl.col(C.uid).is_in(uids.implode())).to_series().to_numpy()
    is_above = has_any(wanted, tree["order"].to_numpy(), tree[C.subtree_end].to_numpy())
    return tree.filter(pl.Series(is_above)).sort("order").select(C.uid, C.parent_uid)
