"""Table of all findings by priority, with links to their pages."""

import polars as pl
import streamlit as st

from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.state import Opened
from jarvis.dashboard.widgets.finding_cards import PRIORITY_COLORS
from jarvis.dashboard.widgets.projection import reprojected
from jarvis.dashboard.widgets.table import LINK, configured, link_column
from jarvis.reports.ranking import Recommendation, recommendations
from jarvis.schemas import NUMBER, TEXT, Column
from jarvis.text.format import MISSING
from jarvis.text.messages import to_text

_TABLE_ROWS, _TABLE_PX = 12, 460
_WIDTHS = {"rank": 50, "category": 100, "saved_ms": 85, "wall_pct": 95}


def ranked_findings(now: Opened, target_pct: int) -> None:
    """Draw all findings by priority, each with a link to its page and row."""
    ranked = recommendations(now.run)
    st.subheader("What to do first")
    if not ranked:
        st.success("The checks of this version found nothing to fix.", icon=":material/check:")
        return
    frame = pl.DataFrame(
        [_finding_row(now, r, target_pct) for r in ranked], infer_schema_length=None
    )
    config = {
        c.name: configured(c, frame.schema[c.name], _WIDTHS.get(c.name)) for c in _FINDING_COLUMNS
    }
    config["priority"] = st.column_config.MultiselectColumn(
        "Priority",
        width=75,
        options=[str(priority) for priority in PRIORITY_COLORS],
        color=list(PRIORITY_COLORS.values()),
        help="Urgency of the finding",
    )
    config[LINK] = link_column("The page and row of the finding")
    st.dataframe(
        frame,
        hide_index=True,
        column_config=config,
        height="content" if frame.height <= _TABLE_ROWS else _TABLE_PX,
        placeholder=MISSING,
        alt="Findings by priority with savings",
    )


_FINDING_COLUMNS = (
    Column("rank", "Rank", TEXT, meaning="by priority, then by saving"),
    Column("category", "Category", TEXT, meaning="page of the finding"),
    Column("finding", "Finding", TEXT, meaning="what is slow"),
    Column("saved_ms", "Saving (ms)", NUMBER, "ms", ",.3f", "middle estimate"),
    Column("wall_pct", "GPU time (%)", NUMBER, "%", ",.2f", "saving in percent of GPU wall time"),
    Column("method", "Estimate", TEXT, meaning="method of the estimate"),
)


def _finding_row(now: Opened, ranked: Recommendation, target_pct: int) -> dict[str, object]:
    finding = ranked.finding
    gain = reprojected(finding, target_pct, now.run.manifest)
    return {
        "rank": ranked.label,
        LINK: _address(now, ranked, target_pct),
        "priority": [str(finding.priority)],
        "category": ranked.result.title,
        "finding": to_text(finding.title).replace("`", ""),
        "saved_ms": gain.saved_ms.mid if gain else None,
        "wall_pct": gain.e2e_pct.mid if gain else None,
        "method": gain.method if gain else "not quantified",
    }


def _address(now: Opened, ranked: Recommendation, target_pct: int) -> str:
    """Return the URL of the finding's page with its target efficiency and its row."""
    finding, page = ranked.finding, ranked.finding.category
    parameters = {}
    target = now.run.analyses[page].target
    if ranked.result.tier == "compute":
        parameters[f"{page}_target"] = str(target_pct)
        if finding.operations:
            parameters[f"{page}_op"] = str(finding.operations[0].uid)
    elif target is not None:
        parameters[f"{page}_target"] = f"{target.default_pct:.0f}"
    return navigation.address(page, now.id, **parameters)
