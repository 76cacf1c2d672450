"""Altair charts of data frames, independent of where they are shown."""

from jarvis.charts.bars import (
    bars,
    exposure,
    log_histogram,
    parts_of_time,
    scatter,
)
from jarvis.charts.icicle import icicle
from jarvis.charts.marks import (
    MAX_POINTS,
    MS_DECIMALS,
    Columns,
    Drawing,
    EncodedDrawing,
    bar_totals,
    columns_of,
    decimals_of,
    decimals_showing,
    drawing_of,
    in_readable_unit,
    is_point,
    largest,
    short_label,
    text_colors,
)
from jarvis.charts.palette import DARK, LIGHT, PALETTES, STATES, Palette, ink
from jarvis.charts.paths import NOW, SIMULATED, critical_paths
from jarvis.charts.rooflines import (
    PICKED,
    bandwidth_roofline,
    compute_roofline,
    roofline,
    rows_for_roofline,
    suits_intensity,
)
from jarvis.charts.row_names import with_short_names
from jarvis.charts.saving_bars import categories, savings, savings_height
from jarvis.charts.selection import outlined_bar, selectable
from jarvis.charts.stacked import MAX_COLUMNS, stacked_columns
from jarvis.charts.timeline import (
    PROJECTED,
    TimelineRow,
    state,
    timeline_chart,
)
from jarvis.charts.work_colors import (
    block_colors,
    category_color,
    host_colors,
    path_color,
    work_colors,
)

__all__ = [
    "DARK",
    "LIGHT",
    "MAX_COLUMNS",
    "MAX_POINTS",
    "MS_DECIMALS",
    "NOW",
    "PALETTES",
    "PICKED",
    "PROJECTED",
    "SIMULATED",
    "STATES",
    "Columns",
    "Drawing",
    "EncodedDrawing",
    "Palette",
    "TimelineRow",
    "bandwidth_roofline",
    "bar_totals",
    "bars",
    "block_colors",
    "categories",
    "category_color",
    "columns_of",
    "compute_roofline",
    "critical_paths",
    "decimals_of",
    "decimals_showing",
    "drawing_of",
    "exposure",
    "host_colors",
    "icicle",
    "in_readable_unit",
    "ink",
    "is_point",
    "largest",
    "log_histogram",
    "outlined_bar",
    "parts_of_time",
    "path_color",
    "roofline",
    "rows_for_roofline",
    "savings",
    "savings_height",
    "scatter",
    "selectable",
    "short_label",
    "stacked_columns",
    "state",
    "suits_intensity",
    "text_colors",
    "timeline_chart",
    "with_short_names",
    "work_colors",
]
