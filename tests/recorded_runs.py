"""Runs of the recorded traces, each analyzed once for all test processes."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from jarvis.pipeline import analyze

RECORDED = (
    "h100-bert-small",
    "h100-qwen1.5-0.5b",
    "h100-vit-nsfw",
    "mi210-gpu-only",
    "mi300-bert-small",
    "mi300-qwen1.5-0.5b",
    "mi300-resnet-ddp-checkpoint",
    "mi300-vit-nsfw",
    "normalization-layers",
    "sglang-qwen3-8b-decode",
    "torch-compile-triton",
)
"""Recorded traces with a report of TraceLens."""

RecordedRun = Callable[[str], Path]


@pytest.fixture(scope="session")
def recorded_run(reference_root: Path, tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    """Return a function from the name of a recorded trace to its run directory, without options.

    Other tests read it too: copy it before changing it.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / "recorded-runs"
    folder.mkdir(exist_ok=True)

    def recorded_run(name: str) -> Path:
        root = folder / name
        with (folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not root.exists():  # an analysis that fails leaves nothing
                analyze(reference_root / "traces" / f"{name}.json.gz", output_dir=root)
        return root

    return recorded_run
