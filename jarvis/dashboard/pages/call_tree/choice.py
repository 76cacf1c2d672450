"""Selection in the call tree: root node and operation from the URL, and links to others."""

from collections.abc import Callable
from typing import Any

import polars as pl
import streamlit as st

from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.links import check_parameter, note_control
from jarvis.dashboard.session.state import Opened, cached, of_stored, opened
from jarvis.perf_report.call_tree.views import View
from jarvis.run import Run
from jarvis.run.call_tree import OPERATIONS_TABLE, CallTree, call_tree, view_of
from jarvis.schemas.names import C
from jarvis.text.markdown import code, escape

ROOT, OPERATION = "call_tree_root", "call_tree_op"
"""URL parameters: the root node of the chart, and the operation that the tree is limited to."""

_MAX_CACHED_TREES = 16
_CRUMBS = 7
_CRUMB_LETTERS = 34


def choose(node: int) -> None:
    """Make a node the root on the next rerun of the page."""
    st.query_params[ROOT] = str(node)


def choose_operation(uid: int) -> None:
    """Limit the tree to the GPU time of one operation."""
    st.query_params[OPERATION] = str(uid)
    st.query_params.pop(ROOT, None)


def operation_of(run: Run) -> dict[str, Any] | None:
    """Return the row of the operation in the URL; None for all GPU work."""
    uids = run.table(OPERATIONS_TABLE)[C.operation_uid].unique()

    def is_known(text: str) -> bool:
        return _number(text) in uids

    uid = _parameter(OPERATION, is_known, "all GPU work")
    if uid is None:
        return None
    note_control(OPERATION, uid)
    operations = run.table("operations")
    return operations.row(by_predicate=pl.col(C.uid) == uid, named=True)


def operation_note(operation: dict[str, Any]) -> None:
    """Draw which operation the tree is limited to, and a button to show all GPU work."""
    with st.container(horizontal=True, vertical_alignment="center"):
        shapes = escape(operation[C.input_dims] or "")
        st.markdown(f"Only the GPU time of {code(operation[C.name])} {shapes}", width="content")
        st.button(
            "Show all GPU work",
            key="call_tree_all_work",
            icon=":material/close:",
            type="tertiary",
            on_click=_forget_operation,
        )
        operation_link(operation)


def operation_link(operation: dict[str, Any]) -> None:
    """Draw a link to the row of an operation on its category page."""
    analysis = opened().stored.analyses.get(operation[C.category] or "")
    if analysis is not None:
        navigation.link(
            analysis.key,
            f"Show its row on page {analysis.title}",
            icon=":material/table_rows:",
            **{f"{analysis.key}_op": str(operation[C.uid])},
        )


def places_link(run: Run, uid: int) -> None:
    """Draw a link from an operation to its callers; nothing if the call tree does not have it."""
    if OPERATIONS_TABLE in run.tables and uid in run.table(OPERATIONS_TABLE)[C.operation_uid]:
        navigation.link(
            navigation.CALL_TREE,
            "Where this is called, in the call tree",
            icon=":material/account_tree:",
            **{OPERATION: str(uid)},
        )


@cached(_MAX_CACHED_TREES, of_stored)
def tree_of(now: Opened, view: View, operation_uid: int | None) -> CallTree:
    """Return a view of the tree, of all GPU work or of one operation."""
    return call_tree(now.run, view, operation_uid)


def root_of(run: Run, tree: CallTree) -> int:
    """Return the node in the URL, or its counterpart in this view."""

    def is_known(text: str) -> bool:
        number = _number(text)
        return number is not None and view_of(run, number) is not None

    node = _parameter(ROOT, is_known, "all GPU work")
    if node is not None and not tree.has(node):
        view = view_of(run, node)
        node = None if view is None else tree.counterpart(call_tree(run, view), node)
    root = tree.settled(tree.root if node is None else node)
    if root == tree.root:
        st.query_params.pop(ROOT, None)
    else:
        st.query_params[ROOT] = str(root)
        note_control(ROOT, root)
    return root


def breadcrumbs(tree: CallTree, root: int) -> None:
    """Draw the ancestors of the root as buttons."""
    trail = list(tree.trail(root).select(C.node, "label").iter_rows())
    hidden = len(trail) - _CRUMBS
    if hidden > 0:
        trail = [*trail[:2], (None, f"{hidden} more"), *trail[-_CRUMBS + 2 :]]
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        for place, (node, label) in enumerate(trail):
            if place:
                st.markdown(":material/chevron_right:", width="content")
            text = escape(label if len(label) <= _CRUMB_LETTERS else f"{label[:_CRUMB_LETTERS]}…")
            if node is None or node == root:
                st.markdown(f"**{text}**" if node == root else text, width="content")
            else:
                st.button(
                    text,
                    key=f"call_tree_crumb_{node}",
                    type="tertiary",
                    on_click=choose,
                    args=(node,),
                )


def steps(tree: CallTree, root: int) -> None:
    """Draw buttons with shortcut keys: one level up, into the longest child, to the top."""
    above, children = tree.trail(root)[C.node], tree.children(root)
    ways = (
        ("Up", "arrow_upward", "W", "Go one level up.", above[-2] if len(above) > 1 else None),
        (
            "Into the longest",
            "arrow_downward",
            "S",
            "Go to the call with the most GPU time.",
            None if children.is_empty() else children[C.node][0],
        ),
        ("All", "fit_width", "F", "Show all GPU work.", tree.root if root != tree.root else None),
    )
    for label, icon, key, meaning, node in ways:
        st.button(
            label,
            key=f"call_tree_{icon}",
            icon=f":material/{icon}:",
            shortcut=key,
            help=meaning,
            on_click=choose,
            args=(node,),
            disabled=node is None,
        )


def _parameter(parameter: str, is_known: Callable[[str], bool], instead: str) -> int | None:
    """Return the number in the URL; an invalid one is removed with a notice."""
    check_parameter(parameter, is_known, instead)
    given = st.query_params.get(parameter)
    if given is None or not is_known(given):
        st.query_params.pop(parameter, None)
        return None
    return int(given)


def _forget_operation() -> None:
    st.query_params.pop(OPERATION, None)


def _number(text: str) -> int | None:
    """Return text as a number that fits into 64 bits, or None."""
    return int(text) if text.isdecimal() and len(text) < 19 else None
