"""Charts as SVG: marks have the positions of their numbers, and text is escaped."""

import re
import subprocess
from xml.etree import ElementTree

import altair as alt
import polars as pl
import pytest

from jarvis import charts
from jarvis.analyses.operations import DETAILS
from jarvis.charts import svg
from jarvis.charts.svg import CSS, Chart, ChartError, to_svg, variables
from jarvis.charts.waterfall import NOW, PROJECTED, SAVING, waterfall
from jarvis.schemas import TABLES
from jarvis.text.format import UNPRINTABLE

COLUMNS = charts.columns_of(TABLES["operations"], DETAILS, charts.PROJECTED)
ATTRIBUTES = {"role", "aria-label", "viewBox", "transform", "d", "id", "clip-path", "text-anchor"}
ATTRIBUTES |= {"x", "y", "x2", "y2", "width", "height", "font-size", "font-weight", "opacity"}
ATTRIBUTES |= {"fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray"}
BAR = re.compile(r"M([\d.]+),[\d.]+h([\d.]+)v[\d.]+h-[\d.]+Z")


def image(chart: Chart, label: str = "a chart") -> ElementTree.Element:
    (text,) = to_svg([(chart, label)])
    return ElementTree.fromstring(text)


def marks(root: ElementTree.Element, tag: str = "path") -> dict[tuple[str, str], dict[str, str]]:
    """Return the attributes of each mark by color and title."""
    titled = ((mark, mark.find("title")) for mark in root.iter(tag))
    return {
        (mark.get("fill", ""), title.text or ""): mark.attrib
        for mark, title in titled
        if title is not None
    }


def bars(root: ElementTree.Element, color: str) -> dict[str, tuple[float, float]]:
    """Return left edge and width of the bars of a color, by the first line of their titles."""
    found = {}
    for (fill, title), attributes in marks(root).items():
        if fill == color and (at := BAR.fullmatch(attributes["d"])):
            found[title.partition(" · ")[0]] = float(at[1]), float(at[2])
    return found


def category_rows(**changes: list[object]) -> pl.DataFrame:
    data: dict[str, list[object]] = {
        "title": ["A", "B"],
        "gpu_time_ms": [8.0, 4.0],
        "saved_ms": [2.0, None],
    }
    return pl.DataFrame(data | changes, strict=False)


def test_parts_of_a_bar_are_as_wide_as_their_time() -> None:
    parts = pl.DataFrame({"part": ["a", "<b>"], "time_ms": [3.0, 1.0], "percent": [75.0, 25.0]})
    root = image(charts.parts_of_time(parts, CSS), 'a & "b"')
    ((left, long),) = bars(root, CSS.categorical[0]).values()
    ((right, short),) = bars(root, CSS.categorical[1]).values()
    assert long == pytest.approx(3 * short, abs=0.1)
    assert right == pytest.approx(left + long, abs=0.1)
    assert root.get("aria-label") == 'a & "b"'
    assert "Part: <b> · Time (ms): 1.000 · %: 25.00" in [title for _, title in marks(root)]


def test_the_saving_of_a_category_covers_its_share_of_the_bar() -> None:
    root = image(charts.categories(category_rows(), COLUMNS, CSS))
    whole = bars(root, CSS.pale)
    saved = bars(root, CSS.saving)
    assert whole["Category: B"][1] == pytest.approx(whole["Category: A"][1] / 2, abs=0.1)
    assert saved["Category: A"][1] == pytest.approx(whole["Category: A"][1] / 4, abs=0.1)
    assert saved["Category: A"][0] == whole["Category: A"][0]


def test_a_separate_text_follows_the_bar_of_a_category() -> None:
    texts = ["8 ms, saving 2 ms", "4 ms"]
    root = image(charts.categories(category_rows(text=texts), COLUMNS, CSS))
    assert set(texts) <= {words for text in root.iter("text") for words in text.itertext()}


def test_a_saving_ends_where_the_bar_above_begins() -> None:
    rows = pl.DataFrame(
        {
            "label": ["Now", "P1", "Left"],
            "finding": ["now", "<i>", "left"],
            "kind": [NOW, SAVING, PROJECTED],
            "low_ms": [0.0, 6.0, 0.0],
            "high_ms": [10.0, 10.0, 6.0],
            "text": ["10 ms", "-4 ms", "6 ms"],
        }
    )
    root = image(waterfall(rows, CSS))
    now, saved, left = (
        bars(root, color)[f"Step: {what}"]
        for color, what in ((CSS.muted, "now"), (CSS.saving, "<i>"), (CSS.primary, "left"))
    )
    assert sum(saved) == pytest.approx(sum(now), abs=0.1)
    assert saved[0] == pytest.approx(sum(left), abs=0.1)


def operations() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "uid": [1],
            "name": ["aten::mm"],
            "arguments": [None],
            "operation_count": [1],
            "kernel_time_us": [5.0],
            "flops_per_byte": [1e4],
            "bytes": [100.0],
            "tflops_per_s": [100.0],
            "tb_per_s": [0.1],
            "pct_roofline": [100.0],
            "bound": ["compute"],
            "compute": ["matrix_bf16"],
            "peak_tflops": [100.0],
            "peak_tb_per_s": [2.0],
            "state": ["on target"],
        },
        schema_overrides={"arguments": pl.String},
    )


def test_a_point_at_the_peak_lies_on_its_ceiling() -> None:
    drawing = charts.roofline(operations(), COLUMNS, 80.0, CSS)
    assert drawing is not None
    root = image(drawing)
    (((_, title), point),) = marks(root).items()
    assert " · State: on target" in title
    assert "Arguments" not in title  # it has no value
    height = re.fullmatch(r"translate\(\S+?,(\S+)\)", point["transform"])
    assert height
    lines = [path.get("d", "") for path in root.iter("path") if path.get("stroke") == CSS.muted]
    ends = {line.rpartition(",")[2] for line in lines}
    assert len(ends) == 2  # the peak and the target
    assert min(map(float, ends)) == pytest.approx(float(height[1]), abs=0.1)


HOSTILE = (
    "<script>alert(1)</script>]]>-->&lt;\"'",
    "a\x00\x07\x1b[31m\r\n\tb",
    "\ufffe\uffff\ufdd0",
    "\N{GRINNING FACE}" * 60,  # two code units each, cut where the axis ends
    "\u202egnp.exe\u200b",
    "e\u0301" * 200,
    "x" * 5000,
    "",
)


def test_text_is_escaped() -> None:
    drawn = [
        (charts.categories(category_rows(title=[text, "B"], text=[text, "b"]), COLUMNS, CSS), text)
        for text in HOSTILE
    ]
    for text, markup in zip(HOSTILE, to_svg(drawn), strict=True):
        root = ElementTree.fromstring(markup)
        tags = {part.tag for part in root.iter()}
        assert tags <= {"svg", "g", "path", "rect", "text", "line", "title", "defs", "clipPath"}
        assert {name for part in root.iter() for name in part.attrib} <= ATTRIBUTES
        if text.isprintable() and text.isascii():
            assert any(text in title for _, title in marks(root))
        assert not UNPRINTABLE.search(markup)


def test_missing_numbers_have_no_bar() -> None:
    rows = category_rows(gpu_time_ms=[8.0, float("nan")], saved_ms=[float("inf"), None])
    root = image(charts.categories(rows, COLUMNS, CSS))
    assert [name for name, (_, width) in bars(root, CSS.pale).items() if width] == ["Category: A"]


def test_charts_of_one_document_share_no_id_and_are_the_same_each_time() -> None:
    drawing = charts.roofline(operations(), COLUMNS, 80.0, CSS)
    assert drawing is not None
    first, second = to_svg([(drawing, "a"), (drawing, "a")])
    ids = [re.findall(r'id="([^"]+)"', text) for text in (first, second)]
    assert ids[0]
    assert not set(ids[0]) & set(ids[1])
    for text, own in zip((first, second), ids, strict=True):
        assert set(re.findall(r"url\(#([^)]+)\)", text)) == set(own)
    assert to_svg([(drawing, "a")]) == [first]


def test_no_chart_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", None)
    assert to_svg([]) == []


@pytest.mark.parametrize(
    ("program", "message"),
    [("import os; os.abort()", "exit status -6"), ("raise ValueError('no such mark')", "no such")],
)
def test_a_failing_renderer_gives_a_message(
    monkeypatch: pytest.MonkeyPatch, program: str, message: str
) -> None:
    monkeypatch.setattr(svg, "_PROGRAM", program)
    with pytest.raises(ChartError, match=message):
        to_svg([(charts.categories(category_rows(), COLUMNS, CSS), "a")])


def test_a_hanging_renderer_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svg, "_PROGRAM", "import time; time.sleep(3600)")
    monkeypatch.setattr(svg, "TIMEOUT_S", 0.01)
    with pytest.raises(ChartError, match="no result"):
        to_svg([(charts.categories(category_rows(), COLUMNS, CSS), "a")])


def test_a_chart_that_cannot_be_rendered_gives_a_message() -> None:
    chart = alt.Chart(category_rows()).mark_bar().transform_calculate(x="no_function()")
    with pytest.raises(ChartError, match="could not be drawn"):
        to_svg([(chart, "a")])


def test_every_color_of_both_themes_is_a_variable() -> None:
    declared = [set(re.findall("--[a-z0-9-]+", variables(p))) for p in charts.PALETTES.values()]
    assert declared[0] == declared[1]
    used = {CSS.primary, CSS.below_threshold, CSS.pale, *CSS.states, *CSS.categorical}
    assert {color.removeprefix("var(").removesuffix(")") for color in used} <= declared[0]
    assert f":{charts.DARK.below_threshold};" in variables(charts.DARK)
