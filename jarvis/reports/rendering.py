"""Render templates to Markdown, escaping every value that is not Markdown already."""

import os
import re
from contextlib import suppress
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemBytecodeCache, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket

from jarvis.core.workspace import compiled_templates_dir
from jarvis.text.format import (
    byte_size,
    count,
    counted,
    decimal,
    milliseconds,
    percent,
    utc_minute,
)
from jarvis.text.markdown import block, cell, code, escape, plain_block, prose
from jarvis.text.quantities import QUANTITIES, idle_quantity

TEMPLATES = Path(__file__).with_name("templates")


def render(template: str, **context: object) -> str:
    """Render a template, with single blank lines and a line break at the end."""
    text = _environment().get_template(f"{template}.md.j2").render(context)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def load_templates() -> None:
    """Load all templates of Markdown."""
    for template in sorted(TEMPLATES.glob("*.md.j2")):
        _environment().get_template(template.name)


def cause_label(cause: str) -> str:
    """Return the label of a cause of idle time, as in its finding."""
    return QUANTITIES[idle_quantity(cause)].label


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        finalize=_printed,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        bytecode_cache=_compiled(),
        autoescape=False,  # ``finalize`` escapes for Markdown instead of HTML
    )
    environment.filters |= {
        function.__name__: function
        for function in (
            block,
            cause_label,
            cell,
            code,
            prose,
            byte_size,
            count,
            counted,
            decimal,
            milliseconds,
            percent,
            plain_block,
            utc_minute,
        )
    }
    return environment


def _compiled() -> FileSystemBytecodeCache | None:
    """Return the cache of compiled templates; None without a usable cache folder."""
    folder = compiled_templates_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return _TemplateCache(str(folder)) if os.access(folder, os.W_OK) else None


class _TemplateCache(FileSystemBytecodeCache):
    """A cache folder that may be removed while the process runs."""

    def dump_bytecode(self, bucket: Bucket) -> None:
        with suppress(OSError):
            super().dump_bytecode(bucket)


def _printed(value: object) -> str:
    """Return a value as the page shows it; raise for a float without a unit."""
    if isinstance(value, bool | float) or value is None:
        raise TypeError(f"a template prints {value!r}; give it a filter of jarvis.text.format")
    return escape(str(value) if not isinstance(value, str) else value)
