"""Rows of a table by their uid."""

from collections.abc import Iterable

import polars as pl

from jarvis.schemas.names import C


class RowsByUid:
    """Finds rows for each of many findings, without a query for each."""

    def __init__(self, rows: pl.DataFrame) -> None:
        self._rows = rows
        self._places: dict[int, list[int]] = {}
        for place, uid in enumerate(rows[C.uid]):
            self._places.setdefault(uid, []).append(place)

    def of(self, uids: Iterable[int]) -> pl.DataFrame:
        """Return the rows with these uids, in the order of the table."""
        places = sorted({place for uid in uids for place in self._places.get(uid, ())})
        return self._rows[pl.Series(places, dtype=pl.UInt32)]
