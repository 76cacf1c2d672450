"""Texts of a trace in CSV files: a spreadsheet program would run one that looks like a formula.

Such a text gets an apostrophe in front, which these programs take as "this is text"; reading takes
it away again. All other texts, and all that recordings are known to hold, stay as they are.
"""

import re

import polars as pl

_NUMBER = r"[+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?"
_FORMULA = r"^'*\s*[=+\-@＝＋－＠]"  # noqa: RUF001 - some programs take the wide ones too
_RISKY, _PLAIN = re.compile(_FORMULA), re.compile(_NUMBER)
_GUARDED = "^'(" + _FORMULA.removeprefix("^") + ")"


def guarded(text: str) -> str:
    """``text`` as a CSV file can hold it without becoming a formula."""
    is_formula = _RISKY.match(text) and not _PLAIN.fullmatch(text)
    return f"'{text}" if is_formula else text


def guarded_columns(frame: pl.DataFrame) -> pl.DataFrame:
    """A table with its texts and its labels guarded."""
    text = pl.col(pl.String)
    is_formula = text.str.contains(_FORMULA) & ~text.str.contains(f"^{_NUMBER}$")
    rows = frame.with_columns(pl.when(is_formula).then("'" + text).otherwise(text).name.keep())
    return rows.rename({name: guarded(name) for name in rows.columns})


def unguarded_columns(frame: pl.DataFrame) -> pl.DataFrame:
    """The texts and labels that were guarded."""
    rows = frame.with_columns(pl.col(pl.String).str.replace(_GUARDED, "${1}"))
    return rows.rename({name: re.sub(_GUARDED, r"\1", name) for name in rows.columns})
