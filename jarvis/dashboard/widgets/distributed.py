"""What pages of one trace show for a distributed run: links to *Ranks* and to each rank."""

import streamlit as st

from jarvis.dashboard.session import links, navigation
from jarvis.server.storage.catalog import DistributedEntry
from jarvis.text.format import counted

MAX_LINKS = 64
"""Ranks with a link; the page *Ranks* has all."""


def rank_choice(entry: DistributedEntry, url_path: str) -> None:
    """Draw the links of a distributed run, to this page of each of its ranks."""
    ranks = entry.manifest.usable
    st.info(
        f"This is a distributed run of {counted(len(ranks), 'rank')}. This page shows one rank: "
        "choose it here, or open *Ranks* for all of them together.",
        icon=":material/lan:",
    )
    navigation.link(navigation.RANKS, "**Ranks**", icon=":material/lan:", ranks_run=entry.id)
    with navigation.rank_links("all"):
        for member in ranks[:MAX_LINKS]:
            of_rank = {links.ANALYSIS: str(member.analysis_id)}
            navigation.link(url_path, f"Rank {member.rank}", **of_rank)
    if len(ranks) > MAX_LINKS:
        st.caption(f"The first {MAX_LINKS} of {counted(len(ranks), 'rank')}; *Ranks* has all.")
