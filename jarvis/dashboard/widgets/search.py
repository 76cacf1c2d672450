"""Search over pages, findings, operations, kernels and runs, with the link of each result."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

import polars as pl
import streamlit as st
from streamlit.navigation.page import StreamlitPage

from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.carried import carried
from jarvis.dashboard.session.state import HASH_STORED, Opened
from jarvis.dashboard.widgets.finding_cards import finding_address
from jarvis.reports.ranking import recommendations
from jarvis.run import Run
from jarvis.savings import per_step
from jarvis.schemas.names import C
from jarvis.server.storage.catalog import Catalog
from jarvis.text.format import milliseconds, percent
from jarvis.text.markdown import short_line
from jarvis.text.messages import to_text
from jarvis.text.shapes import operation_shapes

MAX_OF_KIND = 8
"""Results of each kind."""

MAX_FINDINGS = 50
"""Findings listed without a search."""

_TEXT_LENGTH = 110
_MAX_CACHED = 16
_SOUGHT = "sought"


@dataclass(frozen=True, slots=True)
class Result:
    """A place that a search found: its kind, its name, a note, and a relative URL."""

    kind: str
    text: str
    note: str
    href: str


def find(
    query: str, pages: Iterable[StreamlitPage], now: Opened | None, catalog: Catalog
) -> list[dict[str, str]]:
    """Return what has all words of the query in its name, at most ``MAX_OF_KIND`` of each kind."""
    words = query.lower().split()
    if not words:
        return []
    kinds: list[Iterator[Result]] = [_pages(pages, words, now)]
    if now is not None:
        kinds += [_findings(now, words), _rows(now, operations_of(now), words, "Operation")]
        kinds.append(_rows(now, kernels_of(now), words, "Kernel"))
    kinds.append(_runs(catalog, words))
    return [asdict(result) for kind in kinds for result in _first(kind, MAX_OF_KIND)]


def all_findings(now: Opened) -> list[dict[str, str]]:
    """Return the findings of the run in order, at most ``MAX_FINDINGS``."""
    return [asdict(result) for result in _first(_findings(now, []), MAX_FINDINGS)]


def _first(results: Iterator[Result], count: int) -> list[Result]:
    return [result for _, result in zip(range(count), results, strict=False)]


def _has(words: Sequence[str], text: str) -> bool:
    text = text.lower()
    return all(word in text for word in words)


def _pages(
    pages: Iterable[StreamlitPage], words: Sequence[str], now: Opened | None
) -> Iterator[Result]:
    for page in pages:
        if _has(words, page.title):
            href = page.url_path if now is None else _address(now, page.url_path)
            yield Result("Page", page.title, "", href)


def _findings(now: Opened, words: Sequence[str]) -> Iterator[Result]:
    totals, shared = now.run.manifest.totals, carried()
    for item in recommendations(now.run):
        title = to_text(item.finding.title).replace("`", "")
        if _has(words, f"{item.label} {title} {item.result.title}"):
            gain = item.finding.impact
            saved = ""
            if gain is not None:
                gain_ms = per_step(gain, totals).gain_ms
                saved = f" · saves {milliseconds(gain_ms) if gain_ms else 'no time'}"
            note = f"{item.result.title} · {item.finding.priority}{saved}"
            yield Result(
                "Finding", _short(f"{item.label} {title}"), note, finding_address(now, item, shared)
            )


def _rows(now: Opened, rows: pl.DataFrame, words: Sequence[str], kind: str) -> Iterator[Result]:
    has_all = pl.all_horizontal(pl.col(_SOUGHT).str.contains(word, literal=True) for word in words)
    for row in rows.filter(has_all).head(MAX_OF_KIND).iter_rows(named=True):
        page = row[C.category]
        result = now.stored.results.get(page)
        (shapes,) = operation_shapes([(row[C.params], row[C.input_dims])])
        name = " ".join(filter(None, (row[C.name], shapes)))
        note = f"{result.title if result else page} · {percent(row[C.percent_of_compute])}"
        href = _address(now, page, **{f"{page}_op": str(row[C.uid])})
        yield Result(kind, _short(name), f"{note} of compute", href)


def _runs(catalog: Catalog, words: Sequence[str]) -> Iterator[Result]:
    for entry in catalog.entries:
        labels = entry.labels
        named = (entry.title, entry.id, labels.project or "", labels.branch or "", *labels.tags)
        if _has(words, " ".join(named)):
            href = navigation.address(navigation.OVERVIEW, entry.id)
            yield Result("Run", _short(entry.title), entry.id, href)


def _address(now: Opened, url_path: str, **parameters: str) -> str:
    return navigation.address(url_path, now.id, **carried(), **parameters)


def _short(text: str) -> str:
    return short_line(text, _TEXT_LENGTH)


@st.cache_resource(max_entries=_MAX_CACHED, show_spinner=False, hash_funcs=HASH_STORED)
def operations_of(now: Opened) -> pl.DataFrame:
    """Return the operations, most time first, with the text that is searched."""
    rows = _sorted(now.stored).select(_SHOWN)
    text = pl.concat_str(C.name, pl.col(C.input_dims).fill_null(""), separator=" ")
    return rows.with_columns(text.str.to_lowercase().alias(_SOUGHT))


@st.cache_resource(max_entries=_MAX_CACHED, show_spinner=False, hash_funcs=HASH_STORED)
def kernels_of(now: Opened) -> pl.DataFrame:
    """Return each kernel's name with the operation that has most time with it."""
    rows = _sorted(now.stored).with_columns(_kernel_names()).explode(C.name, empty_as_null=False)
    rows = rows.drop_nulls(C.name).unique(C.name, keep="first", maintain_order=True)
    none = pl.lit(None, pl.String)
    rows = rows.with_columns(none.alias(C.input_dims), none.alias(C.params)).select(_SHOWN)
    return rows.with_columns(pl.col(C.name).str.to_lowercase().alias(_SOUGHT))


_SHOWN = (C.uid, C.name, C.input_dims, C.params, C.category, C.percent_of_compute)


def _sorted(run: Run) -> pl.DataFrame:
    rows = run.table("operations").filter(pl.col(C.category).is_not_null())
    return rows.sort(C.kernel_time_us, descending=True, maintain_order=True)


def _kernel_names() -> pl.Expr:
    return pl.col(C.kernels).list.eval(pl.element().struct.field(C.name)).alias(C.name)
