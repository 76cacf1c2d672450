"""Markdown of the reports -> HTML. Tags, images and links to elsewhere stay text."""

from functools import cache

from markdown_it import MarkdownIt
from markupsafe import Markup

from jarvis.text.markdown import anchor, escape


def block_html(text: str) -> Markup:
    """Paragraphs, lists and tables; each table can be scrolled where it is too wide."""
    return Markup(_parser().render(escape(text)))


def inline_html(text: str) -> Markup:
    """One line without a paragraph around it."""
    return Markup(_parser().renderInline(escape(text)))


def heading_id(text: str) -> str:
    """The name by which links of the reports find a heading."""
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
