"""The search behind the keyboard shortcuts: what it finds, and where its links lead."""

import json
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import polars as pl
import pytest
from streamlit.testing.v1 import AppTest

from jarvis.core.request import Targets
from jarvis.dashboard.session.state import Opened
from jarvis.dashboard.widgets import search
from jarvis.dashboard.widgets.keyboard import COMPONENT
from jarvis.dashboard.widgets.search import MAX_OF_KIND, find
from jarvis.pipeline import at_targets
from jarvis.reports.ranking import recommendations
from jarvis.run import Run
from jarvis.server.storage.catalog import Catalog, read_catalog
from jarvis.text.messages import to_text
from tests.dashboard.conftest import Draw

MANY_ROWS = 20_000


def answered(page: AppTest) -> dict[str, Any]:
    """Return the data of the search."""
    components = (each.proto for each in page.sidebar.get("bidi_component"))
    (keyboard,) = (proto for proto in components if proto.component_name == COMPONENT)
    data: dict[str, Any] = json.loads(keyboard.json)
    return data


def asked(page: AppTest, query: str, *, is_findings: bool = False) -> list[dict[str, str]]:
    """Return the results of a query that the browser sends."""
    page.session_state["_keyboard_asked"] = {"query": query, "is_findings": is_findings}
    data = answered(page.run())
    assert (data["query"], data["is_findings"]) == (query, is_findings)
    results: list[dict[str, str]] = data["results"]
    return results


def of_kind(results: list[dict[str, str]], kind: str) -> list[dict[str, str]]:
    return [result for result in results if result["kind"] == kind]


def test_pages_operations_kernels_and_runs_are_found(
    registered: Draw, sample_run: Run, sample_id: str
) -> None:
    page = registered("gemm")
    assert of_kind(asked(page, "gemm"), "Page")[0]["href"] == f"gemm?analysis={sample_id}"
    longest = sample_run.category_operations("gemm").row(0, named=True)
    operations = of_kind(asked(page, longest["name"]), "Operation")
    assert f"gemm?analysis={sample_id}&gemm_op={longest['uid']}" in [o["href"] for o in operations]
    assert "\N{MULTIPLICATION SIGN}" in operations[0]["text"]
    assert not any("((" in operation["text"] for operation in operations)
    kernel = longest["kernels"][0]["name"]
    assert any(kernel.startswith(k["text"][:40]) for k in of_kind(asked(page, kernel), "Kernel"))
    runs = of_kind(asked(page, f"sample model {sample_id}"), "Run")
    assert [run["href"] for run in runs] == [f"overview?analysis={sample_id}"]
    assert asked(page, "no such thing anywhere") == []


def test_a_finding_opens_with_its_card(registered: Draw, sample_run: Run) -> None:
    item = next(
        item
        for item in recommendations(sample_run)
        if item.result.tier == "compute"
        and item.finding.operations
        and item.result.findings.index(item.finding)
    )
    title = to_text(item.finding.title).replace("`", "")
    results = of_kind(asked(registered("gemm"), f"{item.label} {title}"), "Finding")
    url = urlsplit(next(f["href"] for f in results if f["text"].startswith(f"{item.label} ")))
    page = registered(url.path, **dict(parse_qsl(url.query)))
    assert not page.warning
    number = item.result.findings.index(item.finding)
    assert page.query_params[f"{url.path}_finding"] == str(number + 1)
    assert [card.proto.expanded for card in page.expander if title in card.label.replace("`", "")]


def test_all_findings_come_in_their_order(registered: Draw, sample_run: Run) -> None:
    results = asked(registered("gemm"), "", is_findings=True)
    labels = [result["text"].partition(" ")[0] for result in results]
    assert labels == [item.label for item in recommendations(sample_run)]


def test_findings_are_those_at_the_target(registered: Draw, sample_run: Run) -> None:
    items = recommendations(at_targets(sample_run, Targets(30.0)))
    results = asked(registered("gemm", target="30"), "", is_findings=True)
    for result, item in zip(results, items, strict=True):
        assert result["text"].startswith(f"{item.label} ")
        link = dict(parse_qsl(urlsplit(result["href"]).query))
        number = item.result.findings.index(item.finding) + 1
        assert (link["target"], link[f"{item.result.key}_finding"]) == ("30", str(number))
    assert len(items) < len(recommendations(sample_run))


def test_results_are_sent_only_for_a_query(registered: Draw) -> None:
    page = registered("gemm")
    assert answered(page)["results"] == []
    assert asked(page, "mm")
    assert answered(page.run())["results"] == []


def test_links_carry_the_targets_of_the_page(registered: Draw) -> None:
    page = registered("gemm", target="65")
    assert all("target=65" in r["href"] for r in asked(page, "mm") if r["kind"] != "Run")


def test_results_of_a_large_run_are_bounded(
    sample_run: Run, sample_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "carried", dict)
    rows = sample_run.table("operations")
    copies = pl.concat([rows] * -(-MANY_ROWS // rows.height))
    large = sample_run.with_tables({"operations": copies})
    assert sample_run.root is not None
    now = Opened(sample_id, sample_run.root, large, stamp=-1)
    results = find("a", [], now, Catalog((), ()))
    for kind in ("Finding", "Operation", "Kernel"):
        assert 0 < len(of_kind(results, kind)) <= MAX_OF_KIND


@pytest.mark.parametrize("query", ["", "  "])
def test_nothing_is_sought_without_words(query: str) -> None:
    assert find(query, [], None, read_catalog()) == []
