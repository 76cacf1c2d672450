"""The kernel fusion page, and pages of categories that other operators replace."""

from collections.abc import Callable
from pathlib import Path

import pytest

from jarvis.dashboard.pages.category.finding_only import members_of
from jarvis.run import Run
from jarvis.server.storage.catalog import analysis_root
from jarvis.server.submission import Submission
from tests.analyses.test_epilogues import layers as epilogue_layers
from tests.analyses.test_kernel_fusion import layers as normalized_layers
from tests.builders import TraceBuilder
from tests.dashboard.conftest import Draw, stored_in
from tests.perf_report.test_attention_groups import layers as attention_layers

Analyzed = Callable[[TraceBuilder], str]


@pytest.fixture
def analyzed(home: Path, tmp_path: Path) -> Analyzed:
    """Return a function that analyzes a built trace and returns its id."""

    def analyze(built: TraceBuilder) -> str:
        return stored_in(home, Submission(built.write(tmp_path / "trace.json")))

    return analyze


def test_the_page_counts_chains_and_lists_their_steps(registered: Draw, analyzed: Analyzed) -> None:
    page = registered("kernel_fusion", analyzed(normalized_layers(4)))
    assert not page.exception
    assert [metric.value for metric in page.metric][:2] == ["1", "0.460 ms"]
    chains, steps = page.dataframe[0].value, page.dataframe[1].value
    assert chains["scope_name"].to_list() == ["RMSNorm"]
    assert chains["verdict"].to_list() == ["yes"]
    assert chains["steps"].to_list() == ["copy_ → pow → 4 more → copy_ → mul"]
    assert not chains["left_ms"].isna().any()
    assert len(steps) == 8
    assert "`RMSNorm`" in page.expander[-1].label


def test_the_page_of_a_category_that_a_chain_replaces_says_so(
    registered: Draw, analyzed: Analyzed
) -> None:
    page = registered("batchnorm", analyzed(normalized_layers(4)))
    assert not page.exception
    assert any("RMS normalization" in info.value for info in page.info)
    assert not any("no operations" in info.value for info in page.info)
    kinds = [element.type for element in page.main]
    assert kinds.index("metric") < kinds.index("info")
    assert any("Unfused chain: `RMSNorm`" in text.value for text in page.markdown)
    (link,) = [each.proto for each in page.get("page_link") if "Unfused" in each.proto.label]
    assert "kernel_fusion_finding=1" in link.query_string
    (in_menu,) = [p.proto for p in page.sidebar.get("page_link") if p.proto.page == "batchnorm"]
    assert "gray" not in in_menu.label
    assert in_menu.help.startswith("1 finding")


def test_the_operators_of_a_chain_are_numbered_in_its_order(analyzed: Analyzed) -> None:
    run = Run.load(analysis_root(analyzed(normalized_layers(4))))
    (finding,) = run.results["kernel_fusion"].findings
    members = members_of(run, finding)["operation_uid"].to_list()
    steps = run.table("fusion_steps").sort("position")["operation_uid"]
    assert members == steps.unique(maintain_order=True).to_list()


def test_the_attention_page_shows_unfused_attention_without_rows_of_its_own(
    registered: Draw, analyzed: Analyzed
) -> None:
    built = attention_layers(3)
    built.header["deviceProperties"][0]["name"] = "AMD Instinct MI300X"
    page = registered("sdpa_fwd", analyzed(built))
    assert not page.exception
    assert any("Unfused attention in `SelfAttention`" in e.label for e in page.expander)


def test_the_saving_of_an_epilogue_is_at_most_its_time(
    registered: Draw, analyzed: Analyzed
) -> None:
    """A product that absorbs it takes longer by a time that is not known, so no fused time is
    shown; the tile agrees with the table."""
    page = registered("kernel_fusion", analyzed(epilogue_layers()))
    assert not page.exception
    chains = page.dataframe[0].value
    assert all(chains["steps"].str.startswith("mm → "))
    assert "left_ms" not in chains
    assert chains["saved_ms"].to_list() == pytest.approx(chains["time_ms"].to_list())
    assert (page.metric[2].value == "none") == (page.metric[0].value == "0")
