"""What of the call tree is shown: the node and the operation of the URL, and ways to others."""

from collections.abc import Callable
from typing import Any

import polars as pl
import streamlit as st

from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.links import check_parameter, note_control
from jarvis.dashboard.session.state import opened
from jarvis.run import Run
from jarvis.run.call_tree import OPERATIONS_TABLE, CallTree, call_tree, view_of
from jarvis.text.markdown import code, escape

ROOT, OPERATION = "call_tree_root", "call_tree_op"
"""URL parameters: the node that fills the chart, and the operation whose time alone counts."""

_CRUMBS = 7
_CRUMB_LETTERS = 34


def choose(node: int) -> None:
    """Make a node the root of what is shown from the next run of the page on."""
    st.query_params[ROOT] = str(node)


def choose_operation(uid: int) -> None:
    """Show the GPU time of one operation alone, from all places."""
    st.query_params[OPERATION] = str(uid)
    st.query_params.pop(ROOT, None)


def operation_of(run: Run) -> dict[str, Any] | None:
    """The row of the operation that the URL asks for; None for all GPU work."""
    uids = run.table(OPERATIONS_TABLE)["operation_uid"].unique()

    def is_known(text: str) -> bool:
        return _number(text) in uids

    uid = _asked(OPERATION, is_known, "all GPU work")
    if uid is None:
        return None
    note_control(OPERATION, uid)
    operations = run.table("operations")
    return operations.row(by_predicate=pl.col("uid") == uid, named=True)


def operation_note(operation: dict[str, Any]) -> None:
    """Which operation is shown alone, and the way back to all of them."""
    with st.container(horizontal=True, vertical_alignment="center"):
        shapes = escape(operation["input_dims"] or "")
        st.markdown(f"Only the GPU time of {code(operation['name'])} {shapes}", width="content")
        st.button(
            "Show all GPU work",
            key="call_tree_all_work",
            icon=":material/close:",
            type="tertiary",
            on_click=_forget_operation,
        )
        operation_link(operation)


def operation_link(operation: dict[str, Any]) -> None:
    """To the row of an operation on the page of its category."""
    analysis = opened().run.analyses.get(operation["category"] or "")
    if analysis is not None:
        navigation.link(
            analysis.key,
            f"Its row on the page {analysis.title}",
            icon=":material/table_rows:",
            **{f"{analysis.key}_op": str(operation["uid"])},
        )


def places_link(run: Run, uid: int) -> None:
    """From an operation to the places that call it; nothing where the tree does not have it."""
    if OPERATIONS_TABLE in run.tables and uid in run.table(OPERATIONS_TABLE)["operation_uid"]:
        navigation.link(
            navigation.CALL_TREE,
            "Where this is called, in the call tree",
            icon=":material/account_tree:",
            **{OPERATION: str(uid)},
        )


def root_of(run: Run, tree: CallTree) -> int:
    """The node that the URL asks for, or the one that stands for it in this view."""

    def is_known(text: str) -> bool:
        number = _number(text)
        return number is not None and view_of(run, number) is not None

    node = _asked(ROOT, is_known, "all GPU work")
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
    """The nodes above the root as buttons, and keys to go up and down."""
    trail = list(tree.trail(root).select("node", "label").iter_rows())
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
    """Buttons with keys: one level up, into the longest child, to the top."""
    above, children = tree.trail(root)["node"], tree.children(root)
    ways = (
        ("Up", "arrow_upward", "W", "One level up.", above[-2] if len(above) > 1 else None),
        (
            "Into the longest",
            "arrow_downward",
            "S",
            "To the call with most GPU time.",
            None if children.is_empty() else children["node"][0],
        ),
        ("All", "fit_width", "F", "To all GPU work.", tree.root if root != tree.root else None),
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


def _asked(parameter: str, is_known: Callable[[str], bool], instead: str) -> int | None:
    """The number that the URL gives; one that cannot be is taken out with a word."""
    check_parameter(parameter, is_known, instead)
    given = st.query_params.get(parameter)
    if given is None or not is_known(given):
        st.query_params.pop(parameter, None)
        return None
    return int(given)


def _forget_operation() -> None:
    st.query_params.pop(OPERATION, None)


def _number(text: str) -> int | None:
    """A number that fits a column of integers."""
    return int(text) if text.isdecimal() and len(text) < 19 else None
