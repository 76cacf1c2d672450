"""Search and filters of the Runs page, stored in the URL."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from datetime import date

import polars as pl
import streamlit as st

from jarvis.dashboard.pages.runs.rows import (
    BRANCH,
    BUSY,
    COMMIT,
    CREATED,
    FINDING,
    FINDING_CATEGORY,
    GPU,
    ID,
    MODEL,
    ORIGIN,
    OWNER,
    PROJECT,
    SOURCE,
    TAGS,
    TIME,
    TRACE,
)
from jarvis.dashboard.session.links import check_parameter, note_control
from jarvis.dashboard.widgets.controls import keyed_choice, text_input

PAGE = "runs"
SELECTED = f"{PAGE}_selected"
"""The URL parameter with the ids of the selected runs, separated by commas."""

ALL = "*"
"""Key of a filter that all rows pass; no label has this character."""

_SEARCHED = (
    *(MODEL, TRACE, GPU, FINDING, FINDING_CATEGORY, PROJECT, BRANCH, COMMIT),
    *(OWNER, ORIGIN, SOURCE),
)
_MAX_MS = 1e9


@dataclass(frozen=True, slots=True)
class RunFilters:
    """Values of the filters; None and empty ones match all runs. Dates are inclusive, in UTC."""

    search: str = ""
    project: str | None = None
    model: str | None = None
    gpu: str | None = None
    branch: str | None = None
    owner: str | None = None
    found_in: str | None = None
    tags: tuple[str, ...] = ()
    from_ms: float | None = None
    to_ms: float | None = None
    busy_below: float | None = None
    since: date | None = None
    until: date | None = None

    def chosen(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that pass all filters."""
        equal = {
            PROJECT: self.project,
            MODEL: self.model,
            GPU: self.gpu,
            BRANCH: self.branch,
            OWNER: self.owner,
            FINDING_CATEGORY: self.found_in,
        }
        conditions = [pl.col(name) == value for name, value in equal.items() if value is not None]
        conditions += [pl.col(TAGS).list.contains(tag) for tag in self.tags]
        day = pl.col(CREATED).dt.date()
        limits = (
            (self.from_ms, pl.col(TIME) >= pl.lit(self.from_ms)),
            (self.to_ms, pl.col(TIME) <= pl.lit(self.to_ms)),
            (self.busy_below, pl.col(BUSY) < pl.lit(self.busy_below)),
            (self.since, day >= pl.lit(self.since)),
            (self.until, day <= pl.lit(self.until)),
        )
        conditions += [condition for limit, condition in limits if limit is not None]
        texts = [pl.col(name).fill_null("") for name in (*_SEARCHED, ID)]
        texts.append(pl.col(TAGS).list.join(" "))
        text = pl.concat_str(texts, separator="\n").str.to_lowercase()
        conditions += [
            text.str.contains(word, literal=True) for word in self.search.lower().split()
        ]
        return rows.filter(conditions) if conditions else rows


_CHOICES = ("project", "model", "gpu", "branch", "owner", "found_in")
_MORE = ("branch", "owner", "found_in", "from_ms", "to_ms", "busy_below", "since", "until")


def filters(rows: pl.DataFrame) -> RunFilters:
    """Draw the filters with the values that the rows have."""
    with st.container(border=True):
        search, project, model, gpu, tags = st.columns([3, 2, 2, 2, 2.4])
        with search:
            text = text_input(
                f"{PAGE}_search",
                "Search",
                "words",
                "Runs with all these words in any text column, for example a commit or a finding.",
            )
        with project:
            chosen_project = _one("project", "Project", rows[PROJECT])
        with model:
            chosen_model = _one("model", "Model", rows[MODEL])
        with gpu:
            chosen_gpu = _one("gpu", "GPU", rows[GPU])
        with tags:
            chosen_tags = _tags(rows)
        more = _more(rows)
    return replace(
        more,
        search=text,
        project=chosen_project,
        model=chosen_model,
        gpu=chosen_gpu,
        tags=chosen_tags,
    )


def clear() -> None:
    """Reset all filters; a callback of a button."""
    for name in _CHOICES:
        st.query_params.pop(f"{PAGE}_{name}", None)
        st.session_state[f"{PAGE}_{name}"] = ALL
    for field in fields(RunFilters):
        if field.name not in _CHOICES:  # bound to the URL, which Streamlit updates
            value = [] if field.name == TAGS else field.default
            st.session_state[f"{PAGE}_{field.name}"] = value


def _more(rows: pl.DataFrame) -> RunFilters:
    is_used = any(f"{PAGE}_{name}" in st.query_params for name in _MORE)
    with st.expander("More filters", expanded=is_used):
        branch, owner, found_in, busy = st.columns(4)
        low, high, since, until = st.columns(4)
        with branch:
            chosen_branch = _one("branch", "Branch", rows[BRANCH])
        with owner:
            chosen_owner = _one("owner", "Owner", rows[OWNER])
        with found_in:
            category = _one("found_in", "Top finding in", rows[FINDING_CATEGORY])
        with low:
            from_ms = _number("from_ms", "Step time from (ms)", _MAX_MS)
        with high:
            to_ms = _number("to_ms", "Step time to (ms)", _MAX_MS)
        with busy:
            busy_below = _number("busy_below", "GPU busy below (%)", 100.0)
        with since:
            first = _day("since", "From date")
        with until:
            last = _day("until", "To date")
    return RunFilters(
        branch=chosen_branch,
        owner=chosen_owner,
        found_in=category,
        from_ms=from_ms,
        to_ms=to_ms,
        busy_below=busy_below,
        since=first,
        until=last,
    )


def _one(name: str, label: str, values: pl.Series) -> str | None:
    """Draw the choice of one of the values, or of all; return None for all."""
    options = {ALL: "All", **{value: value for value in values.drop_nulls().unique().sort()}}
    chosen = keyed_choice(f"{PAGE}_{name}", label, options, ALL, f"Runs with this {label.lower()}.")
    return None if chosen == ALL else chosen


def _tags(rows: pl.DataFrame) -> tuple[str, ...]:
    key, options = f"{PAGE}_tags", rows[TAGS].explode().drop_nulls().unique().sort().to_list()
    given = st.query_params.get_all(key)
    check_parameter(key, lambda _: set(given) <= set(options), "no tag")
    chosen = st.multiselect(
        "Tags",
        options,
        key=key,
        placeholder="Any",
        help="Runs with all these tags.",
        bind="query-params",
    )
    note_control(key, chosen)
    return tuple(chosen)


def _number(name: str, label: str, highest: float) -> float | None:
    key = f"{PAGE}_{name}"
    check_parameter(key, _is_number_up_to(highest), "no limit")
    value = st.number_input(
        label, 0.0, highest, value=None, key=key, placeholder="any", bind="query-params"
    )
    note_control(key, value)
    return value


def _is_number_up_to(highest: float) -> Callable[[str], bool]:
    def is_valid(text: str) -> bool:
        try:
            return 0 <= float(text) <= highest
        except ValueError:
            return False

    return is_valid


def _day(name: str, label: str) -> date | None:
    key = f"{PAGE}_{name}"
    check_parameter(key, _is_day, "no limit")
    value = st.date_input(
        label, value=None, key=key, format="YYYY-MM-DD", help="In UTC.", bind="query-params"
    )
    note_control(key, value)
    return value


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True
