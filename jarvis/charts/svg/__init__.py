"""Charts as SVG text, for documents that are read without a server, a script or a network.

Colours are CSS variables named after the fields of ``Palette`` (``variables``), so that one drawing
follows the light and the dark theme of its reader and paper. Texts are escaped here.
"""

from jarvis.charts.svg.bars import category_bars, stacked_bar, waterfall_bars
from jarvis.charts.svg.marks import variables
from jarvis.charts.svg.roofline import roofline

__all__ = ["category_bars", "roofline", "stacked_bar", "variables", "waterfall_bars"]
