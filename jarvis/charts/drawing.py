"""Charts split into a cached Vega-Lite specification and its data.

The specification does not change while only numbers change, for example when a slider moves. The
server then reuses the cached one, and the browser only loads the new data.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import altair as alt
import polars as pl

Specification = Mapping[str, Any]
"""Vega-Lite without data. Shared between sessions: do not modify."""

MAX_CACHED_SPECS = 256
"""Cache size for one kind of chart (pages, filters and themes in use)."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A specification and its data frames by name."""

    spec: Specification
    datasets: Mapping[str, pl.DataFrame]

    @property
    def is_empty(self) -> bool:
        """Whether no frame has a row."""
        return all(frame.is_empty() for frame in self.datasets.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the chart as Vega-Lite, including its data."""
        return {**self.spec, "datasets": {name: f.to_dicts() for name, f in self.datasets.items()}}


MANY_MARKS = 200
"""From this number of marks on, charts are rendered on a canvas, which is faster than SVG."""


def specification(
    chart: alt.Chart | alt.LayerChart, *, has_many_marks: bool = False
) -> Specification:
    """Return the Vega-Lite of a chart whose data are ``alt.NamedData``.

    It is not validated, which would take most of a chart's time; the tests validate it.
    """
    spec: dict[str, Any] = chart.to_dict(validate=False)
    # Altair's theme sets sizes here, but not while another session's chart has the theme disabled
    # for the whole process.
    spec.pop("config", None)
    if has_many_marks:
        spec["usermeta"] = {"embedOptions": {"renderer": "canvas"}}
    return spec
