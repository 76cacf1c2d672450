"""The call tree page: an icicle chart of GPU time by module, operator and kernel."""

from dataclasses import dataclass
from typing import Any

import polars as pl
import streamlit as st

from jarvis import charts
from jarvis.charts import STATES, EncodedDrawing, Palette
from jarvis.dashboard.pages.call_tree import choice as call_tree_choice
from jarvis.dashboard.pages.call_tree.tables import (
    BACKWARD,
    KIND_WORDS,
    calls_card,
    kind_word,
    modules_card,
    operations_card,
    short_name,
)
from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.state import Opened, cached, of_stored, palette
from jarvis.dashboard.widgets.controls import choice, text_input, whole_number
from jarvis.dashboard.widgets.elements import is_unavailable, metric_card, render_chart
from jarvis.impact import efficiency_word
from jarvis.perf_report.call_tree.gpu_time import NodeKind
from jarvis.perf_report.call_tree.views import View
from jarvis.run.call_tree import CallTree, short_labels, views, with_shares
from jarvis.schemas.names import C
from jarvis.text.format import NOT_AVAILABLE, count, counted, milliseconds, percent

_LEVELS, _MAX_LEVELS = 12, 60
_MIN_SHARE = 0.0005
"""Minimum share of the chart's width; narrower boxes (under half a pixel) are left out."""

_MAX_BOXES = 4000
_MIN_COVERAGE = 0.5
"""Minimum share of a box's GPU time with an efficiency for the box to be colored by it."""

_MAX_CACHED = 32
"""An icicle of _MAX_BOXES has about 1 MB."""

_FEW = 8
_KIND, _EFFICIENCY = "kind", "efficiency"


def render(now: Opened) -> None:
    """Draw the page for the open run."""
    if is_unavailable(now.run, ("call_tree",)):
        return
    offered = views(now.run)
    if not offered:
        st.info("This analysis has no call tree yet: analyze the trace again to see it.")
        navigation.link(navigation.INGEST, "Analyze a trace", icon=":material/upload_file:")
        return
    operation = call_tree_choice.operation_of(now.run)
    with st.container(border=True):
        fields = st.container(horizontal=True, vertical_alignment="bottom")
        with fields:
            view = _view(offered)
            color_by = choice(
                "call_tree_colour",
                "Color",
                (_KIND, _EFFICIENCY),
                "Color by kind of call, or by efficiency: the share of its roofline that the work "
                "below reaches.",
            )
            levels = whole_number(
                "call_tree_levels", "Levels", _LEVELS, 2, _MAX_LEVELS, "Levels shown at a time."
            )
            searched = text_input(
                "call_tree_search", "Search", "module, operator, kernel", "Part of a name."
            )
        if operation is not None:
            call_tree_choice.operation_note(operation)
        _missing_modules(now, offered)
    uid = None if operation is None else operation[C.uid]
    tree = call_tree_choice.tree_of(now, view, uid)
    if tree.nodes.height == 1:
        st.info("The trace has no GPU work, so the call tree is empty.")
        navigation.link(navigation.OVERVIEW, "Overview", icon=":material/dashboard:")
        return
    root = call_tree_choice.root_of(now.run, tree)
    row, summary = _root(now, view, uid, root, tree)
    _metric_cards(row, is_whole=operation is None)
    look = (now.below_pct, now.run.target_pct) if color_by == _EFFICIENCY else None
    icicle = _icicle(now, palette(), view, uid, root, levels, searched, look, tree)
    _icicle_card(tree, root, summary, icicle, look)
    calls_card(now, tree, root, searched, uid)
    modules_card(now, tree, root, uid)
    if operation is None:
        operations_card(now, tree, root)


def _view(offered: list[View]) -> View:
    """Draw the choice of the frames above the operators, if there are several views."""
    if len(offered) == 1:
        return offered[0]
    chosen = choice(
        "call_tree_view",
        "Frames",
        [view.value for view in offered],
        "Frames above the operators: modules merged by class (`classes`), each module separately "
        "(`modules`), or all Python frames (`python`), without frames whose time is all in one "
        "call.",
    )
    return View(chosen)


def _missing_modules(now: Opened, offered: list[View]) -> None:
    """Draw how to record modules, if the trace has none."""
    if View.MODULES in offered:
        return
    has = "Python stacks but no modules" if View.PYTHON in offered else "no Python stacks"
    st.caption(
        f"The trace has {has}, so operators are at the top. Record the model with "
        "`with_stack=True` to see GPU time by module."
    )


@cached(_MAX_CACHED, of_stored)
def _root(
    now: Opened, view: View, operation_uid: int | None, root: int, _tree: CallTree
) -> tuple[dict[str, Any], str]:
    """Return the columns of the root, and where its GPU time is spent."""
    return _tree.row(root), _summary(_tree, root)


def _metric_cards(row: dict[str, Any], *, is_whole: bool) -> None:
    cards = st.columns(4)
    with cards[0]:
        metric_card(
            "GPU time",
            milliseconds(row[C.gpu_ms]),
            f"{percent(row[C.share_pct])} of {'all GPU time' if is_whole else 'the operation'}",
            help_text="Sum of the durations of the GPU events launched here. Concurrent events all "
            "count, so it can exceed the busy time of the GPU timeline.",
        )
    with cards[1]:
        calls = row[C.calls]
        metric_card(
            "Launches",
            count(row[C.launches]),
            f"{row[C.launches] / calls:,.1f} per call" if calls and is_whole else "GPU events",
            help_text="Kernels, copies and fills, also those whose launch is not recorded. Calls "
            "without GPU work are not counted.",
        )
    with cards[2]:
        metric_card(
            "With a perf model",
            percent(row[C.modelled_pct]),
            "of this GPU time",
            help_text="Share of the GPU time whose operations have a perf model. The rest, such as "
            "communication, has no efficiency.",
        )
    with cards[3]:
        known = row[C.efficiency_pct]
        metric_card(
            "Efficiency",
            NOT_AVAILABLE if known is None else percent(known),
            "no perf model or no peak" if known is None else "of the work with a perf model",
            help_text="Roofline time / GPU time of the work with a plausible efficiency: "
            f"{efficiency_word(known)}. Rows without a peak and rows above it are left out.",
        )


@dataclass(frozen=True, slots=True)
class _Icicle:
    """The chart, the name of its root, and how many levels and calls of it are hidden."""

    drawing: EncodedDrawing
    label: str
    deeper: int
    narrow: int


@cached(_MAX_CACHED, of_stored)
def _icicle(  # the first parameters are what ``_tree`` depends on
    now: Opened,
    colors: Palette,
    view: View,
    operation_uid: int | None,
    root: int,
    levels: int,
    searched: str,
    look: tuple[float, float] | None,
    _tree: CallTree,
) -> _Icicle:
    below = _tree.below(root)
    first = below.row(0, named=True)
    level = pl.col("level") - first["level"]
    whole_ns = first[C.gpu_ns]
    deepest = int(charts.largest(below.select(level)["level"]))
    is_wide = pl.col(C.gpu_ns) >= _MIN_SHARE * whole_ns
    inside = below.filter(level < levels)
    shown = inside.filter(is_wide).sort(C.gpu_ns, descending=True, maintain_order=True)
    shown = shown.head(_MAX_BOXES).sort(C.node)
    color, color_of = _colors(look, colors)
    boxes = with_shares(shown, _tree.gpu_ns).select(
        *(C.node, "label", C.name, C.calls, C.launches, C.gpu_ms, C.share_pct),
        *(C.modelled_pct, C.efficiency_pct),
        short=short_labels(shown),
        level=level,
        **{C.kind: kind_word()},
        color=color,
        start_ms=(pl.col(C.start_ns) - first[C.start_ns]) / 1e6,
        end_ms=(pl.col(C.start_ns) - first[C.start_ns] + pl.col(C.gpu_ns)) / 1e6,
    )
    drawing = charts.drawing_of(charts.icicle(boxes, color_of, colors, searched))
    return _Icicle(
        drawing.encoded(),
        first["label"],
        max(deepest + 1 - levels, 0),
        inside.height - shown.height,
    )


def _icicle_card(
    tree: CallTree, root: int, summary: str, icicle: _Icicle, look: tuple[float, float] | None
) -> None:
    # The key differs by root, so that a click on the previous chart is not reused.
    key = f"call_tree_icicle_{root}"

    def follow() -> None:
        picked = st.session_state[key]["selection"].get(charts.PICKED) or []
        if picked:
            call_tree_choice.choose(int(picked[0]["node"]))

    with st.container(border=True):
        st.markdown(f"**{summary}**")
        with st.container(horizontal=True, horizontal_alignment="distribute"):
            call_tree_choice.breadcrumbs(tree, root)
            with st.container(horizontal=True, width="content"):
                call_tree_choice.steps(tree, root)
        render_chart(
            icicle.drawing,
            f"GPU time below {icicle.label} by the calls that launched it",
            key=key,
            selection=charts.PICKED,
            on_select=follow,
        )
        notes = ["The width of a box is the GPU time launched below it. Click a box to zoom in."]
        if icicle.deeper:
            notes.append(f"Deeper than shown: {counted(icicle.deeper, 'level')}.")
        if icicle.narrow:
            notes.append(f"Too narrow to show: {counted(icicle.narrow, 'call')}.")
        if look is not None:
            below_pct, target_pct = look
            notes.append(
                f"The threshold is {below_pct:g}% of the roofline, the target {target_pct:g}%; "
                "boxes without an efficiency for half of their GPU time are gray."
            )
        st.caption(" ".join(notes))


def _summary(tree: CallTree, root: int) -> str:
    """Return where the GPU time of the root is spent."""
    row, children = tree.row(root), tree.children(root)
    text = f"{short_name(row['label'])}: {milliseconds(row[C.gpu_ms])} of GPU time"
    name = row["label"]
    while children.height == 1:
        name = children["label"][0]
        children = tree.children(children[C.node][0])
    if children.is_empty():
        return text if name == row["label"] else f"{text}, all of it in {short_name(name)}"
    longest = with_shares(children.head(1), row[C.gpu_ns]).row(0, named=True)
    text += f", {percent(longest[C.share_pct])} of it below {short_name(longest['label'])}"
    if children.height > _FEW:
        text += f", the longest of {count(children.height)} entries"
    unlinked = with_shares(children.filter(pl.col(C.kind) == NodeKind.UNLINKED.word), row[C.gpu_ns])
    if unlinked.height and unlinked[C.node][0] != longest[C.node]:
        text += f"; {percent(unlinked[C.share_pct][0])} has no recorded launch"
    return text


def _colors(look: tuple[float, float] | None, colors: Palette) -> tuple[pl.Expr, dict[str, str]]:
    """Return the legend label of each node, and the color of each label: by efficiency with a
    threshold and a target, else by kind."""
    if look is not None:
        below_pct, target_pct = look
        efficiency = pl.col(C.efficiency_pct)
        below_threshold, below_target, on_target, _, unknown = STATES
        is_known = pl.col(C.rated_ns) >= _MIN_COVERAGE * pl.col(C.gpu_ns)
        state = (
            pl.when(~is_known | efficiency.is_null())
            .then(pl.lit(unknown))
            .when(efficiency < below_pct)
            .then(pl.lit(below_threshold))
            .when(efficiency < target_pct)
            .then(pl.lit(below_target))
            .otherwise(pl.lit(on_target))
        )
        return state, dict(zip(STATES, colors.states, strict=True))
    words = {
        NodeKind.MODULE: colors.categorical[0],
        NodeKind.OP: colors.categorical[4],
        NodeKind.PYTHON: colors.pale,
        NodeKind.RUNTIME: colors.categorical[5],
        NodeKind.KERNEL: colors.categorical[1],
        NodeKind.UNLINKED: colors.faint,
        NodeKind.REST: colors.border,
        NodeKind.ROOT: colors.muted,
    }
    shown = {KIND_WORDS[kind.word]: color for kind, color in words.items()}
    return kind_word(), shown | {BACKWARD: colors.categorical[3]}
