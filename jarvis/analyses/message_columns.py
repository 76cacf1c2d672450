"""Messages as a column of rows, for advice that has row values."""

import polars as pl

from jarvis.text.messages import MessageTable


def message_column(table: MessageTable, key: pl.Expr, *columns: str) -> pl.Expr:
    """Return a column of messages with the values of these columns.

    ``key`` gives the key in the table; its template need not use all of the values. Each cell is
    input for ``Message``.
    """
    identifier = pl.concat_str(pl.lit(f"{table.name}."), key).alias("id")
    values = [pl.struct(columns).alias("values")] if columns else []
    return pl.struct(identifier, *values)
