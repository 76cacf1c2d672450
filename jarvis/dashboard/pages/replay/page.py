"""The replay page: the operators of the open analysis, and a package of those that are chosen."""

from collections.abc import Sequence

import polars as pl
import streamlit as st

from jarvis.charts import columns_of
from jarvis.dashboard.pages.replay.choice import chosen_offers
from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.state import Opened, kept
from jarvis.dashboard.widgets.controls import choice, text_input
from jarvis.dashboard.widgets.elements import figure
from jarvis.dashboard.widgets.replay_section import replay_section
from jarvis.impact import BOTTLENECK_EFFICIENCY_PCT, share_pct
from jarvis.replay import ReplayCandidate, automatic_operators, offers
from jarvis.replay.package import automatic_rule
from jarvis.schemas import NUMBER, TEXT, Column
from jarvis.text.format import count, milliseconds, percent

_PAGE = "replay"
_ALL, _PACKAGED, _REFUSED = "all", "can be packaged", "cannot"
_MADE, _RECOMMENDED, _ON_DEMAND, _NONE = "made", "recommended", "on demand", "none"
_WORDS_MEAN = (
    f"{_MADE}: with the analysis, since it takes {automatic_rule()}; {_RECOMMENDED}: below "
    f"{BOTTLENECK_EFFICIENCY_PCT:g}% of its roofline; {_ON_DEMAND}: any other; {_NONE}: it cannot "
    "be replayed"
)
_COLUMNS = columns_of(
    (
        Column("op_name", "Operator", TEXT, meaning="the operator whose calls are replayed"),
        Column("package", "Package", TEXT, meaning=_WORDS_MEAN),
        Column("percent_of_compute", "Compute (%)", NUMBER, "%", ",.1f", "share of compute time"),
        Column("time_ms", "Kernel time (ms)", NUMBER, "ms", ",.3f", "time of its kernels"),
        Column("efficiency_pct", "Efficiency (%)", NUMBER, "%", ",.1f", "share of the roofline"),
        Column("calls", "Calls", pl.Int64(), format=",d", meaning="calls in the trace"),
        Column(
            "distinct_calls",
            "Distinct calls",
            pl.Int64(),
            format=",d",
            meaning="sets of arguments that a package holds, each once with its count",
        ),
        Column("packaged_pct", "Packaged (%)", NUMBER, "%", ",.1f", "kernel time in those calls"),
        Column("reason", "Why calls are left out", TEXT, meaning="what the replay lacks for them"),
    )
)


def replay_page(now: Opened) -> None:
    """Figures, the table of operators, and the package of the chosen ones."""
    found = _offers(now.id, now.stamp)
    if not found:
        st.info("No operator of this trace took GPU time, so there is nothing to replay.")
        navigation.link(navigation.OVERVIEW, "Overview", icon=":material/dashboard:")
        return
    st.caption(
        "A replay package holds the recorded calls of operators and a program that times them: a "
        "minimal reproducer for a kernel team to investigate and optimize. It needs Python and "
        "torch, no GPU of this kind and none of the model's code."
    )
    _figures(found)
    shown = _filtered(found)
    if not shown:
        st.info("No operator passes the filters: show all, or clear the search.")
    chosen = chosen_offers(_PAGE, found, shown, _frame(now, shown), _COLUMNS)
    st.subheader("Package of the selection")
    if not any(offer.distinct_calls for offer in found):
        st.info(
            "None of these calls can be replayed; the last column of the table says why. Most "
            "often the trace lacks the arguments: record it with `ProfilerActivity.CPU` and "
            "`record_shapes=True`."
        )
    elif not chosen:
        st.info("Select operators in the table: their calls become one package.")
    else:
        replay_section(now, [uid for offer in chosen for uid in offer.uids], page=_PAGE)


@st.cache_resource(max_entries=8, show_spinner=False)
def _offers(analysis_id: str, stamp: int) -> list[ReplayCandidate]:
    """Worked out once for each analysis; ``stamp`` tells a replaced one apart."""
    return offers(kept(analysis_id).run)


def _figures(found: Sequence[ReplayCandidate]) -> None:
    total_us = sum(offer.kernel_time_us for offer in found)
    packaged_us = sum(offer.packaged_time_us for offer in found)
    whole = [offer for offer in found if offer.distinct_calls]
    slow = [offer for offer in whole if offer.is_recommended]
    slow_us = sum(offer.kernel_time_us for offer in slow)
    places = st.columns(3)
    with places[0]:
        figure(
            "Kernel time that can be replayed",
            percent(share_pct(packaged_us, total_us)),
            f"{milliseconds(packaged_us / 1000)} of {milliseconds(total_us / 1000)}",
            help_text="Kernel time of the calls whose arguments the trace records and the table "
            "of operators knows, of that of all operators.",
        )
    with places[1]:
        figure(
            "Operators",
            f"{count(len(whole))} of {count(len(found))}",
            "can be packaged",
            help_text="Operators with at least one call that can be replayed.",
        )
    with places[2]:
        figure(
            f"Below {BOTTLENECK_EFFICIENCY_PCT:g}% of the roofline",
            count(len(slow)),
            f"{milliseconds(slow_us / 1000)} kernel time",
            help_text="Operators that are recommended to a kernel team.",
        )


def _filtered(found: Sequence[ReplayCandidate]) -> list[ReplayCandidate]:
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        with st.container(width="content"):
            kind = choice(
                f"{_PAGE}_show",
                "Show",
                (_ALL, _PACKAGED, _REFUSED),
                "Operators with calls that can be packaged, or those without any.",
            )
        with st.container(width=280):
            words = text_input(f"{_PAGE}_search", "Search", "operator or reason").lower()
    return [
        offer
        for offer in found
        if (kind == _ALL or (kind == _PACKAGED) == bool(offer.distinct_calls))
        and (words in offer.op_name.lower() or words in (offer.reason or "").lower())
    ]


def _frame(now: Opened, shown: Sequence[ReplayCandidate]) -> pl.DataFrame:
    automatic = automatic_operators(now.run)
    rows = [
        {
            "op_name": offer.op_name,
            "percent_of_compute": offer.percent_of_compute,
            "time_ms": offer.kernel_time_us / 1000,
            "efficiency_pct": offer.efficiency_pct,
            "calls": offer.calls,
            "distinct_calls": offer.distinct_calls,
            "packaged_pct": offer.packaged_pct,
            "package": _word(offer, is_automatic=offer.op_name in automatic),
            "reason": offer.reason,
        }
        for offer in shown
    ]
    return pl.DataFrame(rows, schema={name: column.dtype for name, column in _COLUMNS.items()})


def _word(offer: ReplayCandidate, *, is_automatic: bool) -> str:
    if not offer.distinct_calls:
        return _NONE
    if is_automatic:
        return _MADE
    return _RECOMMENDED if offer.is_recommended else _ON_DEMAND
