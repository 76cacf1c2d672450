"""The HTML document: the content of the fair report with metrics and charts."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from jarvis.charts import DARK, LIGHT
from jarvis.charts.svg import variables
from jarvis.core.notes import FindingNotes
from jarvis.reports.account import account_of
from jarvis.reports.details import details_of
from jarvis.reports.edits import Edits
from jarvis.reports.fair import fair_parts, share
from jarvis.reports.html import drawings
from jarvis.reports.rendering import TEMPLATES
from jarvis.run import Run
from jarvis.schemas.names import C
from jarvis.text.format import counted, milliseconds, percent
from jarvis.text.markdown import Markdown, anchor, code, escape, prose


def block_html(text: str) -> Markup:
    """Return paragraphs, lists and tables as HTML; wide tables scroll."""
    return Markup(_parser().render(escape(text)))


def inline_html(text: str) -> Markup:
    """Return one line as HTML without a paragraph around it."""
    return Markup(_parser().renderInline(escape(text)))


def heading_id(text: str) -> str:
    """Return the anchor that links of the reports use for a heading."""
    return anchor(text)


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    parser.validateLink = _stays_inside  # type: ignore[method-assign]
    parser.add_render_rule("table_open", lambda *_: '<div class="wide"><table>')
    parser.add_render_rule("table_close", lambda *_: "</table></div>")
    return parser


_WEB = ("https://", "http://")


def _stays_inside(url: str) -> bool:
    return url.startswith("#")


def document(run: Run, root: Path, edits: Edits, page_url: str | None = None) -> str:
    """Return the HTML text of a run whose directory is ``root``.

    ``page_url`` is linked if it is an address of the web.
    """
    included, _ = edits.partition(details_of(run))
    parts = fair_parts(run, root, edits)
    figures = [
        drawings.step_time(run),
        drawings.categories(run),
        drawings.projection(run, included),
    ]
    titles = {key: title for key, title, _ in parts["sections"]}
    render_charts = drawings.render_charts(
        [*figures, *(drawings.category_roofline(run, key) for key in titles)]
    )
    return (
        environment()
        .get_template("document.html.j2")
        .render(
            parts,
            rows=_rows(parts, edits),
            page_url=page_url if page_url and page_url.startswith(_WEB) else None,
            figures=_figures(run),
            drawings=[drawing for drawing in render_charts[: len(figures)] if drawing],
            rooflines=[
                (title, drawing)
                for title, drawing in zip(
                    titles.values(), render_charts[len(figures) :], strict=True
                )
                if drawing
            ],
            title=f"{parts['model']} - {parts['platform']}: performance report",
            version=run.manifest.jarvis_version,
            created=run.manifest.created,
            light=variables(LIGHT),
            dark=variables(DARK),
        )
    )


@dataclass(frozen=True, slots=True)
class Row:
    """A finding in the table of the document; ``target`` is the id of its card, if it has one."""

    label: str
    title: Markdown
    saving: str
    target: str | None
    notes: FindingNotes


def _rows(parts: Mapping[str, Any], edits: Edits) -> list[Row]:
    """Return the rows of the table of findings."""
    targets = {card.label: heading_id(card.heading) for card in parts["cards"]}
    return [
        Row(
            (label := each.recommendation.label),
            each.recommendation.title,
            share(each.finding.impact),
            targets.get(label),
            edits.of_finding(each.recommendation.key),
        )
        for each in parts["listed"]
    ]


def _figures(run: Run) -> list[tuple[str, str, str]]:
    """Return name, value and caption of each key metric: of the step, as on the overview; of the
    GPU window if there are no steps."""
    totals, account = run.manifest.totals, account_of(run)
    if account is not None:
        comm_ns, idle_pct = account.parts_ns[C.exposed_comm_ns], account.pct(account.idle_ns)
        compute_pct = account.pct(account.parts_ns[C.compute_ns])
        return [
            (
                "Step time" if account.is_marked else "Recording",
                milliseconds(account.step_ms),
                f"GPU window {milliseconds(totals.total_time_ms)}",
            ),
            ("GPU busy", percent(100 - idle_pct), f"compute {percent(compute_pct)}"),
            (
                "Exposed communication",
                percent(account.pct(comm_ns)),
                milliseconds(account.mean_ms(comm_ns)),
            ),
            ("Idle", percent(idle_pct), milliseconds(account.mean_ms(account.idle_ns))),
        ]
    return [
        ("GPU window", milliseconds(totals.total_time_ms), "first start to last end"),
        ("GPU busy", percent(totals.busy_pct), f"compute {percent(totals.compute_pct)}"),
        (
            "Exposed communication",
            percent(totals.exposed_comm_pct),
            milliseconds(totals.exposed_comm_time_ms),
        ),
        ("Idle", percent(totals.idle_pct), milliseconds(totals.idle_time_ms)),
    ]


@cache
def environment() -> Environment:
    """Return the environment of the templates of documents."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
    )
    filters: dict[str, Any] = {
        "block": block_html,
        "inline": inline_html,
        "heading_id": heading_id,
        "counted": counted,
        "prose": prose,
        "code": code,
    }
    environment.filters |= filters
    return environment
