"""The recorded pairs: a target analysed with its reference, and the reports of the comparison."""

from collections.abc import Callable
from pathlib import Path

import pytest

from jarvis.pipeline import analyze
from tests.comparative.recomputed import Recomputed

MODELS = ("qwen1.5-0.5b", "bert-small")


@pytest.fixture(scope="session")
def compared(
    reference_root: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Recomputed]:
    """The run directories of both sides by model, made when they are first asked for."""
    made: dict[str, Recomputed] = {}

    def compared(model: str) -> Recomputed:
        if model not in made:
            folder = tmp_path_factory.mktemp(model)
            traces = reference_root / "traces"
            roots = {gpu: folder / gpu for gpu in ("h100", "mi300")}
            analyze(traces / f"h100-{model}.json.gz", output_dir=roots["h100"])
            analyze(
                traces / f"mi300-{model}.json.gz",
                output_dir=roots["mi300"],
                reference=str(roots["h100"]),
            )
            made[model] = Recomputed(roots["mi300"], roots["h100"])
        return made[model]

    return compared


@pytest.fixture(params=MODELS)
def pair(request: pytest.FixtureRequest, compared: Callable[[str], Recomputed]) -> Recomputed:
    """Each pair in turn."""
    return compared(request.param)
