"""Edits of a report: selection of findings and the executive summary.

They are stored in the URL and in the session, to survive a visit to another page. A summary that is
too long for a link is in the session only.
"""

import re

import streamlit as st

from jarvis.dashboard.session.links import check_parameter, note_control
from jarvis.dashboard.session.state import HASH_OPENED, Opened
from jarvis.dashboard.widgets.finding_cards import priority_badge, saving_label
from jarvis.findings import Priority
from jarvis.reports.details import details_of
from jarvis.reports.edits import Edits
from jarvis.reports.ranking import Recommendation, recommendations
from jarvis.reports.summary import paragraph
from jarvis.text.format import counted
from jarvis.text.markdown import Markdown, prose

WITHOUT, SUMMARY = "report_without", "report_summary"
"""URL parameters: the numbers of the findings left out, and the author's summary."""

LINK_CHARACTERS = 1000
"""Maximum length of a summary in links."""

MAX_CHARACTERS = 5000
_MAX_CACHED_PARAGRAPHS = 256
_LIST_PX, _TEXT_PX = 330, 232
_NUMBERS = re.compile(r"\d+(,\d+)*")
_STORED, _OPENED = "_report_kept", "_report_analysis"


def edited(now: Opened) -> Edits:
    """Draw both controls, and return the edits."""
    ranked = recommendations(now.run)
    _forget_other_analysis(now)
    numbers = [item.number for item in ranked]
    check_parameter(WITHOUT, lambda text: _is_choice(text, numbers), "every finding")
    with st.container(border=True):
        findings, summary = st.columns([3, 2])
        with findings:
            left_out = _switches(now, ranked)
        with summary:
            summary_text = _summary(now, left_out)
    return Edits(left_out, summary_text)


def _is_choice(text: str, numbers: list[int]) -> bool:
    return bool(_NUMBERS.fullmatch(text)) and {int(n) for n in text.split(",")} <= set(numbers)


def _forget_other_analysis(now: Opened) -> None:
    """Remove the URL's edits if they belong to another analysis."""
    if st.session_state.get(_OPENED, now.id) != now.id:
        st.query_params.pop(WITHOUT, None)
        st.query_params.pop(SUMMARY, None)
    st.session_state[_OPENED] = now.id


def _load(now: Opened, parameter: str) -> tuple[str, bool]:
    """Return the stored text of an edit, and whether it is new in the URL."""
    stored = st.session_state.setdefault(_STORED, {})
    key, given = (now.id, parameter), st.query_params.get(parameter)
    if given is not None and given != stored.get(key):
        stored[key] = given
        return given, True
    return stored.get(key, ""), False


def _store(now: Opened, parameter: str, text: str, *, is_linked: bool) -> None:
    st.session_state.setdefault(_STORED, {})[now.id, parameter] = text
    if text and is_linked:
        st.query_params[parameter] = text
        note_control(parameter, text)
    else:
        st.query_params.pop(parameter, None)


def _switches(now: Opened, ranked: list[Recommendation]) -> frozenset[int]:
    text, is_new = _load(now, WITHOUT)
    numbers = [item.number for item in ranked]
    left_out = {int(n) for n in text.split(",")} if _is_choice(text, numbers) else set()
    keys = {item.number: f"{WITHOUT}_{now.id}_{item.number}" for item in ranked}
    for number, key in keys.items():
        if is_new or key not in st.session_state:
            st.session_state[key] = number not in left_out
    low = {item.number for item in ranked if item.finding.priority is Priority.LOW}
    place = st.container(
        horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"
    )
    with st.container(height=_LIST_PX, border=False, gap="xsmall"):
        if not ranked:
            st.success("The checks of this version found nothing to fix.", icon=":material/check:")
        for item in ranked:
            st.checkbox(_switch_label(item), key=keys[item.number])
    chosen = frozenset(n for n, key in keys.items() if not st.session_state[key])
    with place:
        st.markdown(f"**{_heading(len(ranked), len(chosen))}**", width="content")
        with st.container(horizontal=True, width="content", gap="xsmall"):
            _set_button("Include all", keys, set())
            _set_button("Leave out low priority", keys, low)
    _store(now, WITHOUT, ",".join(map(str, sorted(chosen))), is_linked=True)
    return chosen


def _heading(count: int, left_out: int) -> str:
    if not left_out:
        return f"The report includes all {counted(count, 'finding')}" if count else "No findings"
    return f"The report includes {count - left_out} of {counted(count, 'finding')}"


def _switch_label(item: Recommendation) -> str:
    gain = item.finding.impact
    saving = f" · {saving_label(gain)}" if gain else ""
    about = f"{item.label} {priority_badge(item.finding.priority)}"
    return f"{about} {prose(item.finding.title)} · {prose(item.result.title)}{saving}"


def _set_button(label: str, keys: dict[int, str], left_out: set[int]) -> None:
    st.button(
        label,
        key=f"report_set_{label}",
        type="tertiary",
        on_click=_set,
        args=(keys, left_out),
        help="Select these findings",
    )


def _set(keys: dict[int, str], left_out: set[int]) -> None:
    for number, key in keys.items():
        st.session_state[key] = number not in left_out


@st.cache_data(max_entries=_MAX_CACHED_PARAGRAPHS, show_spinner=False, hash_funcs=HASH_OPENED)
def _paragraph(now: Opened, left_out: frozenset[int]) -> str:
    """Return the generated summary of the report without these findings, as Markdown."""
    included, _ = Edits(left_out).partition(details_of(now.run))
    return str(prose(paragraph(now.run, included, is_whole=not left_out)))


def _summary(now: Opened, left_out: frozenset[int]) -> Markdown | None:
    """Draw the summary and return it if the user edited it, else None."""
    generated = _paragraph(now, left_out)
    text, is_new = _load(now, SUMMARY)
    key, last = f"{SUMMARY}_{now.id}", f"_{SUMMARY}_{now.id}_ours"
    is_generated = st.session_state.get(key) == st.session_state.get(last)
    if is_new or key not in st.session_state:
        st.session_state[key] = text[:MAX_CHARACTERS] or generated
    elif is_generated:
        st.session_state[key] = generated
    st.session_state[last] = generated
    st.text_area(
        "**Executive summary** (Markdown)",
        key=key,
        height=_TEXT_PX,
        max_chars=MAX_CHARACTERS,
        help="Your text replaces the generated summary in the fair report and the HTML file, "
        "marked as written by the author. Clear it to restore the generated summary.",
    )
    edited_text = (st.session_state[key] or "").strip()
    is_edited = edited_text not in ("", generated.strip())
    is_short = len(edited_text) <= LINK_CHARACTERS
    _store(now, SUMMARY, edited_text if is_edited else "", is_linked=is_short)
    if not is_edited:
        st.caption("Auto-generated. Edit as you like.")
        return None
    where = (
        "It is part of this page's link."
        if is_short
        else f"Too long for a link (maximum {LINK_CHARACTERS:,} characters): it is lost when the "
        "page is reloaded. Download the report to save it."
    )
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(f"Your text. {where}")
        st.button(
            "Restore generated summary",
            key="report_restore",
            type="tertiary",
            on_click=st.session_state.update,
            args=({key: generated},),
            help="Replace your text with the generated summary",
        )
    # Images are escaped: those in a summary from a link could be fetched from any server.
    return Markdown(edited_text.replace("![", r"!\["))
