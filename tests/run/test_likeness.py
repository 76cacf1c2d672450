"""How alike two runs are: by names, labels, trace, and main operators."""

from pathlib import Path
from typing import Any

import pytest

from jarvis.core.labels import RunLabels
from jarvis.run import Manifest, Run, TopOperation
from jarvis.run.figures import Kind, common_operators_pct, likeness


@pytest.fixture(scope="module")
def manifest(made_once: Path) -> Manifest:
    return with_operators(Run.load(made_once).manifest, "one", mm=(4, 90.0), add=(8, 10.0))


def with_operators(
    run: Manifest, sha256: str, model_name: str | None = None, **operators: tuple[int, float]
) -> Manifest:
    """Return the run with another trace and the calls and times of its main operators."""
    top = tuple(
        TopOperation(
            rank=rank, name=name, count=count, time_ms=time_ms, percent_of_compute=None,
            percent_of_total=None,
        )
        for rank, (name, (count, time_ms)) in enumerate(operators.items(), start=1)
    )  # fmt: skip
    trace = run.trace.model_copy(update={"sha256": sha256})
    changed: dict[str, Any] = {"trace": trace, "top_operations": top, "model_name": model_name}
    return run.model_copy(update=changed)


@pytest.mark.parametrize(
    ("operators", "common_pct"),
    [
        ({"mm": (4, 10.0), "add": (8, 10.0)}, 100.0),
        ({"mm": (4, 10.0), "add": (9, 10.0)}, 50.0),
        ({"mm": (5, 10.0), "add": (8, 10.0)}, 10.0),
        ({"conv": (4, 10.0)}, 0.0),
        ({}, None),
    ],
)
def test_main_operators_are_common_if_both_call_them_equally_often(
    manifest: Manifest, operators: dict[str, tuple[int, float]], common_pct: float | None
) -> None:
    other = with_operators(manifest, "two", **operators)
    assert common_operators_pct(manifest, other) == common_pct
    assert common_operators_pct(other, manifest) == common_pct
    is_alike = likeness(manifest, other).kind is Kind.SAME_MODEL
    assert is_alike == (common_pct is not None and common_pct >= 50)


def test_model_names_decide_before_operators(manifest: Manifest) -> None:
    calls = {"mm": (4, 90.0), "add": (8, 10.0)}
    named = with_operators(manifest, "two", "bert", **calls)
    other = with_operators(manifest, "three", "vit", **calls)
    renamed = with_operators(manifest, "four", "bert", conv=(1, 1.0))
    assert likeness(named, other).kind is Kind.UNLIKE
    assert likeness(named, other).words.startswith("different or unknown model; ")
    assert likeness(named, renamed).kind is Kind.SAME_MODEL
    assert likeness(named, manifest).kind is Kind.SAME_MODEL


def test_a_project_makes_runs_alike_unless_their_models_differ(manifest: Manifest) -> None:
    nightly, other = RunLabels.of("nightly"), RunLabels.of("other")
    unnamed = with_operators(manifest, "two", conv=(1, 1.0))
    assert likeness(manifest, unnamed, nightly, nightly).kind is Kind.SAME_PROJECT
    assert likeness(manifest, unnamed, nightly, other).kind is Kind.UNLIKE
    assert likeness(manifest, unnamed).kind is Kind.UNLIKE
    bert, vit = (with_operators(manifest, name, name, mm=(4, 1.0)) for name in ("bert", "vit"))
    assert likeness(bert, vit, nightly, nightly).kind is Kind.UNLIKE


def test_one_trace_says_that_its_times_are_equal(manifest: Manifest) -> None:
    found = likeness(manifest, manifest.model_copy(update={"model_name": "renamed"}))
    assert found.kind is Kind.SAME_TRACE
    assert found.words == "same trace; measured times are equal, only the peaks can differ"


def test_a_run_without_operators_is_unlike(manifest: Manifest) -> None:
    found = likeness(manifest, with_operators(manifest, "two"))
    assert (found.kind, found.common_pct) == (Kind.UNLIKE, None)
    assert found.words == "different or unknown model; operators not known"
