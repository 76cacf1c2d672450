"""Tables of the call tree page: calls, modules and operations below the root."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import polars as pl
import streamlit as st

from jarvis import charts
from jarvis.dashboard.pages.call_tree import choice
from jarvis.dashboard.session.state import Opened, recomputed_of
from jarvis.dashboard.widgets.table import small_table
from jarvis.impact import share_pct
from jarvis.perf_report.call_tree.gpu_time import NodeKind
from jarvis.perf_report.call_tree.views import MIN_SHARE, View
from jarvis.run.call_tree import CallTree, operations_below, short_labels, with_shares
from jarvis.schemas import TABLES, TEXT, Column, column
from jarvis.schemas.columns import number
from jarvis.schemas.names import C
from jarvis.text.format import count, counted, percent
from jarvis.text.markdown import code
from jarvis.text.shapes import operation_shapes

_ROWS_SHOWN, _TITLE_LETTERS = 300, 80
KIND_WORDS: Mapping[str, str] = {
    NodeKind.ROOT.word: "All",
    NodeKind.MODULE.word: "Module",
    NodeKind.PYTHON.word: "Python",
    NodeKind.OP.word: "Operator",
    NodeKind.RUNTIME.word: "Runtime call",
    NodeKind.KERNEL.word: "Kernel or copy",
    NodeKind.REST.word: "Rest",
    NodeKind.UNLINKED.word: "Not linked",
}
BACKWARD = "Backward operator"
_COLUMNS = charts.columns_of(
    TABLES["call_tree"],
    (
        Column("label", "Name", TEXT, meaning="of the module, operator, Python frame or kernel"),
        Column("kind_word", "Kind", TEXT, meaning="kind of call"),
        number(
            C.gpu_ms,
            "Time (ms)",
            "ms",
            "GPU time: sum of durations of the GPU events launched below",
            ",.3f",
        ),
        number(
            C.share_pct, "Share (%)", "%", "of all GPU time shown, also outside the root", ",.2f"
        ),
        number(C.backward_ms, "Backward (ms)", "ms", "GPU time of the backward pass", ",.3f"),
        number(
            C.modelled_pct,
            "Modeled (%)",
            "%",
            "share of its GPU time with a perf model",
            ",.1f",
        ),
        number(
            C.efficiency_pct,
            "Efficiency (%)",
            "%",
            "roofline time / GPU time of the work with a plausible efficiency",
            ",.1f",
        ),
    ),
)
_TIMES = ("label", C.gpu_ms, C.share_pct, C.backward_ms, C.efficiency_pct, C.modelled_pct, C.calls)
_CALL_COLUMNS = (*_TIMES, "kind_word")
_MODULE_COLUMNS = (*_TIMES, C.module_count)
_SHAPES = "shapes"
_OPERATION_OWN = charts.columns_of(
    (
        Column(
            C.name,
            "Operation",
            TEXT,
            meaning="name of the operation, and what differs between those with this name and "
            "these shapes: template arguments, layout, thread or values; #2 differs in more",
        ),
        Column(_SHAPES, "Shapes", TEXT, meaning="M, N and K of a product, else of each tensor"),
        Column(C.category, "Category", TEXT, meaning="page of the operation"),
        column("operations", C.pct_roofline),
        number(C.calls, "Calls", "", "calls here; a call in several places counts by time", ",g"),
    )
)
_OPERATION_COLUMNS = (
    *(C.name, _SHAPES, C.gpu_ms, C.share_pct, C.pct_roofline, C.calls, C.launches),
    C.category,
)
_WIDTHS = {
    C.gpu_ms: 66,
    C.share_pct: 68,
    C.efficiency_pct: 90,
    C.modelled_pct: 86,
    C.calls: 50,
    C.launches: 67,
    C.module_count: 66,
    C.backward_ms: 94,
    C.pct_roofline: 90,
}


def kind_word() -> pl.Expr:
    """Return the kind of a node as in the legend of the chart."""
    is_backward = (pl.col(C.kind) == NodeKind.OP.word) & (pl.col(C.backward_ns) > 0)
    return pl.when(is_backward).then(pl.lit(BACKWARD)).otherwise(pl.col(C.kind).replace(KIND_WORDS))


def calls_card(tree: CallTree, root: int, searched: str, *, is_whole: bool) -> None:
    """Draw the direct callees of the root, or the calls that match the search."""
    calls = tree.matches(root, searched) if searched else tree.children(root)
    row = tree.row(root)
    with st.container(border=True):
        if searched:
            share = share_pct(float(calls[C.gpu_ns].sum()), row[C.gpu_ns])
            st.markdown(
                f"**{counted(calls.height, 'match')} for {code(searched)}**: "
                f"{percent(share)} of the GPU time of {short_name(row['label'])}"
            )
        else:
            st.markdown(f"**Calls directly below {short_name(row['label'])}**, by GPU time")
        if calls.is_empty():
            st.caption(
                "No call has this name. Calls below "
                f"{100 / MIN_SHARE:g}% of all GPU time are not listed."
                if searched
                else "It has no calls below it: all of this GPU time is its own."
            )
            return
        shown = [name for name in _CALL_COLUMNS if _is_useful(name, calls, is_whole)]
        st.caption("Select a call to make it the root." + _cut_note(calls))
        _table(tree, root, "calls", calls, shown)


def modules_card(tree: CallTree, root: int, *, is_whole: bool) -> None:
    """Draw the modules below the root; nothing if there are none."""
    modules = tree.modules(root)
    if modules.is_empty():
        return
    row = tree.row(root)
    with st.container(border=True):
        unit = "module class" if tree.view is View.CLASSES else "module"
        title = counted(modules.height, unit)
        st.markdown(f"**{title} in {short_name(row['label'])}**, by GPU time")
        st.caption(
            "A module includes everything it calls, so times of nested modules overlap. "
            "Backward work is included if the trace links it to a module." + _cut_note(modules)
        )
        shown = [name for name in _MODULE_COLUMNS if _is_useful(name, modules, is_whole)]
        _table(tree, root, "modules", modules, shown)


def operations_card(now: Opened, tree: CallTree, root: int) -> None:
    """Draw the operations below the root; selecting one limits the tree to it."""
    operations = operations_below(now.run, tree, root)
    if operations.is_empty():
        return
    row = tree.row(root)
    with st.container(border=True):
        title = counted(operations.height, "operation")
        st.markdown(f"**{title} in {short_name(row['label'])}**, by GPU time")
        st.caption("Select an operation to see only its GPU time." + _cut_note(operations))
        key = f"call_tree_operations_{root}"
        rows = operations.head(_ROWS_SHOWN).with_columns(
            (pl.col(C.gpu_ns) / 1e6).alias(C.gpu_ms),
            (100 * pl.col(C.gpu_ns) / tree.gpu_ns).alias(C.share_pct),
        )
        uids = rows[C.operation_uid].to_list()
        rows = _readable(now, rows)
        small_table(
            rows,
            {**_COLUMNS, **_OPERATION_OWN},
            "Operations with their GPU time here",
            _OPERATION_COLUMNS,
            _WIDTHS,
            key=key,
            on_select=partial(_follow_row, key, choice.choose_operation, uids),
            fits_texts=True,
        )


def _readable(now: Opened, operations: pl.DataFrame) -> pl.DataFrame:
    """Return operations with short names, shapes and titles of categories."""
    titles = {key: analysis.title for key, analysis in now.run.analyses.items()}
    given = operations.select(C.params, C.input_dims).iter_rows()
    shapes = pl.Series(_SHAPES, operation_shapes(given), pl.String)
    rows = operations.with_columns(shapes, pl.col(C.operation_uid).alias(C.uid))
    return charts.with_short_names(rows, _SHAPES, recomputed_of(now)).with_columns(
        pl.col("short_name").alias(C.name),
        pl.col(C.category).replace(titles),
        pl.col(C.calls).round(1),
    )


def short_name(name: str) -> str:
    """Return a name shortened for a title, as Markdown code."""
    return code(name if len(name) <= _TITLE_LETTERS else f"{name[:_TITLE_LETTERS]}…")


def _cut_note(rows: pl.DataFrame) -> str:
    return f" The first {_ROWS_SHOWN} of {count(rows.height)}." if rows.height > _ROWS_SHOWN else ""


def _is_useful(name: str, rows: pl.DataFrame, is_whole: bool) -> bool:
    """Return whether a column has information for these rows."""
    if name == C.backward_ms:
        return is_whole and bool(rows[C.backward_ns].sum())
    return is_whole or name not in (C.calls, C.module_count)


def _table(tree: CallTree, root: int, name: str, rows: pl.DataFrame, shown: list[str]) -> None:
    """Draw a table; a selected row becomes the root."""
    key = f"call_tree_{name}_{root}"
    rows = with_shares(rows.head(_ROWS_SHOWN), tree.gpu_ns)
    rows = rows.with_columns(label=short_labels(rows))
    if C.kind in rows.columns:
        rows = rows.with_columns(kind_word=kind_word())
    small_table(
        rows,
        _COLUMNS,
        "Calls with their GPU time" if name == "calls" else "Modules with their GPU time",
        shown,
        _WIDTHS,
        key=key,
        on_select=partial(_follow_row, key, choice.choose, rows[C.node].to_list()),
        fits_texts=True,
    )


def _follow_row(key: str, choose: Callable[[int], None], numbers: Sequence[int]) -> None:
    picked = st.session_state[key]["selection"]["rows"]
    if picked:
        choose(numbers[picked[0]])
