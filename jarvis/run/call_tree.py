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
from jarvis.schemas.names import C
from jarvis.text.short_names import short_kernel_name, without_namespaces
from jarvis.trace.links import BACKWARD_PREFIX

TABLE, OPERATIONS_TABLE = "call_tree", "call_tree_operations"

_FRAME = r"^(?:.*/)?([^/]+\.py)\((\d+)\): (.+)$"
_OF_OPERATION = (
    *(C.name, C.input_dims, C.params, C.category, C.pct_roofline),
    *(C.input_strides, C.concrete_inputs, C.direction, C.thread_name),
)
_MODULE_SUMS = (
    *(C.gpu_ns, C.backward_ns, C.modelled_ns, C.rated_ns, "roofline_ns"),
    *(C.launches, C.calls, C.module_count),
)


def views(run: Run) -> list[View]:
    """Return the views of a run; none if the run predates the table."""
    if TABLE not in run.tables:
        return []
    return [View(name) for name in run.table(TABLE)[C.view].unique(maintain_order=True)]


def view_of(run: Run, node: int) -> View | None:
    """Return the view of a node; None if there is no such node."""
    found = run.table(TABLE).filter(pl.col(C.node) == node)[C.view]
    return None if found.is_empty() else View(found[0])


def call_tree(run: Run, view: View, operation_uid: int | None = None) -> "CallTree":
    """Return one view of the tree; with ``operation_uid`` only the GPU time of that operation."""
    nodes = run.table(TABLE).filter(pl.col(C.view) == view.value)
    work = run.table(OPERATIONS_TABLE).filter(
        pl.col(C.node).is_between(nodes[C.node][0], nodes[C.node][-1])
    )
    if operation_uid is not None:
        work = work.filter(pl.col(C.operation_uid) == operation_uid)
    is_believed = impact.has_efficiency() & (pl.col(C.pct_roofline) <= impact.ANOMALY_PCT)
    models = run.table("operations").select(
        C.has_perf_model,
        pl.col(C.uid).alias(C.operation_uid),
        call_ns=pl.when(is_believed).then(1e3 * pl.col(C.roofline_time_us)),
    )
    gpu_ns, call_ns = pl.col(C.gpu_ns), pl.col("call_ns")
    priced = work.join(models, on=C.operation_uid, how="left", maintain_order="left").select(
        C.node,
        C.gpu_ns,
        C.launches,
        C.calls,
        pl.when(C.has_perf_model).then(gpu_ns).otherwise(0).alias(C.modelled_ns),
        pl.when(call_ns.is_not_null()).then(gpu_ns).otherwise(0).alias(C.rated_ns),
        roofline_ns=(pl.col(C.calls) * call_ns).fill_null(0.0),
    )
    if operation_uid is None:
        priced = priced.select(C.node, C.rated_ns, "roofline_ns")
    nodes = nodes.with_columns(
        _summed(nodes, priced[C.node], values) for values in priced.drop(C.node)
    ).with_columns(label=_label(nodes))
    if operation_uid is not None:
        nodes = nodes.filter((pl.col(C.launches) > 0) | pl.col(C.parent).is_null())
        name = run.table("operations").filter(pl.col(C.uid) == operation_uid)[C.name].item()
        is_root = pl.col(C.parent).is_null()
        nodes = nodes.with_columns(
            label=pl.when(is_root).then(pl.lit(f"All calls of {name}")).otherwise("label")
        )
    return CallTree(view, _with_levels(nodes))


def operations_below(run: Run, tree: "CallTree", node: int) -> pl.DataFrame:
    """Return the operations of the GPU work at and below a node, most GPU time first.

    Columns: ``operation_uid, gpu_ns, launches, calls`` there, and those of the operation that
    ``_OF_OPERATION`` names.
    """
    end = tree.nodes.filter(pl.col(C.node) == node)[C.subtree_end][0]
    work = run.table(OPERATIONS_TABLE).filter(pl.col(C.node).is_between(node, end, closed="left"))
    operations = run.table("operations").select(
        *_OF_OPERATION,
        pl.col(C.uid).alias(C.operation_uid),
    )
    return (
        work.group_by(C.operation_uid)
        .agg(pl.col(C.gpu_ns, C.launches, C.calls).sum())
        .join(operations, on=C.operation_uid)
        .sort(C.gpu_ns, C.operation_uid, descending=[True, False])
    )


@dataclass(frozen=True)
class CallTree:
    """``nodes`` in preorder.

    Columns: those of the table, ``label``, ``rated_ns`` (GPU time with a plausible efficiency),
    ``roofline_ns`` (the roofline time of that work), ``is_through`` (a Python frame that passes all
    its time to one call), ``level`` (ancestors that do not), ``start_ns`` (GPU time to the left of
    the node). In the tree of one operation, ``calls`` are those of the operation.
    """

    view: View
    nodes: pl.DataFrame

    @property
    def root(self) -> int:
        """Return the node of all GPU work."""
        return int(self.nodes[C.node][0])

    @cached_property
    def gpu_ns(self) -> int:
        """Return all GPU time in the tree in ns."""
        return int(self.nodes[C.gpu_ns][0])

    def has(self, node: int) -> bool:
        """Return whether the node is in this tree: in this view and, for one operation, above its
        work."""
        return not self.nodes.filter(pl.col(C.node) == node).is_empty()

    def settled(self, node: int) -> int:
        """Return the node, or its first descendant that does not pass all its time to one call."""
        return int(self.nodes.filter(pl.col(C.node) >= node, ~pl.col("is_through"))[C.node][0])

    def row(self, node: int) -> dict[str, Any]:
        """Return a node with its columns and those of ``with_shares``."""
        return with_shares(self.nodes.filter(pl.col(C.node) == node), self.gpu_ns).row(
            0, named=True
        )

    def below(self, node: int) -> pl.DataFrame:
        """Return a node and all its shown descendants."""
        end = self.nodes.filter(pl.col(C.node) == node)[C.subtree_end][0]
        return self.nodes.filter(
            pl.col(C.node).is_between(node, end, closed="left"), ~pl.col("is_through")
        )

    def trail(self, node: int) -> pl.DataFrame:
        """Return the shown nodes from the root to a node."""
        return self.nodes.filter(
            pl.col(C.node) <= node, pl.col(C.subtree_end) > node, ~pl.col("is_through")
        )

    def children(self, node: int) -> pl.DataFrame:
        """Return the shown children of a node, most GPU time first."""
        below = self.below(node)
        found = below.filter(pl.col("level") == below["level"][0] + 1)
        return found.sort(C.gpu_ns, C.node, descending=[True, False])

    def matches(self, node: int, text: str) -> pl.DataFrame:
        """Return the descendants of a node whose name contains a text, most GPU time first.

        None is a descendant of another one, so that their times add up.
        """
        found = self.below(node).filter(
            pl.col(C.name).str.to_lowercase().str.contains(text.lower(), literal=True)
            & (pl.col(C.kind) != NodeKind.REST.word)
        )
        outermost = found.filter(_is_outermost(pl.col(C.subtree_end)))
        return outermost.sort(C.gpu_ns, C.node, descending=[True, False])

    def modules(self, node: int) -> pl.DataFrame:
        """Return a row for each module name at and below a node, most GPU time first.

        Of modules nested in others of the same name only the outer ones count.
        """
        found = self.below(node).filter(pl.col(C.kind) == NodeKind.MODULE.word)
        outermost = found.filter(_is_outermost(pl.col(C.subtree_end), C.name))
        return (
            outermost.group_by("label", maintain_order=True)
            .agg(pl.col(_MODULE_SUMS).sum(), pl.col(C.node).first())
            .sort(C.gpu_ns, "label", descending=[True, False])
        )

    def counterpart(self, other: "CallTree", node: int) -> int:
        """Return the node for the calls of a node of another view.

        As deep as names agree; of several nodes the one with most GPU time.
        """
        nodes = self.nodes.with_columns(class_name=_class_name())
        here = nodes.row(0, named=True)
        is_frame = pl.col(C.kind) == NodeKind.PYTHON.word
        wanted = other.trail(node).filter(~is_frame).select(_class_name()).to_series()
        for name in wanted[1:]:
            inside = pl.col(C.node).is_between(here[C.node] + 1, here[C.subtree_end], closed="left")
            below = nodes.filter(inside, ~is_frame)
            nearest = below.filter(_is_outermost(pl.col(C.subtree_end)))
            named = nearest.filter(class_name=name).sort(C.gpu_ns, descending=True)
            if named.is_empty():
                break
            here = named.row(0, named=True)
        return int(here[C.node])


def with_shares(nodes: pl.DataFrame, whole_ns: int) -> pl.DataFrame:
    """Return nodes with ``gpu_ms``, ``share_pct`` of ``whole_ns``, ``backward_ms``,
    ``modelled_pct`` and ``efficiency_pct``; null for divisions by 0."""
    gpu_ns, rated_ns = pl.col(C.gpu_ns), pl.col(C.rated_ns)
    return nodes.with_columns(
        **{
            C.gpu_ms: gpu_ns / 1e6,
            C.share_pct: 100 * gpu_ns / (whole_ns or None),
            C.backward_ms: pl.col(C.backward_ns) / 1e6,
            C.modelled_pct: pl.when(gpu_ns > 0).then(100 * pl.col(C.modelled_ns) / gpu_ns),
            C.efficiency_pct: pl.when(rated_ns > 0).then(100 * pl.col("roofline_ns") / rated_ns),
        },
    )


def _summed(nodes: pl.DataFrame, at: pl.Series, values: pl.Series) -> pl.Series:
    """Return the sum of the values at and below each node."""
    first = int(nodes[C.node][0])
    before = np.zeros(nodes.height + 1, dtype=values.to_numpy().dtype)
    np.add.at(before, at.to_numpy() - first + 1, values.to_numpy())
    before = np.cumsum(before)
    start, end = (nodes[name].to_numpy() - first for name in (C.node, C.subtree_end))
    return pl.Series(values.name, before[end] - before[start])


def _label(nodes: pl.DataFrame) -> pl.Expr:
    """Return readable names."""
    name, is_kernel = pl.col(C.name), pl.col(C.kind) == NodeKind.KERNEL.word
    kernels = {kernel: short_kernel_name(kernel) for kernel in nodes.filter(is_kernel)[C.name]}
    backward = name.str.strip_prefix(BACKWARD_PREFIX).str.strip_chars()
    return (
        pl.when(name.str.starts_with(BACKWARD_PREFIX))
        .then(pl.format("{} (autograd)", backward))
        .when(pl.col(C.kind) == NodeKind.PYTHON.word)
        .then(name.str.replace(_FRAME, "$3 · $1:$2"))
        .when(is_kernel)
        .then(name.replace(kernels))
        .otherwise(name.str.strip_prefix(MODULE_PREFIX))
    )


def short_labels(nodes: pl.DataFrame) -> pl.Series:
    """Return the labels without the namespaces of operators, for narrow places."""
    return pl.Series("short", map(without_namespaces, nodes["label"]), pl.String)


def _class_name() -> pl.Expr:
    """Return names, those of modules without the instance number."""
    name = pl.col(C.name)
    is_module = pl.col(C.kind) == NodeKind.MODULE.word
    return pl.when(is_module).then(name.str.replace(NUMBER_OF_MODULE, "$1")).otherwise(name)


def _is_outermost(end: pl.Expr, *over: str) -> pl.Expr:
    """Return whether a node (in preorder) has no previous node as ancestor, of equal ``over`` if
    given."""
    reached = end.cum_max().shift(1, fill_value=0)
    return pl.col(C.node) >= (reached.over(over) if over else reached)


def _with_levels(nodes: pl.DataFrame) -> pl.DataFrame:
    """Add ``is_through``, ``level`` and ``start_ns`` to nodes."""
    gpu_ns = pl.col(C.gpu_ns)
    is_frame = pl.col(C.kind) == NodeKind.PYTHON.word
    is_leaf = (pl.col(C.depth).shift(-1) <= pl.col(C.depth)).fill_null(value=True)
    leaf_ns = pl.when(is_leaf).then(gpu_ns).otherwise(0)
    marked = nodes.with_columns(
        is_through=is_frame & (gpu_ns.shift(-1) == gpu_ns) & ~is_leaf,
        **{C.start_ns: leaf_ns.cum_sum() - leaf_ns},
    )
    first, size = nodes[C.node][0], nodes[C.subtree_end][0] - nodes[C.node][0] + 1
    change: NDArray[np.int64] = np.zeros(size, dtype=np.int64)
    through = marked.filter("is_through")
    np.add.at(change, through[C.node].to_numpy() - first + 1, 1)
    np.add.at(change, through[C.subtree_end].to_numpy() - first, -1)
    skipped = np.cumsum(change)[nodes[C.node].to_numpy() - first]
    return marked.with_columns(level=pl.col(C.depth) - pl.Series(skipped))
