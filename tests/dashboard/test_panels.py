"""Panels with missing values, and failing panels, which do not affect the rest of the page."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from jarvis.analyses import load_analyses
from jarvis.dashboard.pages.category import page as category
from jarvis.dashboard.widgets.panel_kinds import KINDS
from jarvis.server.submission import Submission, submit
from tests.builders import TraceBuilder, trace
from tests.dashboard.conftest import Draw
from tests.dashboard.copied import copied_url
from tests.dashboard.test_added_pages import drawn

EXTENSION = """
import polars as pl

from jarvis.analyses.base import Analysis, Claim, Panel
from jarvis.analyses.checks import low_efficiency
from jarvis.schemas import INTEGER, NUMBER, TEXT, Column

ROWS = pl.col("uid").rank("ordinal")


def with_gaps(rows, compute_units):
    return rows.with_columns(
        lane=pl.when(ROWS == 1).then(None).otherwise(ROWS).cast(pl.Int64),
        owner=pl.when(ROWS == 1).then(None).otherwise(pl.lit("someone")),
        rate=pl.when(ROWS == 1).then(float("nan")).otherwise(pl.when(ROWS == 2).then(4.0)),
        nothing=pl.lit(None, pl.Float64),
    )


GAPS = Analysis(
    title="Gaps",
    icon=":material/radar:",
    claim=Claim(op_names=("mylib::*",)),
    checks=(low_efficiency,),
    classify=with_gaps,
    details=(
        Column("lane", "Lane", INTEGER),
        Column("owner", "Owner", TEXT),
        Column("rate", "Rate", NUMBER, "MB/s"),
        Column("nothing", "Nothing", NUMBER),
        Column("promised", "Promised", NUMBER),
    ),
    panels=(
        Panel(kind="bars", title="By owner", x="kernel_time_us", y="owner", color="owner"),
        Panel(kind="bars", title="By lane", x="kernel_time_us", y="lane", color="lane"),
        Panel(kind="bars", title="By rate", x="rate", y="name", color="lane"),
        Panel(kind="bars", title="By nothing", x="nothing", y="name"),
        Panel(kind="scatter", title="Rates", x="kernel_time_us", y="rate", color="lane"),
        Panel(kind="scatter", title="Nothings", x="nothing", y="nothing", color="owner"),
        Panel(kind="bars", title="Text as a length", x="name", y="name"),
        Panel(kind="scatter", title="Not computed", x="promised", y="promised"),
    ),
)
ANALYSES = {"gaps": GAPS}
"""
FAILING = ("Text as a length", "Not computed")


def analyzed(built: TraceBuilder, folder: Path, **options: Path) -> str:
    """Return the id of an analysis of a built trace."""
    return submit(Submission(built.write(folder / "trace.json"), **options)).id


@pytest.fixture(scope="module")
def shapeless_id(home: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the id of a run with two convolutions, the heavier one without shapes."""
    built = trace(device="AMD Instinct MI300X")
    for dims, us in (([[8, 64, 56, 56], [64, 64, 3, 3]], 20.0), (None, 300.0)):
        built.op("aten::convolution", dims).launches("igemm_fwd_gtcx_nhwc", us=10 * us)
        built.launches("batched_transpose_32x16_half", us=us)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(home))
        return analyzed(built, tmp_path_factory.mktemp("shapeless"))


@pytest.fixture(scope="module")
def gaps_id(home: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the id of a run whose extension has panels over missing and wrong values."""
    folder = tmp_path_factory.mktemp("gaps")
    extension = folder / "gaps.py"
    extension.write_text(EXTENSION, encoding="utf-8")
    built = trace(device="AMD Instinct MI300X")
    for name, us in (("heavy", 400.0), ("middle", 200.0), ("light", 100.0)):
        built.op(f"mylib::{name}", [[4096]]).launches(f"{name}_kernel", us=us)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(home))
        return analyzed(built, folder, extension_file=extension)


def titles_of(page: AppTest) -> dict[str, str]:
    """Return the results in the panels' titles, by panel."""
    titles = (block.value.split("** · ") for block in page.markdown if "** · " in block.value)
    return {name.removeprefix("**"): words for name, words in titles}


def test_bars_of_operations_without_shapes_have_a_name(registered: Draw, shapeless_id: str) -> None:
    page = registered("convolution", analysis=shapeless_id)
    assert not page.exception
    assert not page.error
    assert titles_of(page)["Layout transposes"] == "not recorded has 93.8% of the transposes"
    assert "Findings" in [header.value for header in page.subheader]


def test_panels_of_an_extension_draw_what_is_there(gaps_id: str, expects_failures: None) -> None:
    titles = titles_of(drawn("gaps", gaps_id))
    assert {name: titles.get(name) for name in ("By owner", "By lane", "By rate", "Rates")} == {
        "By owner": "not recorded has 57.1% of the kernel time",
        "By lane": "not recorded has 57.1% of the kernel time",
        "By rate": "middle has 100.0%",
        "Rates": "median 4.00 MB/s",
    }


def test_a_panel_that_fails_takes_only_itself(
    gaps_id: str, expects_failures: None, caplog: pytest.LogCaptureFixture
) -> None:
    page = drawn("gaps", gaps_id)
    assert not page.exception
    sentences = [error.value for error in page.error]
    assert [text.partition(" cannot")[0] for text in sentences] == list(FAILING)
    failures = [r for r in caplog.records if r.name == "jarvis.dashboard.isolation"]
    assert [failure.__dict__["part"] for failure in failures] == list(FAILING)
    for failure, sentence in zip(failures, sentences, strict=True):
        assert failure.__dict__["failure"] in sentence
        assert failure.exc_info is not None
    headers = [header.value for header in page.subheader]
    assert headers[:2] == ["Findings", "Operations"]
    assert "By nothing" in " ".join(block.value for block in page.markdown)
    assert copied_url(page)


@pytest.mark.parametrize("part", ["draw", "title"])
@pytest.mark.parametrize("error", [ZeroDivisionError, RecursionError, KeyError, AssertionError])
def test_any_error_of_a_panel_is_a_sentence(
    registered: Draw,
    expects_failures: None,
    monkeypatch: pytest.MonkeyPatch,
    part: str,
    error: type[Exception],
) -> None:
    def fail(*_: object) -> None:
        raise error("secret: /home/someone")

    for name, kind in KINDS.items():
        monkeypatch.setitem(KINDS, name, replace(kind, **{part: fail}))
    monkeypatch.setattr(category, "_cached_panel", category._cached_panel.__wrapped__)  # type: ignore[attr-defined]
    page = registered("gemm")
    assert not page.exception
    assert len(page.error) == len(load_analyses()["gemm"].panels)
    assert "someone" not in " ".join(block.value for block in page.error)
    assert "Operations" in [header.value for header in page.subheader]


def test_what_ends_a_run_of_the_page_passes(
    registered: Draw, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def stop(*_: object) -> None:
        st.stop()

    for name, kind in KINDS.items():
        monkeypatch.setitem(KINDS, name, replace(kind, draw=stop))
    monkeypatch.setattr(category, "_cached_panel", category._cached_panel.__wrapped__)  # type: ignore[attr-defined]
    page = registered("gemm")
    assert not page.error
    assert "Operations" not in [header.value for header in page.subheader]
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR]


def test_a_page_that_fails_keeps_its_frame(
    registered: Draw, expects_failures: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jarvis.dashboard.pages.category import page as category

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(category, "metric_cards", fail)
    page = registered("gemm")
    assert not page.exception
    (error,) = page.error
    assert error.value.startswith("This page cannot be shown")
    assert page.sidebar.selectbox
    assert "/gemm" in copied_url(page)
