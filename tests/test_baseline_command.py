"""``jarvis compare RUN --baseline PROJECT``: exit codes, choice of the runs, output."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from jarvis.cli import main
from jarvis.cli.output import ExitCode
from jarvis.core.labels import NO_LABELS, RunLabels
from jarvis.core.workspace import RunPaths
from jarvis.server.database import database
from jarvis.server.storage.analysis_rows import set_labels
from jarvis.server.storage.catalog import analysis_root, read_catalog
from jarvis.server.submission import Submission, resubmit, submit
from tests.builders import trace

Output = pytest.CaptureFixture[str]
Store = Callable[..., str]
MAIN = RunLabels.of("llm", "main")


@pytest.fixture
def small(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a trace with a product of some time."""

    def written(us: int, name: str = "new", device: str = "AMD Instinct MI300X") -> Path:
        built = trace(device=device)
        built.op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=us)
        built.op("aten::add", [[64, 32]]).launches("add_kernel", us=400)
        return built.write(tmp_path / f"{name}.json")

    return written


@pytest.fixture
def store(small: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Return a function that stores a run of some time and day, and returns its id."""
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))

    def stored(
        us: int, day: int, labels: RunLabels = MAIN, device: str = "AMD Instinct MI300X"
    ) -> str:
        identifier = submit(Submission(small(us, f"day{day}", device))).id
        file = RunPaths(analysis_root(identifier)).manifest
        manifest = json.loads(file.read_text()) | {"created": f"2026-10-{day:02}T10:00:00+00:00"}
        file.write_text(json.dumps(manifest))
        read_catalog()
        if labels != NO_LABELS:
            set_labels(database(), identifier, labels)
        return identifier

    return stored


def run(*arguments: object) -> int:
    return main(["compare", *map(str, arguments)])


def checked(output: Output, *arguments: object) -> dict[str, object]:
    output.readouterr()
    code = run(*arguments, "--json")
    found: dict[str, object] = json.loads(output.readouterr().out)
    assert code == (ExitCode.CHECK_FAILED if found["is_slower"] else ExitCode.OK)
    return found


def test_a_slower_run_fails_and_its_slower_part_is_named(
    store: Store, small: Callable[..., Path], capsys: Output
) -> None:
    for day, us in enumerate((1000, 1010, 990, 1005, 995), start=1):
        store(us, day)
    assert run(small(1600), "--baseline", "llm") == ExitCode.CHECK_FAILED
    out = capsys.readouterr().out
    assert "Baseline: project llm, 5 runs from 2026-10-01 to 2026-10-05" in out
    slower = [line.split("  ")[0] for line in out.splitlines() if line.endswith("  slower")]
    assert slower == ["Step time", "GEMM"]
    assert out.splitlines()[-1].startswith("Slower: the step time is 2.0")
    assert out.splitlines()[-1].endswith("Slower parts: GEMM.")
    assert run(small(1002), "--baseline", "llm") == ExitCode.OK
    assert "Not slower" in capsys.readouterr().out
    assert run(small(1600), "--baseline", "llm", "--threshold", "60") == ExitCode.OK


def test_json_has_the_runs_and_all_numbers(
    store: Store, small: Callable[..., Path], capsys: Output
) -> None:
    stored = [store(us, day) for day, us in enumerate((1000, 1010, 990, 1030), start=1)]
    found = checked(capsys, small(1600), "--baseline", "llm", "--last", "3")
    baseline = found["baseline"]
    assert isinstance(baseline, dict)
    assert [each["id"] for each in baseline["runs"]] == stored[:0:-1]
    step = found["step"]
    assert isinstance(step, dict)
    times = sorted(each["time_ms"] for each in baseline["runs"])
    assert step["median_ms"] == times[1]
    assert step["is_slower"] is found["is_slower"] is True
    assert step["change_pct"] == pytest.approx(100 * (step["time_ms"] / times[1] - 1))
    assert checked(capsys, small(1600), "--baseline", "llm", "--last", "3") == found


def test_only_earlier_runs_of_the_project_and_branch_on_the_same_gpu_count(
    store: Store, capsys: Output
) -> None:
    store(1000, 1)
    store(2000, 2, RunLabels.of("llm", "fp8"))
    store(3000, 3, RunLabels.of("other"))
    store(4000, 4, NO_LABELS)
    store(5000, 5, device="NVIDIA H100 80GB HBM3")
    checked_run = store(1010, 6)
    store(7000, 7)
    found = checked(capsys, checked_run, "--baseline", "llm", "--branch", "main")
    baseline = found["baseline"]
    assert isinstance(baseline, dict)
    assert [each["created"][8:10] for each in baseline["runs"]] == ["01"]
    assert baseline["left_out"] == {
        "later than the run": 1,
        "recorded on NVIDIA H100 80GB HBM3": 1,
    }
    assert not found["has_noise"]
    assert run(checked_run, "--baseline", "llm", "--branch", "main") == ExitCode.OK
    assert "fewer than 3 do not show their noise" in capsys.readouterr().err


def test_a_trace_is_counted_once_and_not_against_itself(store: Store, capsys: Output) -> None:
    first = store(1000, 1)
    resubmit(first, "H100 SXM", None)
    assert [entry.labels for entry in read_catalog().entries] == [MAIN, MAIN]
    second = store(1010, 30)
    found = checked(capsys, second, "--baseline", "llm")
    baseline = found["baseline"]
    assert isinstance(baseline, dict)
    assert len(baseline["runs"]) + sum(baseline["left_out"].values()) == 2
    assert len(baseline["runs"]) == 1
    assert run(first, "--baseline", "llm") == ExitCode.FAILED
    assert "1 later than the run" in capsys.readouterr().err


def test_a_project_without_runs_is_reported(
    store: Store, small: Callable[..., Path], capsys: Output
) -> None:
    store(1000, 1)
    assert run(small(1000), "--baseline", "none") == ExitCode.FAILED
    assert "The project 'none' has no runs. Store some with" in capsys.readouterr().err
    store(900, 2, device="NVIDIA H100 80GB HBM3")
    assert run(small(1001), "--baseline", "llm", "--branch", "fp8") == ExitCode.FAILED
    assert "has on the branch 'fp8' no runs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["a", "b", "--baseline", "p"], "give no TARGET"),
        (["a", "--baseline", "p", "--fail-if", "gpu_time > 1%"], "--fail-if does not apply"),
        (["a", "--baseline", "p", "--output", "x.xlsx"], "does not apply to --baseline"),
        (["a", "--branch", "main"], "--branch needs --baseline"),
        (["a"], "the following arguments are required: TARGET"),
        (["a", "--baseline", "p", "--last", "0"], "not a number from 1 to 100"),
        (["a", "--baseline", "p", "--threshold", "0"], "not a percentage above 0"),
    ],
)
def test_other_options_are_usage_errors(
    arguments: list[str], sentence: str, capsys: Output
) -> None:
    with pytest.raises(SystemExit) as exit_:
        run(*arguments)
    assert exit_.value.code == ExitCode.USAGE
    assert sentence in capsys.readouterr().err
