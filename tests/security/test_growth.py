"""The cost of an analysis grows at most with n log n: counted, not timed.

A cost may have a part that is always there; so the growth from 2n to 4n is compared with that from
n to 2n, which is twice as much where a cost is linear and four times where it is quadratic.
"""

import ast
import cProfile
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from jarvis.cli import main
from jarvis.core import literals
from jarvis.core.workspace import RunPaths, analyses_dir
from jarvis.perf_models import OpCost, OpSignature, Registry, triton
from jarvis.perf_models.triton import ATEN_NAMES
from jarvis.perf_report import PerfReport
from jarvis.perf_report.timeline.host import MAX_BINS, HostTimeline
from jarvis.run import Run
from jarvis.run.tree_data import read_tree_data
from jarvis.server import queue
from jarvis.server.database import JobState, database
from jarvis.server.jobs.kinds import Analyze
from jarvis.server.submission import Submission
from jarvis.text.format import MAX_NAME_LENGTH
from jarvis.tracelens import overlap
from tests import growing
from tests.builders import TraceBuilder
from tests.dashboard.inline_jobs import work_off

MOST = 2.3
"""Maximum ratio of costs when the input doubles."""

MB = 1_000_000
SLACK = {"written": 0.05 * MB, "peak": 4.0 * MB, "calls": 20_000}
"""Growth below which ratios are noise, because Python tables double their capacity."""

SIZES = {
    growing.arguments: 250,
    growing.long_names: 150,
    growing.depth: 200,  # from there on the host work has a finding
    growing.nested_operations: 101,  # beyond the rows that have call chains in their metrics
    growing.shapes: 20,
    growing.operations: 150,
}


@dataclass(frozen=True)
class Cost:
    """Bytes in the run directory, peak memory of Python objects, function calls."""

    written: int
    peak: int
    calls: int


def cost_of(work: Callable[[], object], folder: Path) -> Cost:
    """Do some work that writes files to ``folder``."""
    profile = cProfile.Profile()
    tracemalloc.start()
    try:
        profile.runcall(work)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return Cost(written_bytes(folder), peak, sum(entry.callcount for entry in profile.getstats()))


def written_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def assert_linear(costs: list[Cost]) -> None:
    assert len(costs) == 3
    for what, slack in SLACK.items():
        small, middle, large = (getattr(cost, what) for cost in costs)
        most = MOST * max(middle - small, 0) + slack
        assert large - middle <= most, f"{what}: {small:,}, {middle:,}, {large:,}"


@pytest.fixture(autouse=True)
def no_trace_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JARVIS_TRACE_CACHE_MB", "0")
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Import everything that an analysis needs before counting."""
    folder = tmp_path_factory.mktemp("warm")
    path = growing.shapes(2).write(folder / "trace.json")
    assert main(["analyze", str(path), "--output-dir", str(folder / "run")]) == 0


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize("build", SIZES, ids=lambda build: build.__name__)
def test_an_analysis_grows_with_its_input(
    tmp_path: Path, build: Callable[[int], TraceBuilder]
) -> None:
    costs = []
    for times in (1, 2, 4):
        path = build(SIZES[build] * times).write(tmp_path / f"{times}.json")
        out = tmp_path / f"run-{times}"
        command = ["analyze", str(path), "--output-dir", str(out)]
        costs.append(cost_of(partial(main, command), out))
        assert (out / "manifest.json").is_file()
    assert_linear(costs)


@pytest.mark.usefixtures("warm")
def test_a_job_grows_with_its_input(tmp_path: Path) -> None:
    engine = database()
    costs = []
    for times in (1, 2, 4):
        path = growing.fused_names(250 * times).write(tmp_path / f"{times}.json")
        job = queue.submit(engine, Analyze(Submission(path)).new_job())
        before = set(analyses_dir().glob("*"))
        costs.append(cost_of(lambda: work_off(engine), Path("nowhere")))
        assert queue.find(engine, job.id).state is JobState.DONE
        (made,) = set(analyses_dir().glob("*")) - before
        costs[-1] = replace(costs[-1], written=written_bytes(made))
    engine.dispose()
    assert_linear(costs)


def test_arguments_are_parsed_once_for_each_distinct_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []
    literal_eval = ast.literal_eval

    def counted(text: str) -> object:
        parsed.append(text)
        return literal_eval(text)

    monkeypatch.setattr(ast, "literal_eval", counted)
    literals._parse.cache_clear()
    built = growing.shapes(20)
    path = built.write(tmp_path / "trace.json")
    assert main(["analyze", str(path), "--output-dir", str(tmp_path / "run")]) == 0
    assert parsed
    rows = Run.load(tmp_path / "run").table("operations").height
    assert len(parsed) <= 4 * rows  # shapes, strides, types and values of each row


def test_the_operators_in_a_fused_name_are_looked_up_in_linear_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_up: list[str] = []

    class Counted(frozenset[str]):
        def __contains__(self, name: object) -> bool:
            looked_up.append(str(name))
            return super().__contains__(name)

    monkeypatch.setattr(triton, "ATEN_NAMES", Counted(ATEN_NAMES))
    counts = []
    for tokens in (200, 400, 800):
        looked_up.clear()
        triton.fused_ops("triton_poi_fused_" + "add_" * tokens + "nothing_0")
        counts.append(len(looked_up))
    assert counts[2] - counts[1] <= MOST * (counts[1] - counts[0])
    assert max(map(len, looked_up)) < 100


def test_the_total_number_of_host_spans_is_limited() -> None:
    timeline = HostTimeline(growing.threads(300).read())
    assert timeline.threads.height == 300
    assert 0 < timeline.bins.height <= MAX_BINS


def test_operators_nested_too_deep_are_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row of a sheet lists all kernels below its call: n x n of them."""
    path = growing.chained_operators(500).write(tmp_path / "trace.json")
    assert main(["analyze", str(path), "--output-dir", str(tmp_path / "run")]) == 1
    assert "nested too deeply" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    path = growing.chained_operators(100).write(tmp_path / "trace.json")
    assert main(["analyze", str(path), "--output-dir", str(tmp_path / "run")]) == 0


def test_too_many_overlaps_are_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = growing.streams(120).write(tmp_path / "trace.json")
    command = ["report", str(path), "--output-xlsx-path", str(tmp_path / "r.xlsx")]
    assert main([*command, "--include-overlap-info"]) == 0
    monkeypatch.setattr(overlap, "ALWAYS_ALLOWED_PAIRS", 1_000)
    assert main([*command, "--include-overlap-info"]) == 1
    assert "pairs of GPU events in the trace overlap" in capsys.readouterr().err
    assert main(command) == 0


def test_perf_models_see_no_name_beyond_the_limit(tmp_path: Path) -> None:
    seen: list[OpSignature] = []

    def cost(op: OpSignature) -> OpCost:
        seen.append(op)
        return OpCost(flops=1, bytes=1)

    registry = Registry()
    registry.perf_model("aten::cat", category="other", sheet="", needs_kernels=True)(cost)
    read = growing.kernel_names(10_000).read()
    PerfReport(read, None, registry=registry).table("operations")
    names = [name for op in seen for name in (op.name, *op.kernel_names)]
    assert max(map(len, names)) == MAX_NAME_LENGTH


def test_a_trace_with_repeated_names_gives_a_small_output(tmp_path: Path) -> None:
    """300 operations below 1,000 calls with names of 1,900 letters, in a separate process."""
    built = growing.nested(1_000, operations=300, letters=1_900)
    path = built.write(tmp_path / "trace.json")
    # The peak of the process itself: that of its rusage begins with the one that forked it.
    program = (
        "import sys; from jarvis.cli import main; code = main(sys.argv[1:]); "
        "print(open('/proc/self/status').read()); sys.exit(code)"
    )
    command = ["analyze", str(path), "--output-dir", str(tmp_path / "run")]
    done = subprocess.run(
        [sys.executable, "-c", program, *command], check=True, capture_output=True, text=True
    )
    (peak_kb,) = re.findall(r"VmHWM:\s*(\d+) kB", done.stdout)
    assert int(peak_kb) * 1024 < 600 * MB
    assert written_bytes(tmp_path / "run") < 20 * MB
    tree = read_tree_data(RunPaths(tmp_path / "run").tree_data("gemm").read_bytes())
    assert len(tree) == 300
    assert {len(path.parent_chain) for path in tree.values()} == {1_000}
