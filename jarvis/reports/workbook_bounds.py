"""Whether a workbook fits into memory, found out before anything reads it as a whole.

A reader of workbooks makes room for every cell between the first and the last one, and unpacks
each part whole: some KB can ask for hundreds of GB. Here the parts are passed over in pieces.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from jarvis.unpacking import TooLargeError, Unpacked, open_archive, pieces, unpacked_member

MAX_UNPACKED_BYTES = 1 << 30
"""What all parts of a workbook may hold together."""

MAX_CELLS = 50_000_000
"""The area of a sheet, empty cells included; a sheet of a report has a million at most."""

_LONGEST_PLACE = 64
_PLACE = re.compile(rb"\br\s*=\s*[\"']([A-Za-z]{0,3})([0-9]{0,10})[\"']")


def check_workbook(path: Path, max_columns: int) -> None:
    """Raises TooLargeError where a part of a workbook cannot be held, and what ``zipfile`` raises
    where it is damaged."""
    left = MAX_UNPACKED_BYTES
    with open_archive(path) as archive:
        for member in archive.infolist():
            rows = columns = 0
            for piece in _overlapping(unpacked_member(archive, member, path.stat().st_size)):
                left -= len(piece)
                if left < 0:
                    raise TooLargeError(f"it unpacks to more than {MAX_UNPACKED_BYTES >> 30} GB")
                places = set(_PLACE.findall(piece))
                letters = {column for column, _ in places}
                rows = max([rows, *(int(row or 0) for _, row in places)])
                columns = max([columns, *map(_column, letters)])
            if columns > max_columns or rows * columns > MAX_CELLS:
                raise TooLargeError(
                    f"a sheet reaches to row {rows:,} and column {columns:,}, farther than that of "
                    "a report"
                )


def _overlapping(text: Unpacked) -> Iterator[bytes]:
    """The text piece by piece; each begins with the end of the one before, which may be a place."""
    kept = b""
    for piece in pieces(text):
        yield kept + piece
        kept = piece[-_LONGEST_PLACE:]


def _column(letters: bytes) -> int:
    from openpyxl.utils import column_index_from_string  # loads all of it

    return column_index_from_string(letters.decode()) if letters else 0
