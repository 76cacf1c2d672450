"""The image of a run: made on demand, shown by ``analysis.md``."""

import shutil
import struct
from pathlib import Path

import pytest

from jarvis.cli import main
from jarvis.core.workspace import RunPaths
from jarvis.reports import add_plots
from jarvis.reports.plot import REST, time_parts
from tests.reports.conftest import Analyzed

SHOWN = "![GPU window by category](perf_improvement.png)"


def test_the_parts_are_the_categories_and_what_is_no_compute(sample: Analyzed) -> None:
    parts = dict(time_parts(sample.run).iter_rows())
    totals = sample.run.manifest.totals
    assert parts.pop(REST) == pytest.approx(totals.total_time_ms - totals.compute_time_ms)
    times = {r.title: r.gpu_time_ms for r in sample.run.results.values() if r.gpu_time_ms}
    assert parts == times
    assert list(parts.values()) == sorted(parts.values(), reverse=True)


def test_the_report_shows_the_image_beside_it(sample: Analyzed, tmp_path: Path) -> None:
    root = tmp_path / "run"
    shutil.copytree(sample.root, root)
    assert "![" not in sample.text("analysis.md")
    add_plots(sample.run, root)
    assert SHOWN in RunPaths(root).analysis_report.read_text(encoding="utf-8")
    image = RunPaths(root).perf_plot.read_bytes()
    assert image.startswith(b"\x89PNG\r\n")
    width, height = struct.unpack(">II", image[16:24])
    assert width > 4 * height > 400
    add_plots(sample.run, root)
    assert RunPaths(root).perf_plot.read_bytes() == image


def test_the_command_draws_on_demand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, out = str(tmp_path / "sample.json"), str(tmp_path / "run")
    assert main(["sample", "--output", trace, "--scale", "tiny", "--steps", "1"]) == 0
    assert main(["analyze", trace, "--output-dir", out, "--plots"]) == 0
    assert RunPaths(Path(out)).perf_plot.is_file()
    assert SHOWN in RunPaths(Path(out)).analysis_report.read_text(encoding="utf-8")
    assert main(["analyze", trace, "--output-dir", out]) == 0
    assert not RunPaths(Path(out)).perf_plot.exists()
    capsys.readouterr()
