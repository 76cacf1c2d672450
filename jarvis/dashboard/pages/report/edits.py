"""What the author of a report chooses: which findings it holds, and in which words it begins.

The choice lives in the URL and, for those who leave the page and come back, in the session. A
summary too long for a link stays in the session alone.
"""

import re

import streamlit as st

from jarvis.dashboard.session.links import check_parameter, note_control
from jarvis.dashboard.session.state import HASH_OPENED, Opened
from jarvis.dashboard.widgets.finding_cards import priority_badge
from jarvis.findings import Priority
from jarvis.reports.details import details_of
from jarvis.reports.edits import Edits
from jarvis.reports.ranking import Recommendation, recommendations
from jarvis.reports.summary import paragraph
from jarvis.text.format import counted, milliseconds
from jarvis.text.markdown import Markdown, prose

WITHOUT, SUMMARY = "report_without", "report_summary"
"""URL parameters: the numbers of the findings left out, and the author's summary."""

LINK_CHARACTERS = 1000
"""A longer summary is not put into links."""

MAX_CHARACTERS = 5000
_KEPT_PARAGRAPHS = 256
_LIST_PX, _TEXT_PX = 330, 232
_NUMBERS = re.compile(r"\d+(,\d+)*")
_KEPT, _OPENED = "_report_kept", "_report_analysis"


def edited(now: Opened) -> Edits:
    """The card with both controls, and what they say."""
    ranked = recommendations(now.run)
    _forget_other_analysis(now)
    numbers = [item.number for item in ranked]
    check_parameter(WITHOUT, lambda text: _is_choice(text, numbers), "every finding")
    with st.container(border=True):
        findings, summary = st.columns([3, 2])
        with findings:
            left_out = _switches(now, ranked)
        with summary:
            words = _summary(now, left_out)
    return Edits(left_out, words)


def _is_choice(text: str, numbers: list[int]) -> bool:
    return bool(_NUMBERS.fullmatch(text)) and {int(n) for n in text.split(",")} <= set(numbers)


def _forget_other_analysis(now: Opened) -> None:
    """The URL's choice belongs to the analysis that it was made for."""
    if st.session_state.get(_OPENED, now.id) != now.id:
        st.query_params.pop(WITHOUT, None)
        st.query_params.pop(SUMMARY, None)
    st.session_state[_OPENED] = now.id


def _kept(now: Opened, parameter: str) -> tuple[str, bool]:
    """The text of a choice, and whether the URL has just brought it."""
    kept = st.session_state.setdefault(_KEPT, {})
    place, given = (now.id, parameter), st.query_params.get(parameter)
    if given is not None and given != kept.get(place):
        kept[place] = given
        return given, True
    return kept.get(place, ""), False


def _keep(now: Opened, parameter: str, text: str, *, is_linked: bool) -> None:
    st.session_state.setdefault(_KEPT, {})[now.id, parameter] = text
    if text and is_linked:
        st.query_params[parameter] = text
        note_control(parameter, text)
    else:
        st.query_params.pop(parameter, None)


def _switches(now: Opened, ranked: list[Recommendation]) -> frozenset[int]:
    text, has_arrived = _kept(now, WITHOUT)
    numbers = [item.number for item in ranked]
    left_out = {int(n) for n in text.split(",")} if _is_choice(text, numbers) else set()
    keys = {item.number: f"{WITHOUT}_{now.id}_{item.number}" for item in ranked}
    for number, key in keys.items():
        if has_arrived or key not in st.session_state:
            st.session_state[key] = number not in left_out
    low = {item.number for item in ranked if item.finding.priority is Priority.LOW}
    place = st.container(
        horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"
    )
    with st.container(height=_LIST_PX, border=False, gap="xsmall"):
        if not ranked:
            st.success("Nothing to fix by the checks of this version.", icon=":material/check:")
        for item in ranked:
            st.checkbox(_switch_label(item), key=keys[item.number])
    chosen = frozenset(n for n, key in keys.items() if not st.session_state[key])
    with place:
        st.markdown(f"**{_heading(len(ranked), len(chosen))}**", width="content")
        with st.container(horizontal=True, width="content", gap="xsmall"):
            _set_button("Include all", keys, set())
            _set_button("Leave out low priority", keys, low)
    _keep(now, WITHOUT, ",".join(map(str, sorted(chosen))), is_linked=True)
    return chosen


def _heading(count: int, left_out: int) -> str:
    if not left_out:
        return f"The report holds all {counted(count, 'finding')}" if count else "No finding"
    return f"The report holds {count - left_out} of {counted(count, 'finding')}"


def _switch_label(item: Recommendation) -> str:
    gain = item.finding.impact
    saving = f" · saves {milliseconds(gain.saved_ms.mid)}" if gain else ""
    about = f"{item.label} {priority_badge(item.finding.priority)}"
    return f"{about} {prose(item.finding.title)} · {prose(item.result.title)}{saving}"


def _set_button(label: str, keys: dict[int, str], left_out: set[int]) -> None:
    st.button(
        label,
        key=f"report_set_{label}",
        type="tertiary",
        on_click=_set,
        args=(keys, left_out),
        help="Choose these findings",
    )


def _set(keys: dict[int, str], left_out: set[int]) -> None:
    for number, key in keys.items():
        st.session_state[key] = number not in left_out


@st.cache_data(max_entries=_KEPT_PARAGRAPHS, show_spinner=False, hash_funcs=HASH_OPENED)
def _paragraph(now: Opened, left_out: frozenset[int]) -> str:
    """The summary of the report with these findings left out, as Markdown."""
    kept, _ = Edits(left_out).partition(details_of(now.run))
    return str(prose(paragraph(now.run, kept, is_whole=not left_out)))


def _summary(now: Opened, left_out: frozenset[int]) -> Markdown | None:
    """The author's words; None where they are still those of the report."""
    ours = _paragraph(now, left_out)
    text, has_arrived = _kept(now, SUMMARY)
    key, written = f"{SUMMARY}_{now.id}", f"_{SUMMARY}_{now.id}_ours"
    is_ours = st.session_state.get(key) == st.session_state.get(written)
    if has_arrived or key not in st.session_state:
        st.session_state[key] = text[:MAX_CHARACTERS] or ours
    elif is_ours:
        st.session_state[key] = ours
    st.session_state[written] = ours
    st.text_area(
        "**Executive summary** (Markdown)",
        key=key,
        height=_TEXT_PX,
        max_chars=MAX_CHARACTERS,
        help="Your words take the place of these in the fair report and in the HTML file, which "
        "say that the author wrote them. Empty: ours again.",
    )
    words = (st.session_state[key] or "").strip()
    is_edited = words not in ("", ours.strip())
    is_short = len(words) <= LINK_CHARACTERS
    _keep(now, SUMMARY, words if is_edited else "", is_linked=is_short)
    if not is_edited:
        st.caption("Auto-generated. Edit as you like.")
        return None
    where = (
        "The link of this page carries it."
        if is_short
        else f"Too long for a link ({LINK_CHARACTERS:,} characters at most): it stays in this "
        "browser tab until the page is reloaded. Download the report to keep it."
    )
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(f"Your words. {where}")
        st.button(
            "Restore ours",
            key="report_restore",
            type="tertiary",
            on_click=st.session_state.update,
            args=({key: ours},),
            help="Bring back the summary that the checks wrote",
        )
    # An image of a summary that came with a link would be fetched from anywhere.
    return Markdown(words.replace("![", r"!\["))
