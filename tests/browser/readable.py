"""What a page has that not everybody can read: texts too faint for WCAG AA, parts without a name.

axe-core checks HTML. Texts of charts, whose background it does not know, are checked here. Texts
on a canvas (tables, the timeline) have the colors that tests/dashboard/test_theme.py checks.
"""

from collections.abc import Iterator
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.browser.conftest import settled

LEAST_CONTRAST = 4.5
RULES = (
    *("color-contrast", "aria-allowed-attr", "aria-hidden-focus", "aria-required-attr"),
    *("aria-roles", "aria-valid-attr", "aria-valid-attr-value", "button-name", "document-title"),
    *("duplicate-id-aria", "html-has-lang", "image-alt", "label", "link-name", "meta-viewport"),
    *("nested-interactive", "role-img-alt", "scrollable-region-focusable", "summary-name"),
    *("td-headers-attr", "th-has-data-cells"),
)
"""Rules of WCAG A and AA. Streamlit's menu breaks ``list`` and ``listitem`` by the headings in it,
and Vega's charts break ``svg-img-alt`` by the groups in them."""

OPTIONS = {
    "runOnly": {"type": "rule", "values": RULES},
    "resultTypes": ["violations", "incomplete"],
    # Also one letter, and a minus sign as the label of a button.
    "checks": {"color-contrast": {"options": {"ignoreLength": True, "ignoreUnicode": False}}},
}

SELECTOR_SHOWN = 160
"""So many characters at the end of a selector name the element."""

FAINT_IN_CHARTS = """(least) => {
    const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true})
    const rgba = color => {
        canvas.clearRect(0, 0, 1, 1)
        canvas.fillStyle = color
        canvas.fillRect(0, 0, 1, 1)
        const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data
        return [red, green, blue, alpha / 255]
    }
    const over = (below, [red, green, blue, alpha]) =>
        [red, green, blue].map((part, n) => alpha * part + (1 - alpha) * below[n])
    const luminance = color => color
        .map(part => part / 255)
        .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
        .reduce((sum, part, n) => sum + [0.2126, 0.7152, 0.0722][n] * part, 0)
    const hex = color => "#" + color.map(c => Math.round(c).toString(16).padStart(2, "0")).join("")
    const paint = element => {
        const style = getComputedStyle(element)
        if (style.fill === "none") return [0, 0, 0, 0]
        const color = rgba(style.fill)
        color[3] *= style.fillOpacity
        for (let up = element; up; up = up.parentElement) color[3] *= getComputedStyle(up).opacity
        return color
    }
    const ground = element => {
        const color = rgba(getComputedStyle(element).backgroundColor)
        return color[3] === 1 || !element.parentElement ? color : ground(element.parentElement)
    }
    const found = {count: 0, faint: []}
    for (const svg of document.querySelectorAll("svg")) {
        const below = ground(svg)
        const marks = []
        for (const element of svg.querySelectorAll("path, rect, text")) {
            if (element.closest("defs, clipPath") || !element.checkVisibility()) continue
            const color = paint(element)
            if (element.tagName !== "text") {
                if (color[3]) marks.push([element, color, element.getScreenCTM().inverse()])
                continue
            }
            const text = element.textContent.trim()
            if (!text || !color[3]) continue
            found.count += 1
            const box = element.getBoundingClientRect()
            for (const share of [0.1, 0.5, 0.9]) {
                const point = new DOMPoint(box.x + share * box.width, box.y + box.height / 2)
                const background = marks
                    .filter(([mark, , at]) => mark.isPointInFill(point.matrixTransform(at)))
                    .reduce((color, [, mark]) => over(color, mark), below.slice(0, 3))
                const shown = over(background, color)
                const [low, high] = [shown, background].map(luminance).sort((a, b) => a - b)
                const ratio = (high + 0.05) / (low + 0.05)
                if (ratio >= least) continue
                found.faint.push([text, hex(shown), hex(background), ratio])
                break
            }
        }
    }
    return found
}"""
"""The number of texts in charts, and the faint ones: text, color, background, contrast. A text lies
on the marks that were drawn before it at its start, middle or end."""

AT_REST = """() => document.getAnimations().every(
    animation => animation.playState !== "running" || animation.effect.getTiming().iterations > 9
)"""
"""Whether nothing is being faded in or moved."""

OPEN_ALL = """() => {
    const closed = [...document.querySelectorAll("details:not([open]) > summary")]
    closed.forEach(summary => summary.click())
    return closed.length
}"""


def open_details(page: Page) -> None:
    """Open everything that is folded."""
    while page.evaluate(OPEN_ALL):
        settled(page)


def problems_of(page: Page) -> list[str]:
    """Return what is wrong on a page, one line for each element: where, colors, contrast."""
    page.wait_for_function(AT_REST)
    answer = Axe().run(page, options=OPTIONS).response
    found = [line for kind in ("violations", "incomplete") for line in _lines(answer[kind])]
    in_charts = page.evaluate(FAINT_IN_CHARTS, LEAST_CONTRAST)
    for text, color, background, ratio in in_charts["faint"]:
        found.append(f"chart text {text!r}: {_contrast(color, background, ratio)}")
    return found


def _lines(results: list[dict[str, Any]]) -> Iterator[str]:
    for rule in results:
        for node in rule["nodes"]:
            checks = [*node["any"], *node["all"], *node["none"]]
            data = next((c["data"] for c in checks if isinstance(c["data"], dict)), {})
            if data.get("messageKey") == "imgNode" and node["html"].startswith("<text"):
                continue  # a text of a chart
            where = " ".join(str(part) for part in node["target"])[-SELECTOR_SHOWN:]
            if data.get("contrastRatio"):
                wanted = float(data["expectedContrastRatio"].removesuffix(":1"))
                said = _contrast(data["fgColor"], data["bgColor"], data["contrastRatio"], wanted)
            else:
                said = "; ".join(check["message"] for check in checks)
            yield f"{rule['id']}, {where}: {said} ({node['html'][:SELECTOR_SHOWN]})"


def _contrast(color: str, background: str, ratio: float, wanted: float = LEAST_CONTRAST) -> str:
    return f"{color} on {background} is {ratio:.2f}:1, not {wanted:g}:1"
