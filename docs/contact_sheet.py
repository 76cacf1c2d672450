"""Take screenshots of every page of the dashboard, light and dark, and arrange them on sheets.

python docs/contact_sheet.py [TRACE ...] [--widths 1280 1440 1920]

Writes a sheet for each theme and width, of the simulated sample and each TRACE, to docs/_build/.
The screenshots of the README are taken by docs/newcomer.py. Needs Chromium.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw
from playwright.sync_api import Browser, sync_playwright

from jarvis.analyses import load_analyses
from jarvis.server.ingest.intake import sample_trace
from tests import optional
from tests.browser.conftest import FLAGS, Server, settled

HERE = Path(__file__).parent
SHEETS = HERE / "_build"
THEMES = ("light", "dark")
HEIGHTS = {1280: 800, 1440: 900, 1920: 1080}
"""Height of the window for each width."""

MAX_HEIGHT = 3000
THUMBNAIL_WIDTH, COLUMNS, LABEL_HEIGHT, GAP = 720, 4, 34, 12


@dataclass(frozen=True)
class Shot:
    """A screenshot of one page."""

    page: str
    theme: str
    width: int
    image: Path


def page_paths() -> list[str]:
    """Return the URL paths of all pages: files of pages/ and analyses."""
    files = sorted(path.stem for path in (HERE.parent / "pages").glob("*.py"))
    return [*files, *load_analyses()]


def take_screenshots(
    browser: Browser, server: Server, analysis: str, width: int, out: Path
) -> Iterator[Shot]:
    """Take full-length screenshots of every page of an analysis in both themes."""
    height = HEIGHTS[width]
    for theme in THEMES:
        view = browser.new_page(
            viewport={"width": width, "height": height},
            color_scheme="dark" if theme == "dark" else "light",
        )
        for path in page_paths():
            view.set_viewport_size({"width": width, "height": height})
            view.goto(f"{server.url}/{path}?analysis={analysis}")
            settled(view)
            length = view.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
            view.set_viewport_size({"width": width, "height": min(max(length, height), MAX_HEIGHT)})
            settled(view)
            view.wait_for_timeout(400)  # charts fade in after the script has ended
            image = out / f"{path}-{theme}-{width}.png"
            view.screenshot(path=image)
            yield Shot(path, theme, width, image)
        view.close()


def contact_sheet(shots: list[Shot], out: Path) -> None:
    """Arrange the screenshots in rows of COLUMNS, labelled with their pages."""
    cells = []
    for shot in shots:
        picture = Image.open(shot.image).convert("RGB")
        scale = THUMBNAIL_WIDTH / picture.width
        cells.append((shot, picture.resize((THUMBNAIL_WIDTH, round(picture.height * scale)))))
    rows = [cells[first : first + COLUMNS] for first in range(0, len(cells), COLUMNS)]
    heights = [max(picture.height for _, picture in row) + LABEL_HEIGHT + GAP for row in rows]
    sheet = Image.new("RGB", (COLUMNS * (THUMBNAIL_WIDTH + GAP) + GAP, sum(heights) + GAP), "white")
    draw = ImageDraw.Draw(sheet)
    top = GAP
    for row, height in zip(rows, heights, strict=True):
        for column, (shot, picture) in enumerate(row):
            left = GAP + column * (THUMBNAIL_WIDTH + GAP)
            label = f"{shot.page} ({shot.theme}, {shot.width})"
            draw.text((left, top), label, fill="black", font_size=22)
            sheet.paste(picture, (left, top + LABEL_HEIGHT))
        top += height
    sheet.quantize(256).save(out, optimize=True)


def analyze(home: Path, trace: Path) -> str:
    """Analyze a trace into a home; return the id of the analysis."""
    command = [sys.executable, "-m", "jarvis.cli", "analyze", str(trace), "--id"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    newest = max((home / "analyses").iterdir(), key=lambda folder: folder.stat().st_mtime)
    return newest.name


def main() -> int:
    """Take the screenshots of the sample and the given traces."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", nargs="*", type=Path, help="traces in addition to the sample")
    parser.add_argument("--widths", nargs="+", type=int, choices=HEIGHTS, default=[1440])
    options = parser.parse_args()
    traces = [None, *options.traces]
    chromium = optional.browser_program()
    if chromium is None:
        sys.stderr.write("No screenshots were taken: chromium is not installed.\n")
        return 0
    SHEETS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        home = Path(folder)
        os.environ["JARVIS_HOME"] = str(home)
        ids = {trace: analyze(home, trace or sample_trace()) for trace in traces}
        server = Server(home)
        server.start()
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        for trace, analysis in ids.items():
            name = (
                "sample" if trace is None else trace.name.removesuffix(".gz").removesuffix(".json")
            )
            for width in options.widths:
                shots = list(take_screenshots(browser, server, analysis, width, home))
                for theme in THEMES:
                    out = SHEETS / f"{name}-{theme}-{width}.png"
                    contact_sheet([shot for shot in shots if shot.theme == theme], out)
                    sys.stdout.write(f"{out}\n")
        browser.close()
        server.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
