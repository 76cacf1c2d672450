"""Texts of a trace as cells of a Markdown table, also used in the metrics.

Tools compare both character by character and split cells at ``|`` and ``<br>``, so Markdown syntax
is written as HTML entities: ``html.unescape`` gives the text of the trace.
"""

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

from jarvis.schemas.names import C
from jarvis.text.format import UNPRINTABLE, cut

MISSING = "—"
"""A cell without a value."""

BREAK = "<br>"
"""Separates the arguments of a call, and its kernels."""

NAME_LIMIT = 75
"""Maximum length of a kernel name in ``kernel_name_trunc``."""

KERNELS_SHOWN = 8
"""Maximum number of kernels in a cell."""

# Brackets matter before a link target, underscores where both ends of an emphasis could be.
_SPECIAL = re.compile(
    r"[\\`*|$~@]|\](?=[(\[:])|(?<![A-Za-z0-9])_(?=.*_(?![A-Za-z0-9]))|(?<=[A-Za-z]):(?=//)"
    r"|(?<=www)\.",
    re.IGNORECASE,
)


def cell_text(text: str) -> str:
    """Return ``text`` on one line, displayed literally."""
    shown = cut(text)
    flat = html.escape(UNPRINTABLE.sub(" ", shown).strip(), quote=False)
    return _SPECIAL.sub(lambda match: f"&#{ord(match[0])};", flat)


def arguments_cell(arguments: str | None) -> str | None:
    """Return ``[8,4] bf16, [4] bf16`` as ``(8,4) bf16<br>(4,) bf16``; None without arguments."""
    if not arguments:
        return None
    return BREAK.join(cell_text(_as_tuple(part)) for part in arguments.split(", "))


def _as_tuple(argument: str) -> str:
    single = re.sub(r"\[(\d+)\]", r"(\1,)", argument)
    return re.sub(r"\[([\d,]*)\]", r"(\1)", single)


def kernels_cell(kernels: Sequence[Mapping[str, Any]], *, limit: int | None = None) -> str | None:
    """Return the names of kernels, numbered if there are several; None without kernels.

    ``limit`` cuts each name, and the list at KERNELS_SHOWN.
    """
    names = list(dict.fromkeys(str(kernel[C.name]) for kernel in kernels))
    shown = names if limit is None else [name[:limit] for name in names[:KERNELS_SHOWN]]
    if len(names) < 2:
        return cell_text(shown[0]) or None if shown else None
    numbered = [f"Kernel {i}: {cell_text(name)}" for i, name in enumerate(shown, start=1)]
    if len(shown) < len(names):
        numbered.append(f"and {len(names) - len(shown)} more")
    return BREAK.join(numbered)
