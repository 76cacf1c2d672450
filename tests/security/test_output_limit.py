"""The output limit of an analysis: writing stops, and no files remain."""

from pathlib import Path

import polars as pl
import pytest

from jarvis.cli import main
from jarvis.core.errors import JarvisError
from jarvis.core.output import (
    OUTPUT_VARIABLE,
    OutputLimitError,
    limited_output,
    max_output_mb,
    open_output,
    write_output,
)
from jarvis.core.workspace import analyses_dir
from jarvis.reports.csv import write_csvs
from jarvis.reports.xlsx import write_workbook
from jarvis.run import Run
from jarvis.run.store import write_parquet
from jarvis.server import queue
from jarvis.server.database import JobState, database
from jarvis.server.jobs.kinds import Analyze
from jarvis.server.submission import Submission
from tests import growing
from tests.dashboard.inline_jobs import work_off

ROWS = pl.DataFrame({"name": [f"{number * 7919 % 10**9:x}" for number in range(200_000)]})
WRITERS = {
    "bytes": lambda folder: write_output(folder / "b", b"x" * 2_000_000),
    "text": lambda folder: write_output(folder / "t", "x" * 2_000_000),
    "pieces": lambda folder: write_output(folder / "p", (b"x" * 1000 for _ in range(2000))),
    "csv": lambda folder: write_csvs({"sheet": ROWS}, folder),
    "csv of Polars": lambda folder: ROWS.write_csv(open_output(folder / "c.csv")),
    "parquet": lambda folder: write_parquet(ROWS, folder / "p.parquet"),
    "workbook": lambda folder: write_workbook({"sheet": ROWS}, folder / "w.xlsx"),
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))


@pytest.mark.parametrize("kind", WRITERS)
def test_every_writer_stops_at_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv(OUTPUT_VARIABLE, "0.3")
    with pytest.raises(OutputLimitError, match="exceeds 0 MB"), limited_output(1):
        WRITERS[kind](tmp_path)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) <= 300_000
    WRITERS[kind](tmp_path)  # what is no analysis has no limit


@pytest.mark.parametrize(
    ("json_mb", "most_mb"), [(0, 64), (0.1, 64), (1, 200), (2.5, 500), (3, 512), (10_000, 512)]
)
def test_the_limit_follows_the_size_of_the_trace(json_mb: float, most_mb: float) -> None:
    assert max_output_mb(int(json_mb * 1e6)) == most_mb


def test_the_limit_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OUTPUT_VARIABLE, "2000")
    assert max_output_mb(1) == 2000
    monkeypatch.setenv(OUTPUT_VARIABLE, "much")
    with pytest.raises(JarvisError, match=f"{OUTPUT_VARIABLE} is 'much'. Set a number above 0"):
        max_output_mb(1)


def test_a_command_above_the_limit_fails_without_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = growing.shapes(5).write(tmp_path / "trace.json")
    monkeypatch.setenv(OUTPUT_VARIABLE, "0.2")
    assert main(["analyze", str(trace), "--output-dir", str(tmp_path / "run")]) == 1
    message = capsys.readouterr().err
    assert "The output of the analysis exceeds" in message
    assert OUTPUT_VARIABLE in message
    assert "Traceback" not in message
    assert {path.name for path in tmp_path.iterdir()} <= {"trace.json", "home"}
    monkeypatch.setenv(OUTPUT_VARIABLE, "20")
    assert main(["analyze", str(trace), "--output-dir", str(tmp_path / "run")]) == 0
    json_bytes = Run.load(tmp_path / "run").manifest.trace.json_bytes
    assert json_bytes == trace.stat().st_size


def test_a_job_above_the_limit_fails_without_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = growing.shapes(5).write(tmp_path / "trace.json")
    monkeypatch.setenv(OUTPUT_VARIABLE, "0.2")
    engine = database()
    job = queue.submit(engine, Analyze(Submission(trace)).new_job())
    work_off(engine)
    done = queue.find(engine, job.id)
    engine.dispose()
    assert done.state is JobState.FAILED
    assert "The output of the analysis exceeds" in str(done.error)
    assert not list(analyses_dir().glob("*"))
    assert not list(analyses_dir().glob(".*"))
