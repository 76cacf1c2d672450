"""Links copied in every earlier release still set the same controls.

``pytest tests/dashboard/test_release_links.py --write-links`` writes the file of this version:
every page with every control off its default. With the name of a page, its line alone.
"""

import tomllib
from collections.abc import Container, Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import polars as pl
import pytest
from streamlit.testing.v1 import AppTest

from jarvis.analyses import load_analyses
from jarvis.core.workspace import resource
from jarvis.dashboard.session.links import ANALYSIS, REFERENCE, current_name
from jarvis.run import Run
from jarvis.schemas.names import C
from jarvis.server.ingest.addresses import HOSTS_VARIABLE
from jarvis.server.storage.catalog import analysis_root
from tests.dashboard.conftest import Draw
from tests.dashboard.copied import copied_url
from tests.dashboard.linked_trace import TRACE, keep_linked

FOLDER = TRACE.parent
ANALYSES = tuple(load_analyses())
FILES = tuple(sorted(path.stem for path in resource("pages").glob("*.py")))
RELEASES = {path.stem: path for path in sorted(FOLDER.glob("*.toml"))}
STORED = {release: tomllib.loads(path.read_text())["links"] for release, path in RELEASES.items()}
VERSION = version("jarvis-perf")
HOW_TO_STORE = "store the links of this version: pytest " + Path(__file__).name + " --write-links"

Parameters = dict[str, str]


@pytest.fixture(scope="module")
def kept(home: Path) -> tuple[str, str]:
    """Return the ids of the analysis of the links and of its reference."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(home))
        return keep_linked()


@pytest.fixture(autouse=True)
def _has_every_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Links name sources of traces that a server shows only if they are configured."""
    monkeypatch.setenv(HOSTS_VARIABLE, "traces.example.org")


@pytest.fixture
def analysis(kept: tuple[str, str]) -> str:
    return kept[0]


@pytest.fixture
def draw(kept: tuple[str, str], registered: Draw, filed: Draw) -> Draw:
    """Return a function that draws any page with the parameters of a link."""

    def drawn(page: str, parameters: Parameters) -> AppTest:
        if page == "compare":
            parameters = {REFERENCE: kept[1]} | parameters
        return (filed if page in FILES else registered)(page, **parameters)

    return drawn


def parameters_of(link: str) -> Parameters:
    return dict(parse_qsl(urlsplit(link).query))


def copied(page: AppTest) -> Parameters:
    """Return the parameters of the sidebar's link."""
    return parameters_of(copied_url(page))


def test_the_links_of_this_version_are_stored(
    draw: Draw, analysis: str, request: pytest.FixtureRequest
) -> None:
    pages = (*FILES, *ANALYSES)
    if written := request.config.getoption("--write-links"):
        old = STORED.get(VERSION, {})
        stored = {
            page: _with_every_control(draw, page, analysis)
            if written in ("all", page)
            else parameters_of(old[page])
            for page in pages
        }
        (FOLDER / f"{VERSION}.toml").write_text(_document(stored))
    else:
        assert set(STORED[VERSION]) == set(pages), HOW_TO_STORE


@pytest.mark.parametrize(
    ("release", "path"), [(release, path) for release, paths in STORED.items() for path in paths]
)
def test_a_link_of_a_release_sets_what_it_set_then(
    draw: Draw, analysis: str, release: str, path: str
) -> None:
    asked = parameters_of(STORED[release][path])
    assert asked[ANALYSIS] == analysis
    drawn = draw(path, asked)
    assert not drawn.exception
    assert [warning.value for warning in drawn.warning if "link" in warning.value] == []
    now = copied(drawn)
    assert {name: now.get(current_name(name)) for name in asked} == asked
    if release == VERSION:
        assert set(now) == set(asked), HOW_TO_STORE


def test_a_parameter_that_was_renamed_still_sets_its_control(filed: Draw, analysis: str) -> None:
    page = filed("overview", **{ANALYSIS: analysis, "overview_target": "55"})
    assert page.slider(key="target").value == 55
    assert copied(page)["target"] == "55"
    assert "overview_target" not in copied(page)


def test_thresholds_of_categories_became_that_of_the_analysis() -> None:
    assert {current_name(f"{key}_below") for key in ("gemm", "reduce", "other")} == {"below"}
    assert current_name("runs_busy_below") == "runs_busy_below"


def _document(stored: Mapping[str, Parameters]) -> str:
    heads = [
        f'# What "Copy link" of Jarvis {VERSION} wrote. Links of a release that is out must not',
        "# change: people have them.",
        "[links]",
    ]
    lines = [f'{page} = "/{page}?{urlencode(asked)}"' for page, asked in stored.items()]
    return "\n".join([*heads, *lines, ""])


def _with_every_control(draw: Draw, page: str, analysis: str) -> Parameters:
    """Return the link of a page after changing every control and clicking everything."""
    drawn = draw(page, {ANALYSIS: analysis})
    defaults = copied(drawn)
    _move(drawn, defaults)
    found = copied(drawn.run())
    # A bound without rows hides what belongs to the table; a choice can change what another offers.
    for bound in ("compute", "all"):
        if f"{page}_sort" in defaults.keys() - found.keys():
            found = copied(drawn.segmented_control(key=f"{page}_bound").set_value(bound).run())
    is_left = {
        n for n, text in found.items() if text == defaults.get(n) and not n.endswith("_bound")
    }
    _move(drawn, is_left)
    found = copied(drawn.run())
    found = copied(draw(page, {**found, f"{page}_page": "2"}))
    for parameter, values in _clicked(page, analysis):
        for value in values:
            wanted = {**found, parameter: value}
            shown = copied(draw(page, wanted))
            if wanted.items() <= shown.items():
                found = wanted | shown
                break
    return found


def _move(drawn: AppTest, controls: Container[str]) -> None:
    """Set controls of a page to values other than their defaults."""
    for slider in drawn.slider:
        if slider.key in controls:
            slider.set_value(slider.value - 7)
    for number in drawn.number_input:
        if number.key in controls:
            step = number.step or 1
            is_room = number.value + step <= number.max
            number.set_value(number.value + (step if is_room else -step))
    for box in drawn.selectbox:
        if box.key in controls and box.key != f"compare_{REFERENCE}":
            box.select_index(len(box.options) - 1)
    for segments in drawn.segmented_control:
        if segments.key in controls:
            segments.set_value(segments.options[-1])
    _write(drawn, "a")


def _write(drawn: AppTest, letter: str) -> None:
    """Write into every text field of the page."""
    pages = tuple(f"{page}_" for page in (*FILES, *ANALYSES))
    for field in drawn.text_input:
        if (field.key or "").startswith(pages):
            field.set_value(letter)


def _clicked(page: str, analysis: str) -> Iterable[tuple[str, list[str]]]:
    """Return parameters that are set by clicks, with possible values."""
    run = Run.load(analysis_root(analysis))

    def uids(table: pl.DataFrame, column: str = "uid") -> list[str]:
        return [str(uid) for uid in table[column]]

    if page in run.results and run.results[page].tier == "compute":
        yield f"{page}_sort", [C.name]
        yield f"{page}_order", ["ascending"]
        yield f"{page}_op", uids(run.category_operations(page))
    elif page == "timeline":
        yield "timeline_event", uids(run.table("gpu_work"))
    elif page == "call_tree":
        yield "call_tree_op", uids(run.table("call_tree_operations"), "operation_uid")
        yield "call_tree_root", uids(run.table("call_tree"), "node")
    elif page == "runs":
        yield "runs_model", ["Linked"]  # other homes do not have the sample
        yield "runs_shown", ["idle"]
        yield "runs_selected", [analysis]
    elif page == "what_if":
        yield "change", ["scale=compute:0.5"]
    elif page == "report":
        yield "report_without", ["1"]
        yield "report_summary", ["In short: *see below*."]
