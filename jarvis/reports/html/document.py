"""The HTML document: the content of the fair report with metrics and charts."""

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from jarvis.charts import DARK, LIGHT
from jarvis.charts.svg import variables
from jarvis.reports.details import details_of
from jarvis.reports.edits import Edits
from jarvis.reports.fair import fair_parts
from jarvis.reports.html import drawings
from jarvis.reports.rendering import TEMPLATES
from jarvis.run import Run
from jarvis.text.format import counted, milliseconds, percent
from jarvis.text.markdown import anchor, code, escape, prose


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


def _stays_inside(url: str) -> bool:
    return url.startswith("#")


def document(run: Run, root: Path, edits: Edits) -> str:
    """Return the HTML text of a run whose directory is ``root``."""
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
        _environment()
        .get_template("document.html.j2")
        .render(
            parts,
            figures=_figures(run),
            drawings=[drawing for drawing in render_charts[: len(figures)] if drawing],
            rooflines=[
                (title, drawing)
                for title, drawing in zip(
                    titles.values(), render_charts[len(figures) :], strict=True
                )
                if drawing
            ],
            version=run.manifest.jarvis_version,
            created=run.manifest.created,
            light=variables(LIGHT),
            dark=variables(DARK),
        )
    )


def _figures(run: Run) -> list[tuple[str, str, str]]:
    """Return name, value and caption of each key metric."""
    totals = run.manifest.totals
    return [
        ("GPU time", milliseconds(totals.total_time_ms), "first start to last end"),
        ("GPU busy", percent(totals.busy_pct), f"compute {percent(totals.compute_pct)}"),
        (
            "Exposed communication",
            percent(totals.exposed_comm_pct),
            milliseconds(totals.exposed_comm_time_ms),
        ),
        ("Idle", percent(totals.idle_pct), milliseconds(totals.idle_time_ms)),
    ]


@cache
def _environment() -> Environment:
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
