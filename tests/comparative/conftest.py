"""The recorded pairs: a target analyzed with its reference, and the reports of the comparison."""

from collections.abc import Callable
from pathlib import Path

import pytest

from jarvis.pipeline import analyze
from tests.comparative.recomputed import Recomputed
from tests.recorded_runs import RecordedRun

MODELS = ("qwen1.5-0.5b", "bert-small")


@pytest.fixture(scope="session")
def compared(
    reference_root: Path, recorded_run: RecordedRun, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Recomputed]:
    """The run directories of both sides by model, made when they are first asked for."""
    made: dict[str, Recomputed] = {}

    def compared(model: str) -> Recomputed:
        if model not in made:
            target = tmp_path_factory.mktemp(model) / "run"
            reference = recorded_run(f"h100-{model}")
            folder = reference_root / "traces"
            traces = {gpu: folder / f"{gpu}-{model}.json.gz" for gpu in ("mi300", "h100")}
            analyze(traces["mi300"], output_dir=target, reference=str(reference))
            made[model] = Recomputed(target, reference, traces)
        return made[model]

    return compared


@pytest.fixture(params=MODELS)
def pair(request: pytest.FixtureRequest, compared: Callable[[str], Recomputed]) -> Recomputed:
    """Each pair in turn."""
    return compared(request.param)
