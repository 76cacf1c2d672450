"""What a page has that not everybody can read: texts too faint for WCAG AA, parts without a name.

axe-core checks HTML. Texts whose background it does not know, those of charts and below the
margins of other elements, are checked here. Texts on a canvas (tables, the timeline) have the
colors that tests/dashboard/test_theme.py checks.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page

from tests.browser.conftest import settled

LEAST_CONTRAST = 4.5
CONTRAST = "color-contrast"
RULES = (
    *(CONTRAST, "aria-allowed-attr", "aria-hidden-focus", "aria-required-attr"),
    *("aria-roles", "aria-valid-attr", "aria-valid-attr-value", "button-name", "document-title"),
    *("duplicate-id-aria", "html-has-lang", "image-alt", "label", "link-name", "meta-viewport"),
    *("nested-interactive", "role-img-alt", "scrollable-region-focusable", "summary-name"),
    *("td-headers-attr", "th-has-data-cells"),
)
"""Rules of WCAG A and AA. Streamlit's menu breaks ``list`` and ``listitem`` by the headings in it,
and Vega's charts break ``svg-img-alt`` by the groups in them."""

OPTIONS = {
    "resultTypes": ["violations", "incomplete"],
    # Also one letter, and a minus sign as the label of a button.
    "checks": {CONTRAST: {"options": {"ignoreLength": True, "ignoreUnicode": False}}},
}

IMAGE, OVERLAPPED = "imgNode", ("bgOverlap", "elmPartiallyObscured")
"""Why axe leaves a text out: it is part of a drawing, or another element reaches over it, such as
the edge of a list that is scrolled."""

SELECTOR_SHOWN = 160
"""So many characters at the end of a selector name the element."""

FAINT_TEXTS = """([least, overlapped]) => {
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
    const paint = (element, isDrawn) => {
        const style = getComputedStyle(element)
        if (isDrawn && style.fill === "none") return [0, 0, 0, 0]
        const color = rgba(isDrawn ? style.fill : style.color)
        if (isDrawn) color[3] *= style.fillOpacity
        for (let up = element; up; up = up.parentElement) color[3] *= getComputedStyle(up).opacity
        return color
    }
    const ground = element => {
        const color = rgba(getComputedStyle(element).backgroundColor)
        return color[3] === 1 || !element.parentElement ? color : ground(element.parentElement)
    }
    const faint = []
    const note = (name, color, background) => {
        const shown = over(background, color)
        const [low, high] = [shown, background].map(luminance).sort((a, b) => a - b)
        const ratio = (high + 0.05) / (low + 0.05)
        if (ratio < least) faint.push([name, hex(shown), hex(background), ratio])
        return ratio < least
    }
    for (const selector of overlapped) {
        const element = document.querySelector(selector)
        if (!element) continue // a part that is polled was replaced since
        note(selector, paint(element, false), ground(element).slice(0, 3))
    }
    for (const svg of document.querySelectorAll("svg")) {
        const below = ground(svg)
        const marks = []
        for (const element of svg.querySelectorAll("path, rect, text")) {
            if (element.closest("defs, clipPath") || !element.checkVisibility()) continue
            const color = paint(element, true)
            if (element.tagName !== "text") {
                if (color[3]) marks.push([element, color, element.getScreenCTM().inverse()])
                continue
            }
            const text = element.textContent.trim()
            if (!text || !color[3]) continue
            const box = element.getBoundingClientRect()
            for (const share of [0.1, 0.5, 0.9]) {
                const point = new DOMPoint(box.x + share * box.width, box.y + box.height / 2)
                const background = marks
                    .filter(([mark, , at]) => mark.isPointInFill(point.matrixTransform(at)))
                    .reduce((color, [, mark]) => over(color, mark), below.slice(0, 3))
                if (note(`chart text "${text}"`, color, background)) break
            }
        }
    }
    return faint
}"""
"""Faint texts: name, color, background, contrast. A text of a chart lies on the marks drawn before
it at its start, middle or end, one of the overlapped elements on the nearest background."""

CHART_TEXTS = ("<text", "<tspan")
"""Texts of charts, and their lines, which have the color of the text; FAINT_TEXTS checks them."""

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


def problems_of(page: Page, rules: Sequence[str] = RULES) -> list[str]:
    """Return what is wrong on a page, one line for each element: where, colors, contrast."""
    page.wait_for_function(AT_REST)
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    only = {"runOnly": {"type": "rule", "values": rules}}
    answer = page.evaluate("options => axe.run(options)", OPTIONS | only)
    found = [line for kind in ("violations", "incomplete") for line in _lines(answer[kind])]
    overlapped = [
        node["target"][0]
        for rule in answer["incomplete"]
        for node in rule["nodes"]
        if _message(node) in OVERLAPPED
    ]
    faint = page.evaluate(FAINT_TEXTS, [LEAST_CONTRAST, overlapped])
    for name, color, background, ratio in faint:
        found.append(f"{name[-SELECTOR_SHOWN:]}: {_contrast(color, background, ratio)}")
    return found


def _checks(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [*node["any"], *node["all"], *node["none"]]


def _data(node: dict[str, Any]) -> dict[str, Any]:
    return next((c["data"] for c in _checks(node) if isinstance(c["data"], dict)), {})


def _message(node: dict[str, Any]) -> str | None:
    return _data(node).get("messageKey")


def _lines(results: list[dict[str, Any]]) -> Iterator[str]:
    for rule in results:
        for node in rule["nodes"]:
            is_in_chart = _message(node) == IMAGE and node["html"].startswith(CHART_TEXTS)
            if is_in_chart or _message(node) in OVERLAPPED:
                continue
            checks, data = _checks(node), _data(node)
            where = " ".join(str(part) for part in node["target"])[-SELECTOR_SHOWN:]
            if data.get("contrastRatio"):
                wanted = float(data["expectedContrastRatio"].removesuffix(":1"))
                output = _contrast(data["fgColor"], data["bgColor"], data["contrastRatio"], wanted)
            else:
                output = "; ".join(check["message"] for check in checks)
            yield f"{rule['id']}, {where}: {output} ({node['html'][:SELECTOR_SHOWN]})"


def _contrast(color: str, background: str, ratio: float, wanted: float = LEAST_CONTRAST) -> str:
    return f"{color} on {background} is {ratio:.2f}:1, not {wanted:g}:1"
