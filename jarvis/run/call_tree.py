"""The call tree of a run for display: a view of all GPU work or of one operation."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from jarvis import impact
from jarvis.perf_report.call_tree.gpu_time import NodeKind
from jarvis.perf_report.call_tree.stacks import MODULE_PREFIX
from jarvis.perf_report.call_tree.views import NUMBER_OF_MODULE, View
from jarvis.run.run import Run
from jarvis.trace.links import BACKWARD_PREFIX

TABLE, OPERATIONS_TABLE = "call_tree", "call_tree_operations"

_FRAME = r"^(?:.*/)?([^/]+\.py)\((\d+)\): (.+)$"
_MODULE_SUMS = (
    *("gpu_ns", "backward_ns", "modelled_ns", "judged_ns", "roofline_ns"),
    *("launches", "calls", "module_count"),
)


def views(run: Run) -> list[View]:
    """Return the views of a run; none if the run predates the table."""
    if TABLE not in run.tables:
        return []
    return [View(name) for name in run.table(TABLE)["view"].unique(maintain_order=True)]


def view_of(run: Run, node: int) -> View | None:
    """Return the view of a node; None if there is no such node."""
    found = run.table(TABLE).filter(node=node)["view"]
    return None if found.is_empty() else View(found[0])


def call_tree(run: Run, view: View, operation_uid: int | None = None) -> "CallTree":
    """Return one view of the tree; with ``operation_uid`` only the GPU time of that operation."""
    nodes = run.table(TABLE).filter(view=view.value)
    work = run.table(OPERATIONS_TABLE).filter(
        pl.col("node").is_between(nodes["node"][0], nodes["node"][-1])
    )
    if operation_uid is not None:
        work = work.filter(operation_uid=operation_uid)
    is_believed = impact.is_judged() & (pl.col("pct_roofline") <= impact.ANOMALY_PCT)
    models = run.table("operations").select(
        "has_perf_model",
        operation_uid="uid",
        call_ns=pl.when(is_believed).then(1e3 * pl.col("roofline_time_us")),
    )
    gpu_ns, call_ns = pl.col("gpu_ns"), pl.col("call_ns")
    priced = work.join(models, on="operation_uid", how="left", maintain_order="left").select(
        "node",
        "gpu_ns",
        "launches",
        "calls",
        modelled_ns=pl.when("has_perf_model").then(gpu_ns).otherwise(0),
        judged_ns=pl.when(call_ns.is_not_null()).then(gpu_ns).otherwise(0),
        roofline_ns=(pl.col("calls") * call_ns).fill_null(0.0),
    )
    if operation_uid is None:
        priced = priced.select("node", "judged_ns", "roofline_ns")
    nodes = nodes.with_columns(
        _summed(nodes, priced["node"], values) for values in priced.drop("node")
    ).with_columns(label=_label())
    if operation_uid is not None:
        nodes = nodes.filter((pl.col("launches") > 0) | pl.col("parent").is_null())
        name = run.table("operations").filter(uid=operation_uid)["name"].item()
        is_root = pl.col("parent").is_null()
        nodes = nodes.with_columns(
            label=pl.when(is_root).then(pl.lit(f"All calls of {name}")).otherwise("label")
        )
    return CallTree(view, _with_levels(nodes))


def operations_below(run: Run, tree: "CallTree", node: int) -> pl.DataFrame:
    """Return the operations of the GPU work at and below a node, most GPU time first.

    Columns: ``operation_uid, gpu_ns, launches, calls`` there, and ``name, input_dims, op_category,
    pct_roofline`` of the operation.
    """
    end = tree.nodes.filter(node=node)["subtree_end"][0]
    work = run.table(OPERATIONS_TABLE).filter(pl.col("node").is_between(node, end, closed="left"))
    operations = run.table("operations").select(
        "name", "input_dims", "op_category", "pct_roofline", operation_uid="uid"
    )
    return (
        work.group_by("operation_uid")
        .agg(pl.col("gpu_ns", "launches", "calls").sum())
        .join(operations, on="operation_uid")
        .sort("gpu_ns", "operation_uid", descending=[True, False])
    )


@dataclass(frozen=True)
class CallTree:
    """``nodes`` in preorder.

    Columns: those of the table, ``label``, ``judged_ns`` (GPU time with a plausible efficiency),
    ``roofline_ns`` (the roofline time of that work), ``is_through`` (a Python frame that passes all
    its time to one call), ``level`` (ancestors that do not), ``start_ns`` (GPU time to the left of
    the node). In the tree of one operation, ``calls`` are those of the operation.
    """

    view: View
    nodes: pl.DataFrame

    @property
    def root(self) -> int:
        """Return the node of all GPU work."""
        return int(self.nodes["node"][0])

    @cached_property
    def gpu_ns(self) -> int:
        """Return all GPU time in the tree in ns."""
        return int(self.nodes["gpu_ns"][0])

    def has(self, node: int) -> bool:
        """Return whether the node is in this tree: in this view and, for one operation, above its
        work."""
        return not self.nodes.filter(node=node).is_empty()

    def settled(self, node: int) -> int:
        """Return the node, or its first descendant that does not pass all its time to one call."""
        return int(self.nodes.filter(pl.col("node") >= node, ~pl.col("is_through"))["node"][0])

    def row(self, node: int) -> dict[str, Any]:
        """Return a node with its columns and those of ``with_shares``."""
        return with_shares(self.nodes.filter(node=node), self.gpu_ns).row(0, named=True)

    def below(self, node: int) -> pl.DataFrame:
        """Return a node and all its shown descendants."""
        end = self.nodes.filter(node=node)["subtree_end"][0]
        return self.nodes.filter(
            pl.col("node").is_between(node, end, closed="left"), ~pl.col("is_through")
        )

    def trail(self, node: int) -> pl.DataFrame:
        """Return the shown nodes from the root to a node."""
        return self.nodes.filter(
            pl.col("node") <= node, pl.col("subtree_end") > node, ~pl.col("is_through")
        )

    def children(self, node: int) -> pl.DataFrame:
        """Return the shown children of a node, most GPU time first."""
        below = self.below(node)
        found = below.filter(pl.col("level") == below["level"][0] + 1)
        return found.sort("gpu_ns", "node", descending=[True, False])

    def matches(self, node: int, text: str) -> pl.DataFrame:
        """Return the descendants of a node whose name contains a text, most GPU time first.

        None is a descendant of another one, so that their times add up.
        """
        found = self.below(node).filter(
            pl.col("name").str.to_lowercase().str.contains(text.lower(), literal=True)
            & (pl.col("kind") != NodeKind.REST.word)
        )
        outermost = found.filter(_is_outermost(pl.col("subtree_end")))
        return outermost.sort("gpu_ns", "node", descending=[True, False])

    def modules(self, node: int) -> pl.DataFrame:
        """Return a row for each module name at and below a node, most GPU time first.

        Of modules nested in others of the same name only the outer ones count.
        """
        found = self.below(node).filter(kind=NodeKind.MODULE.word)
        outermost = found.filter(_is_outermost(pl.col("subtree_end"), "name"))
        return (
            outermost.group_by("label", maintain_order=True)
            .agg(pl.col(_MODULE_SUMS).sum(), pl.col("node").first())
            .sort("gpu_ns", "label", descending=[True, False])
        )

    def counterpart(self, other: "CallTree", node: int) -> int:
        """Return the node for the calls of a node of another view.

        As deep as names agree; of several nodes the one with most GPU time.
        """
        nodes = self.nodes.with_columns(class_name=_class_name())
        here = nodes.row(0, named=True)
        is_frame = pl.col("kind") == NodeKind.PYTHON.word
        wanted = other.trail(node).filter(~is_frame).select(_class_name()).to_series()
        for name in wanted[1:]:
            inside = pl.col("node").is_between(here["node"] + 1, here["subtree_end"], closed="left")
            below = nodes.filter(inside, ~is_frame)
            nearest = below.filter(_is_outermost(pl.col("subtree_end")))
            named = nearest.filter(class_name=name).sort("gpu_ns", descending=True)
            if named.is_empty():
                break
            here = named.row(0, named=True)
        return int(here["node"])


def with_shares(nodes: pl.DataFrame, whole_ns: int) -> pl.DataFrame:
    """Return nodes with ``gpu_ms``, ``share_pct`` of ``whole_ns``, ``backward_ms``,
    ``modelled_pct`` and ``efficiency_pct``; null for divisions by 0."""
    gpu_ns, judged_ns = pl.col("gpu_ns"), pl.col("judged_ns")
    return nodes.with_columns(
        gpu_ms=gpu_ns / 1e6,
        share_pct=100 * gpu_ns / (whole_ns or None),
        backward_ms=pl.col("backward_ns") / 1e6,
        modelled_pct=pl.when(gpu_ns > 0).then(100 * pl.col("modelled_ns") / gpu_ns),
        efficiency_pct=pl.when(judged_ns > 0).then(100 * pl.col("roofline_ns") / judged_ns),
    )


def _summed(nodes: pl.DataFrame, at: pl.Series, values: pl.Series) -> pl.Series:
    """Return the sum of the values at and below each node."""
    first = int(nodes["node"][0])
    before = np.zeros(nodes.height + 1, dtype=values.to_numpy().dtype)
    np.add.at(before, at.to_numpy() - first + 1, values.to_numpy())
    before = np.cumsum(before)
    start, end = (nodes[name].to_numpy() - first for name in ("node", "subtree_end"))
    return pl.Series(values.name, before[end] - before[start])


def _label() -> pl.Expr:
    """Return readable names."""
    name = pl.col("name")
    backward = name.str.strip_prefix(BACKWARD_PREFIX).str.strip_chars()
    return (
        pl.when(name.str.starts_with(BACKWARD_PREFIX))
        .then(pl.format("{} (autograd)", backward))
        .when(pl.col("kind") == NodeKind.PYTHON.word)
        .then(name.str.replace(_FRAME, "$3 · $1:$2"))
        .otherwise(name.str.strip_prefix(MODULE_PREFIX))
    )


def _class_name() -> pl.Expr:
    """Return names, those of modules without the instance number."""
    name = pl.col("name")
    is_module = pl.col("kind") == NodeKind.MODULE.word
    return pl.when(is_module).then(name.str.replace(NUMBER_OF_MODULE, "$1")).otherwise(name)


def _is_outermost(end: pl.Expr, *over: str) -> pl.Expr:
    """Return whether a node (in preorder) has no previous node as ancestor, of equal ``over`` if
    given."""
    reached = end.cum_max().shift(1, fill_value=0)
    return pl.col("node") >= (reached.over(over) if over else reached)


def _with_levels(nodes: pl.DataFrame) -> pl.DataFrame:
    """Add ``is_through``, ``level`` and ``start_ns`` to nodes."""
    gpu_ns = pl.col("gpu_ns")
    is_frame = pl.col("kind") == NodeKind.PYTHON.word
    is_leaf = (pl.col("depth").shift(-1) <= pl.col("depth")).fill_null(value=True)
    leaf_ns = pl.when(is_leaf).then(gpu_ns).otherwise(0)
    marked = nodes.with_columns(
        is_through=is_frame & (gpu_ns.shift(-1) == gpu_ns) & ~is_leaf,
        start_ns=leaf_ns.cum_sum() - leaf_ns,
    )
    first, size = nodes["node"][0], nodes["subtree_end"][0] - nodes["node"][0] + 1
    change: NDArray[np.int64] = np.zeros(size, dtype=np.int64)
    through = marked.filter("is_through")
    np.add.at(change, through["node"].to_numpy() - first + 1, 1)
    np.add.at(change, through["subtree_end"].to_numpy() - first, -1)
    skipped = np.cumsum(change)[nodes["node"].to_numpy() - first]
    return marked.with_columns(level=pl.col("depth") - pl.Series(skipped))
