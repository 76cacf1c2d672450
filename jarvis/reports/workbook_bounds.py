"""Check whether a workbook fits into memory before it is read.

Workbook readers allocate every cell between the first and the last one, and unpack each part
completely: a few KB can require hundreds of GB. This check streams the parts.
"""

import re
from pathlib import Path

from jarvis.core.unpacking import TooLargeError, chunks, open_archive, unpacked_member

MAX_UNPACKED_BYTES = 1 << 30
"""Maximum uncompressed size of a report, a workbook or a zip of CSV files: it is held in memory,
unlike a trace."""

MAX_CELLS = 50_000_000
"""Maximum area of a sheet, including empty cells; report sheets have a million at most."""

_MAX_TAG_LENGTH = 64
_PLACE = re.compile(rb"\br\s*=\s*[\"']([A-Za-z]{0,3})([0-9]{0,10})[\"']")
_ROW = re.compile(rb"<(?:\w{1,20}:)?row(?=[\s/>])")
_CELL = re.compile(rb"<(?:\w{1,20}:)?c(?=[\s/>])")


def check_workbook(path: Path, max_columns: int) -> None:
    """Raise TooLargeError if a part does not fit into memory, or the ``zipfile`` error of a damaged
    file."""
    left = MAX_UNPACKED_BYTES
    with open_archive(path) as archive:
        for member in archive.infolist():
            extent = _Extent()
            for piece in chunks(unpacked_member(archive, member, path.stat().st_size)):
                left -= len(piece)
                if left < 0:
                    raise TooLargeError(f"it unpacks to more than {MAX_UNPACKED_BYTES >> 30} GB")
                extent.add(piece)
                if extent.columns > max_columns or extent.rows * extent.columns > MAX_CELLS:
                    raise TooLargeError(
                        f"a sheet extends to row {extent.rows:,} and column {extent.columns:,}, "
                        "more than a report has"
                    )


class _Extent:
    """Rows and columns of a part of a workbook, from its text in pieces.

    A cell or row without a position follows the previous one, so they are also counted.
    """

    def __init__(self) -> None:
        self.rows = self.columns = 0
        self._counted_rows = self._cells_in_row = 0
        self._end_of_text = self._open_tag = b""

    def add(self, piece: bytes) -> None:
        """Process the next piece of the text."""
        self._add_places(self._end_of_text + piece)
        self._end_of_text = piece[-_MAX_TAG_LENGTH:]
        text = self._open_tag + piece
        begin = max(text.rfind(b"<"), len(text) - _MAX_TAG_LENGTH)
        self._open_tag = text[begin:]
        self._count(text[:begin])

    def _add_places(self, text: bytes) -> None:
        places = set(_PLACE.findall(text))
        letters = {column for column, _ in places}
        self.rows = max([self.rows, *(int(row or 0) for _, row in places)])
        self.columns = max([self.columns, *map(_column, letters)])

    def _count(self, text: bytes) -> None:
        rest, *rows = _ROW.split(text)
        if self._counted_rows:  # other parts of a workbook list cells without rows
            self._cells_in_row += len(_CELL.findall(rest))
            self.columns = max(self.columns, self._cells_in_row)
        for row in rows:
            self._cells_in_row = len(_CELL.findall(row))
            self.columns = max(self.columns, self._cells_in_row)
        self._counted_rows += len(rows)
        self.rows = max(self.rows, self._counted_rows)


def _column(letters: bytes) -> int:
    from openpyxl.utils import column_index_from_string  # openpyxl loads everything

    return column_index_from_string(letters.decode()) if letters else 0
