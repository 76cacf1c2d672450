"""The registry: what is registered is well formed, what is not is refused or reported."""

import inspect
import re
from dataclasses import replace
from pathlib import Path

import pytest

from jarvis.analyses import checks_markdown, load_analyses
from jarvis.analyses.base import Analysis, CategoryData, Claim
from jarvis.analyses.registry import CHECK_PARTS, ENTRY_POINT_GROUP, _add, load_registry
from jarvis.errors import RegistrationError

COMPUTE = (
    "sdpa_fwd",
    "convolution",
    "elementwise",
    "gemm",
    "moe_fused",
    "batchnorm",
    "reduce",
    "triton",
    "other",
)
FUSION = ("kernel_fusion",)
SYSTEM = ("cpu_idle", "multi_kernel")
TIERS = {"compute": COMPUTE, "fusion": FUSION, "system": SYSTEM}


def a_check(data: CategoryData):
    """Nothing.

    Symptom: none.
    Rule: none.
    Threshold: none.
    """
    yield from ()


VALID = Analysis(title="Mine", icon=":material/sync:", checks=(a_check,), claim=Claim(("Mine",)))


def test_the_analyses_in_page_order() -> None:
    known = (*COMPUTE, *FUSION, *SYSTEM)
    assert tuple(key for key in load_analyses() if key in known) == known


@pytest.mark.parametrize("key", load_analyses())
def test_each_analysis_is_complete(key: str) -> None:
    analysis = load_analyses()[key]
    assert analysis.key == key
    assert analysis.tier == next((t for t, keys in TIERS.items() if key in keys), "compute")
    assert re.fullmatch(r":material/[a-z_]+:", analysis.icon)
    assert analysis.panels or analysis.tier != "compute"
    assert len({panel.title for panel in analysis.panels}) == len(analysis.panels)
    for check in analysis.checks:
        assert all(part in (inspect.getdoc(check) or "") for part in CHECK_PARTS), check.__name__


def test_titles_and_icons_are_unique() -> None:
    analyses = load_analyses().values()
    assert len({a.title for a in analyses}) == len({a.icon for a in analyses}) == len(analyses)


def test_generated_documentation_is_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs" / "checks.md"
    assert page.read_text(encoding="utf-8") == checks_markdown(), "run `make docs`"


def test_documentation_names_every_check_once() -> None:
    text = checks_markdown()
    for analysis in load_analyses().values():
        assert f"(`{analysis.key}`)" in text
        for check in analysis.checks:
            assert text.count(f"### `{check.__name__}`") == 1


@pytest.mark.parametrize(
    ("analysis", "words"),
    [
        (replace(VALID, icon="sync"), "icon"),
        (replace(VALID, title=""), "title"),
        (replace(VALID, checks=()), "check"),
        (replace(VALID, claim=None), "claims operations"),
        (replace(VALID, checks=(lambda data: iter(()),)), "Symptom"),
        (replace(VALID, claim=Claim(("GEMM",))), "claimed by gemm"),
        (replace(VALID, claim=Claim(rest=True)), "claimed by other"),
        ("no analysis", "no ANALYSIS"),
    ],
)
def test_a_bad_analysis_is_refused_with_its_source(analysis: object, words: str) -> None:
    with pytest.raises(RegistrationError, match=words) as caught:
        _add(dict(load_analyses()), "mine", "compute", analysis, "package.mine")
    assert "package.mine" in str(caught.value)


def test_a_key_is_given_once() -> None:
    with pytest.raises(RegistrationError, match="registered already"):
        _add(dict(load_analyses()), "gemm", "compute", VALID, "package.gemm")


class Point:
    """An entry point that gives ``value`` or raises it."""

    def __init__(self, name: str, value: object) -> None:
        self.name, self.value, self._loaded = name, "package:ANALYSIS", value

    def load(self) -> object:
        if isinstance(self._loaded, Exception):
            raise self._loaded
        return self._loaded


def test_entry_points_add_analyses_and_failures_are_kept_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = set(load_analyses())
    points = [Point("mine", VALID), Point("broken", ImportError("no such thing")), Point("odd", 3)]

    def entry_points(group: str) -> list[Point]:
        assert group == ENTRY_POINT_GROUP
        return points

    monkeypatch.setattr("jarvis.analyses.registry.entry_points", entry_points)
    load_registry.cache_clear()
    try:
        found = load_registry()
        assert found.analyses["mine"].key == "mine"
        assert set(found.failures) == {"broken", "odd"}
        assert "no such thing" in found.failures["broken"]
        assert set(found.analyses) == {*own, "mine"}
    finally:
        load_registry.cache_clear()
