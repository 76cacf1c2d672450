"""An analysis that fails: what its file says, and what the other files leave out."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from jarvis import extensions
from jarvis.analyses import load_registry
from jarvis.analyses.base import Analysis, CategoryData
from jarvis.core.workspace import RunPaths
from jarvis.findings import Finding, Status
from jarvis.pipeline import analyze
from tests.reports.markdown import headings, section
from tests.requirements.conftest import busy_trace


def failing(data: CategoryData) -> Iterator[Finding]:
    raise ZeroDivisionError("as it happens")
    yield


@pytest.mark.parametrize(("key", "tier"), [("gemm", "compute"), ("multi_kernel", "system")])
def test_a_failed_analysis_ends_in_an_error_and_in_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, tier: str
) -> None:
    registry = load_registry()
    broken = replace(registry.analyses[key], checks=(failing,), measure=None)
    analyses: Mapping[str, Analysis] = {**registry.analyses, key: broken}
    monkeypatch.setattr(extensions, "load_registry", lambda: replace(registry, analyses=analyses))
    run = analyze(busy_trace().write(tmp_path / "t.json"), output_dir=tmp_path / "run")
    paths, result = RunPaths(tmp_path / "run"), run.results[key]
    assert result.status is Status.ERROR
    assert result.findings == ()
    text = paths.findings(key, tier).read_text(encoding="utf-8")
    assert "- **Status**: ERROR" in text
    assert "ZeroDivisionError: as it happens" in text
    assert "in failing" in text
    assert headings(text, 2) == ["Error"]
    fair = paths.standalone_report("fair").read_text(encoding="utf-8")
    warning = f"| {result.title} | {tier} | `ZeroDivisionError: as it happens` |"
    assert warning in section(fair, "Warnings")
    assert result.title not in section(fair, "Recommendations")
    others = [r.status for name, r in run.results.items() if name != key]
    assert Status.ERROR not in others
