"""Runs with a reference."""

from pathlib import Path

import pytest

from jarvis.comparison import TABLES
from jarvis.core.errors import UnknownReferenceError
from jarvis.pipeline import analyze
from tests.builders import trace

SQUARE = [[1000, 1000], [1000, 1000]]


def test_a_run_compares_with_the_reference_it_is_given(tmp_path: Path) -> None:
    for name, us in (("reference", 10.0), ("target", 30.0)):
        built = trace(device="AMD Instinct MI300X").op("aten::mm", SQUARE).launches("k", us=us)
        built.write(tmp_path / f"{name}.json")
    reference = tmp_path / "reference_run"
    analyze(tmp_path / "reference.json", output_dir=reference)
    run = analyze(
        tmp_path / "target.json", output_dir=tmp_path / "target_run", reference=str(reference)
    )
    assert set(TABLES) <= set(run.manifest.tables)
    row = run.table("comparison_operations").row(0, named=True)
    assert (row["time_ratio"], row["expected_ratio"]) == (pytest.approx(3.0), 1.0)
    assert row["category"] == "gemm"


def test_a_reference_that_is_no_run_is_refused_before_any_work(tmp_path: Path) -> None:
    built = trace().op("aten::mm", SQUARE).launches("k", us=5)
    built.write(tmp_path / "target.json")
    with pytest.raises(UnknownReferenceError):
        analyze(tmp_path / "target.json", output_dir=tmp_path / "run", reference="nowhere")
    assert not (tmp_path / "run").exists()
