"""Shaded cells of a table."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from pandas.io.formats.style import Styler

Css = Mapping[str, str]
"""Properties of a cell's style and their values; none for a plain cell."""


def shaded(frame: pd.DataFrame, column: str, styles: Sequence[Css]) -> Styler:
    """The frame with a style for each cell of one column, as ``st.dataframe`` takes it.

    pandas would first describe every cell of the frame in HTML, of which Streamlit reads nothing
    but the styles, and Streamlit would send every cell once more as a text, which the browser shows
    only where a column has no format: most of the time that a page of a table takes.
    """
    place = frame.columns.get_loc(column)
    cells: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for row, style in enumerate(styles):
        if style:
            cells.setdefault(tuple(style.items()), []).append(f"row{row}_col{place}")
    described = {
        "cellstyle": [{"props": list(css), "selectors": names} for css, names in cells.items()]
    }
    untold = pd.DataFrame(np.full(frame.shape, None, object), frame.index, frame.columns)
    sent = frame.copy(deep=False)
    object.__setattr__(sent, "astype", lambda *_: untold)
    styler = Styler(sent, uuid="shaded", cell_ids=False)
    object.__setattr__(styler, "_translate", lambda *_: described)
    return styler
