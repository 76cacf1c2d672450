"""A chart in two parts: what is drawn, and the data by name.

The first part stays the same while only numbers change, as when a slider moves. The server then
finds it already made, and the browser, which got it before, only takes the data in.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import altair as alt
import polars as pl

Specification = Mapping[str, Any]
"""Vega-Lite without data; it is shared, so nobody may change it."""

KEPT_SPECIFICATIONS = 256
"""How many of one kind are kept, for as many pages, filters and themes in use."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A specification, and the frames that it names."""

    spec: Specification
    datasets: Mapping[str, pl.DataFrame]

    @property
    def is_empty(self) -> bool:
        """Whether no frame has a row, so that there is nothing to see."""
        return all(frame.is_empty() for frame in self.datasets.values())

    def to_dict(self) -> dict[str, Any]:
        """The whole chart as Vega-Lite, its data inside."""
        return {**self.spec, "datasets": {name: f.to_dicts() for name, f in self.datasets.items()}}


MANY_MARKS = 200
"""From so many on, marks are painted on a canvas: as nodes of the page they take longer."""


def specification(
    chart: alt.Chart | alt.LayerChart, *, has_many_marks: bool = False
) -> Specification:
    """Vega-Lite of a chart whose data are ``alt.NamedData``.

    It is not validated, which takes most of a chart's time; the tests do that.
    """
    spec: dict[str, Any] = chart.to_dict(validate=False)
    # Sizes of Altair's own theme; none while another session draws, which switches the theme off
    # for all of them.
    spec.pop("config", None)
    if has_many_marks:
        spec["usermeta"] = {"embedOptions": {"renderer": "canvas"}}
    return spec
