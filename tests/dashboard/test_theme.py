"""The theme file, and the locations of the dashboard's modules."""

import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from streamlit import config

from jarvis.charts import LIGHT, PALETTES, ink, text_colors
from jarvis.core.workspace import resource
from jarvis.dashboard import MAIN

READABLE = 4.5
"""The least contrast of text in WCAG AA."""

FADED = {"caption": 0.6, "header of a table": 0.7, "placeholder, value in a list": 0.7}
"""The share of the text color in texts that Streamlit fades; the others are on canvases or in
inputs, where axe does not see them."""

SETTINGS = tomllib.loads((resource(".streamlit") / "config.toml").read_text())


@pytest.mark.parametrize("name", ["light", "dark"])
def test_the_theme_has_the_colors_of_the_charts(name: str) -> None:
    theme, palette = SETTINGS["theme"][name], PALETTES[name]
    assert theme["primaryColor"] == palette.primary
    assert theme["backgroundColor"] == palette.background
    assert theme["secondaryBackgroundColor"] == palette.panel
    assert theme["textColor"] == palette.text
    assert theme["codeTextColor"] == palette.text
    assert theme["borderColor"] == palette.border
    assert tuple(theme["chartCategoricalColors"]) == palette.categorical


def _luminance(color: str) -> float:
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def mixed(color: str, share: float, background: str) -> str:
    """A color over a background, as ``#RRGGBB``."""
    pairs = (tuple(int(c[i : i + 2], 16) for c in (color, background)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(share * one + (1 - share) * two):02X}" for one, two in pairs)


@pytest.mark.parametrize("name", ["light", "dark"])
def test_colors_can_be_read_on_their_background(name: str) -> None:
    palette = PALETTES[name]
    assert contrast(palette.text, palette.background) > 7
    for background in (palette.background, palette.panel):
        assert contrast(palette.muted, background) >= READABLE
        assert contrast(palette.primary, background) >= READABLE  # buttons that are pointed at
        for share in FADED.values():
            assert contrast(mixed(palette.text, share, background), background) >= READABLE
    for color in (*palette.states[:3], palette.saving):
        assert contrast(color, palette.background) > 3


@pytest.mark.parametrize("name", ["light", "dark"])
def test_labels_can_be_read_on_every_color(name: str) -> None:
    """Of events in the timeline, and of boxes in the call tree."""
    palette = PALETTES[name]
    for color in (*palette.categorical, *palette.further, *palette.host, *palette.states):
        assert contrast(ink(color), color) >= READABLE, color
    for color in (palette.pale, palette.faint, palette.saving):
        assert contrast(ink(color), color) >= READABLE, color


def test_dark_bars_of_work_are_visible() -> None:
    palette = PALETTES["dark"]
    for color in (*palette.categorical, *palette.further, *palette.host):
        assert contrast(color, palette.background) > 3, color


@pytest.mark.parametrize("name", ["light", "dark"])
def test_texts_of_charts_can_be_read(name: str) -> None:
    palette = PALETTES[name]
    colors = [color for part in text_colors(palette).values() for color in part.values()]
    assert len(colors) == 4
    assert all(contrast(color, palette.background) >= READABLE for color in colors)


def test_the_highlighted_badge_is_readable() -> None:
    """The badge has white text in both themes."""
    badge = LIGHT.below_threshold
    assert contrast("#FFFFFF", badge) > 4.5
    assert all(contrast(badge, palette.background) > 3 for palette in PALETTES.values())


def test_streamlit_knows_every_setting() -> None:
    options = config.get_config_options()

    def keys(table: dict[str, object], prefix: str) -> list[str]:
        found = []
        for key, value in table.items():
            name = f"{prefix}{key}"
            found += keys(value, f"{name}.") if isinstance(value, dict) else [name]
        return found

    assert not [key for key in keys(SETTINGS, "") if key not in options]


def test_no_module_beside_the_main_script_hides_another_package() -> None:
    """Streamlit puts the script's folder first on ``sys.path``."""
    mine = {path.stem for path in MAIN.parent.glob("*.py")} - {"__init__"}
    assert not mine & (set(sys.stdlib_module_names) | set(packages_distributions()))
    assert not (MAIN.parent / "pages").exists()


@pytest.mark.parametrize("page", sorted(Path(resource("pages")).glob("*.py")), ids=lambda p: p.stem)
def test_pages_are_thin(page: Path) -> None:
    assert len(page.read_text().splitlines()) <= 40
