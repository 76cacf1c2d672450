"""Tables of the call tree page: calls, modules and operations below the root."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import polars as pl
import streamlit as st

from jarvis import charts
from jarvis.dashboard.pages.call_tree import choice
from jarvis.dashboard.session.state import Opened, cached, of_stored, recomputed_of
from jarvis.dashboard.widgets.table import BOX_PX, ReadyTable, card_px, draw_table, ready_table
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


_MAX_CACHED = 64
"""A card has at most _ROWS_SHOWN rows."""


@dataclass(frozen=True, slots=True)
class _Card:
    """Title, caption and table of a card, if it has rows, and the number of each: a node, or the
    ``uid`` of an operation."""

    title: str
    caption: str
    table: ReadyTable | None = None
    numbers: Sequence[int] = ()


def calls_card(
    now: Opened, tree: CallTree, root: int, searched: str, operation_uid: int | None
) -> None:
    """Draw the direct callees of the root, or the calls that match the search."""
    card = _calls(now, tree.view, operation_uid, root, searched, card_px() - BOX_PX, tree)
    _draw(card, f"call_tree_calls_{root}", "Calls with their GPU time", choice.choose)


def modules_card(now: Opened, tree: CallTree, root: int, operation_uid: int | None) -> None:
    """Draw the modules below the root; nothing if there are none."""
    card = _modules(now, tree.view, operation_uid, root, card_px() - BOX_PX, tree)
    if card is not None:
        _draw(card, f"call_tree_modules_{root}", "Modules with their GPU time", choice.choose)


def operations_card(now: Opened, tree: CallTree, root: int) -> None:
    """Draw the operations below the root; selecting one limits the tree to it."""
    card = _operations(now, tree.view, root, card_px() - BOX_PX, tree)
    if card is not None:
        alt, key = "Operations with their GPU time here", f"call_tree_operations_{root}"
        _draw(card, key, alt, choice.choose_operation)


def _draw(card: _Card, key: str, alt: str, choose: Callable[[int], None]) -> None:
    with st.container(border=True):
        st.markdown(card.title)
        st.caption(card.caption)
        if card.table is not None:
            follow = partial(_follow_row, key, choose, card.numbers)
            draw_table(card.table, alt, key=key, on_select=follow)


@cached(_MAX_CACHED, of_stored)
def _calls(
    now: Opened,
    view: View,
    operation_uid: int | None,
    root: int,
    searched: str,
    room_px: int,
    _tree: CallTree,
) -> _Card:
    calls = _tree.matches(root, searched) if searched else _tree.children(root)
    row = _tree.row(root)
    title = f"**Calls directly below {short_name(row['label'])}**, by GPU time"
    if searched:
        share = share_pct(float(calls[C.gpu_ns].sum()), row[C.gpu_ns])
        title = (
            f"**{counted(calls.height, 'match')} for {code(searched)}**: "
            f"{percent(share)} of the GPU time of {short_name(row['label'])}"
        )
    if calls.is_empty():
        return _Card(
            title,
            "No call has this name. Calls below "
            f"{100 / MIN_SHARE:g}% of all GPU time are not listed."
            if searched
            else "It has no calls below it: all of this GPU time is its own.",
        )
    caption = "Select a call to make it the root." + _cut_note(calls)
    return _nodes(title, caption, _tree, calls, _CALL_COLUMNS, operation_uid, room_px)


@cached(_MAX_CACHED, of_stored)
def _modules(
    now: Opened, view: View, operation_uid: int | None, root: int, room_px: int, _tree: CallTree
) -> _Card | None:
    modules = _tree.modules(root)
    if modules.is_empty():
        return None
    unit = "module class" if view is View.CLASSES else "module"
    name = short_name(_tree.row(root)["label"])
    title = f"**{counted(modules.height, unit)} in {name}**, by GPU time"
    caption = (
        "A module includes everything it calls, so times of nested modules overlap. "
        "Backward work is included if the trace links it to a module." + _cut_note(modules)
    )
    return _nodes(title, caption, _tree, modules, _MODULE_COLUMNS, operation_uid, room_px)


@cached(_MAX_CACHED, of_stored)
def _operations(now: Opened, view: View, root: int, room_px: int, _tree: CallTree) -> _Card | None:
    operations = operations_below(now.run, _tree, root)
    if operations.is_empty():
        return None
    name = short_name(_tree.row(root)["label"])
    title = f"**{counted(operations.height, 'operation')} in {name}**, by GPU time"
    caption = "Select an operation to see only its GPU time." + _cut_note(operations)
    rows = operations.head(_ROWS_SHOWN).with_columns(
        (pl.col(C.gpu_ns) / 1e6).alias(C.gpu_ms),
        (100 * pl.col(C.gpu_ns) / _tree.gpu_ns).alias(C.share_pct),
    )
    columns = {**_COLUMNS, **_OPERATION_OWN}
    readable = _readable(now, rows)
    table = ready_table(readable, columns, _OPERATION_COLUMNS, _WIDTHS, room_px=room_px)
    return _Card(title, caption, table, rows[C.operation_uid].to_list())


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


def _nodes(
    title: str,
    caption: str,
    tree: CallTree,
    rows: pl.DataFrame,
    columns: Sequence[str],
    operation_uid: int | None,
    room_px: int,
) -> _Card:
    """Return a card whose rows are nodes."""
    shown = [name for name in columns if _is_useful(name, rows, operation_uid is None)]
    rows = with_shares(rows.head(_ROWS_SHOWN), tree.gpu_ns)
    rows = rows.with_columns(label=short_labels(rows))
    if C.kind in rows.columns:
        rows = rows.with_columns(kind_word=kind_word())
    table = ready_table(rows, _COLUMNS, shown, _WIDTHS, room_px=room_px)
    return _Card(title, caption, table, rows[C.node].to_list())


def _follow_row(key: str, choose: Callable[[int], None], numbers: Sequence[int]) -> None:
    picked = st.session_state[key]["selection"]["rows"]
    if picked:
        choose(numbers[picked[0]])
