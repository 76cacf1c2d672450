"""The registry: what is registered is well formed, what is not is refused or reported."""

import inspect
import re
from dataclasses import replace
from pathlib import Path

import pytest

from jarvis import impact
from jarvis.analyses import checks_markdown, load_analyses
from jarvis.analyses.base import Analysis, CategoryData, Check, Claim
from jarvis.analyses.registry import CHECK_PARTS, ENTRY_POINT_GROUP, _add, load_registry
from jarvis.analyses.system import cpu_idle
from jarvis.core.errors import RegistrationError
from jarvis.findings import Severity
from jarvis.ranks.findings import CHECKS as RANK_CHECKS
from jarvis.ranks.findings import rank_checks_markdown
from jarvis.text.docstrings import filled_docstring

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
SYSTEM = ("cpu_idle", "multi_kernel", "inference")
CHECKS = tuple({c: None for analysis in load_analyses().values() for c in analysis.all_checks})
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
    written = f"{checks_markdown()}\n{rank_checks_markdown()}"
    assert page.read_text(encoding="utf-8") == written, "run `make docs`"


def test_checks_of_several_ranks_are_documented() -> None:
    for check in RANK_CHECKS:
        assert all(part in (inspect.getdoc(check) or "") for part in CHECK_PARTS), check.__name__
        assert f"### `{check.__name__}`" in rank_checks_markdown()


def test_documentation_takes_thresholds_from_the_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    assert f"{impact.BOTTLENECK_EFFICIENCY_PCT:g}% of the roofline" in checks_markdown()
    monkeypatch.setattr(impact, "BOTTLENECK_EFFICIENCY_PCT", 35.5)
    monkeypatch.setattr(cpu_idle, "IDLE_PCT", ((65.0, Severity.HIGH), (0.0, Severity.LOW)))
    changed = checks_markdown()
    assert "**Threshold**: 35.5% of the roofline" in changed
    assert "**Threshold**: 35.5% of the bandwidth" in changed
    assert "above 65%" in changed


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_no_number_in_the_text_of_a_check_is_typed_by_hand(check: Check) -> None:
    text = re.sub(r"{.*?}", "", inspect.getdoc(check) or "")
    assert re.findall(r"\b[0-9]\S*", text) == []


@pytest.mark.parametrize("name", ["NO_SUCH_PCT", "impact.NO_SUCH_PCT", "IDLE_PCT[9]", "0", ""])
def test_an_unknown_constant_in_the_text_of_a_check_is_an_error(name: str) -> None:
    def check(data: CategoryData):
        yield from ()

    check.__doc__ = f"Nothing.\n\nThreshold: {{{name}}}%."
    with pytest.raises(RegistrationError, match=r"check names a constant"):
        filled_docstring(check)


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
        ("no analysis", "does not define ANALYSIS"),
    ],
)
def test_a_bad_analysis_is_refused_with_its_source(analysis: object, words: str) -> None:
    with pytest.raises(RegistrationError, match=words) as caught:
        _add(dict(load_analyses()), "mine", "compute", analysis, "package.mine")
    assert "package.mine" in str(caught.value)


def test_a_key_is_given_once() -> None:
    with pytest.raises(RegistrationError, match="already registered"):
        _add(dict(load_analyses()), "gemm", "compute", VALID, "package.gemm")


class Point:
    """An entry point that gives ``value`` or raises it."""

    def __init__(self, name: str, value: object) -> None:
        self.name, self.value, self._loaded = name, "package:ANALYSIS", value

    def load(self) -> object:
        if isinstance(self._loaded, Exception):
            raise self._loaded
        return self._loaded


def test_entry_points_add_analyses_and_failures_are_kept_separate(
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
