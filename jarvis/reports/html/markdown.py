"""Convert the reports' Markdown to HTML. Tags, images and external links remain text."""

from functools import cache

from markdown_it import MarkdownIt
from markupsafe import Markup

from jarvis.text.markdown import anchor, escape


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
