"""Every number of both reports of the recorded pairs, recomputed from the sheets of both runs."""

import csv
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from jarvis.text.format import MINUS
from tests.arithmetic.documents import cells_of
from tests.arithmetic.printed import masked, numbers
from tests.comparative.facts import Facts, places, wrong
from tests.comparative.recomputed import Recomputed

RAW_ROWS = 60


def report(pair: Recomputed, kind: str) -> str:
    path = pair.roots["mi300"] / f"comparative_analysis_{kind}.md"
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ["fair", "rough"])
def test_every_number(pair: Recomputed, kind: str) -> None:
    facts = Facts(pair)
    body, _, appendix = report(pair, kind).partition("\n## Appendix")
    assert set(facts.names) == pair.gaps
    problems = [text for place in places(body) for text in facts.problems(place)]
    assert not problems, "\n".join(problems)
    hardware = [p for p in places(appendix) if p.columns[-1:] == ("Expected time ratio",)]
    assert [text for place in hardware for text in facts.problems(place)] == []
    assert bool(hardware) is (kind == "fair")


CHANGES: dict[str, tuple[str, Callable[[re.Match[str]], str]]] = {
    "a time": (r"(?<=\| )\d+\.\d\d(?= ms \|)", lambda found: f"{float(found[0]) * 1.02:.2f}"),
    "a sign": (r"(?<=\| )\+(?=\d+\.\d%)", lambda _: MINUS),
    "a ratio": (r"(?<== )\d\.\d\d(?= per call)", lambda found: f"{float(found[0]) + 0.02:.2f}"),
    "a count": (r"(?<=\| Calls \| )\d+", lambda found: str(int(found[0]) + 1)),
    "a gap": (r"(?<=Target is )\d+\.\d", lambda found: f"{float(found[0]) + 0.2:.1f}"),
    "a saving": (r"(?<=\*\*Impact\*\*: about )[\d.]+", lambda found: f"{float(found[0]) * 2:.3g}"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_number_is_found(name: str, compared: Callable[[str], Recomputed]) -> None:
    pair = compared("qwen1.5-0.5b")
    pattern, change = CHANGES[name]
    kind = "rough" if name == "a ratio" else "fair"
    body = report(pair, kind).partition("\n## Appendix")[0]
    changed, count = re.subn(pattern, change, body, count=1)
    assert count == 1
    facts = Facts(pair)
    assert [text for place in places(changed) for text in facts.problems(place)]


def test_raw_tables_are_those_of_the_files(pair: Recomputed) -> None:
    raw = report(pair, "rough").partition("\n## Raw Data")[2].partition("\n## Methodology")[0]
    checked = 0
    for place in places(raw):
        if not place.columns:
            rows = len(file_rows(pair.roots["mi300"], place.heading))
            assert not wrong(place.text, [rows - RAW_ROWS])
        else:
            row = file_rows(pair.roots["mi300"], place.heading)[place.row]
            hidden = LEFT_OUT.get(place.heading, ())
            values = [value for name, value in row.items() if name not in hidden]
            for cell, value in zip(cells_of(place.text), values, strict=True):
                checked += is_number(value)
                if is_number(value):
                    assert not wrong(cell.lstrip(MINUS), [abs(float(value))]), (place.text, value)
                else:
                    assert (cell == "—") is (value == "")
    assert checked > 100


def test_categories_are_those_of_the_files(pair: Recomputed) -> None:
    rows = file_rows(pair.roots["mi300"], "comparison_categories")
    body = report(pair, "fair").partition("\n### Categories")[2].partition("\n## ")[0]
    reported = [place.cells for place in places(body) if place.columns]
    assert len(reported) == len(rows)
    for cells, row in zip(reported, rows, strict=True):
        assert cells["Category"] == row["title"]
        for label, name in (
            ("Reference", "reference_ms"),
            ("Target", "target_ms"),
            ("Not explained", "unexplained_ms"),
        ):
            assert not wrong(cells[label], [float(row[name])])
        assert not wrong(cells["Δ"], [float(row["difference_pct"])], signed=True)


LEFT_OUT = {
    "comparison_categories": ("title",),
    "comparison_lowering": ("input_dims", "input_types"),
}


def file_rows(root: Path, name: str) -> list[dict[str, str]]:
    path = root / "comparison_data" / f"{name}.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def is_number(value: str) -> bool:
    return re.fullmatch(r"-?\d+(?:\.\d+)?(?:e[+-]\d+)?", value) is not None


def test_masked_names_hide_no_numbers_of_ours() -> None:
    assert [n.text for n in numbers(masked("`k1` takes 3.10 ms"))] == ["3.10 ms"]
