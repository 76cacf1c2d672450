"""Colors of the light and dark themes, and the efficiency states.

The colors are distinguishable with any color vision and are never the only cue: states also have a
shape and a text. ``.streamlit/config.toml`` repeats some of the colors; a test compares them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

BELOW_THRESHOLD = "below threshold"
BELOW_TARGET = "below target"
ON_TARGET = "on target"
ABOVE_PEAK = "above the peak: verify"
NOT_AVAILABLE = "not available"
STATES = (BELOW_THRESHOLD, BELOW_TARGET, ON_TARGET, ABOVE_PEAK, NOT_AVAILABLE)
"""Efficiency states relative to the highlight threshold, the target and the peak."""

_BRIGHT = 0.179
"""Relative luminance (WCAG 2.2) above which black text has more contrast than white text."""

STATE_SHAPES = ("triangle-down", "diamond", "circle", "cross", "square")


@dataclass(frozen=True, slots=True)
class Palette:
    """The colors of a theme.

    ``categorical`` in the order of use, ``further`` where it is used up, and paler ones for kinds
    of ``host`` calls.
    """

    primary: str
    background: str
    panel: str
    text: str
    muted: str
    border: str
    faint: str
    below_threshold: str
    below_target: str
    saving: str
    pale: str
    categorical: tuple[str, ...]
    further: tuple[str, ...]
    host: tuple[str, ...]

    @property
    def states(self) -> tuple[str, ...]:
        """Colors in the order of STATES."""
        above_peak = self.categorical[3]
        return self.below_threshold, self.below_target, self.primary, above_peak, self.muted


LIGHT = Palette(
    primary="#0072B2",
    background="#FFFFFF",
    panel="#F4F6F8",
    text="#12161A",
    muted="#5B6472",
    border="#D0D5DB",
    faint="#AEB6C1",
    below_threshold="#B03A00",
    below_target="#C98500",
    saving="#009E73",
    pale="#BBD9EA",
    categorical=(
        *("#0072B2", "#E69F00", "#009E73", "#CC79A7"),
        *("#56B4E9", "#D55E00", "#F0E442", "#6B7280"),
    ),
    further=("#7B5EA7", "#8C564B", "#1B9AAA", "#8A8A2B", "#F2B95A"),
    host=("#E8A07C", "#9FB89A", "#CFC4E4", "#E6D9B8"),
)
DARK = Palette(
    primary="#56B4E9",
    background="#0F1419",
    panel="#1A2129",
    text="#E6E9ED",
    muted="#9AA5B1",
    border="#39424D",
    faint="#56616E",
    below_threshold="#E8743B",
    below_target="#F2CC5C",
    saving="#009E73",
    pale="#3A6A8A",
    categorical=(
        *("#2F86C9", "#E69F00", "#009E73", "#CC79A7"),
        *("#8CCBF0", "#D55E00", "#F0E442", "#9AA5B1"),
    ),
    further=("#A48AD0", "#B9837A", "#3BC4D4", "#B5B55A", "#F2B95A"),
    host=("#B5653D", "#5F7F5A", "#6F649A", "#6E6244"),
)
PALETTES: Mapping[str, Palette] = {"light": LIGHT, "dark": DARK}


def ink(color: str) -> str:
    """Return the text color (black or white) with more contrast on a color such as `#0072B2`."""
    channels = (int(color[n : n + 2], 16) / 255 for n in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if luminance > _BRIGHT else "#FFFFFF"
