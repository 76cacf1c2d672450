"""Whole runs of small traces, compared as text with the files in tests/golden.

`make golden` re-makes them; the diff is what a change does to what users see.
"""

import os
import re
from pathlib import Path

import pytest

from jarvis.pipeline import analyze
from jarvis.sample import write_sample
from tests.builders import trace

GOLDEN = Path(__file__).parent / "golden"
KEPT = ("*.md", "manifest.json", "category_manifest.json")
VOLATILE = re.compile(r'("(?:created|jarvis_version)": ?)"[^"]*"')


def training_step(path: Path) -> None:
    """A simulated step of one of two ranks: every category and collectives."""
    write_sample(path, steps=1, world_size=2, scale="tiny")


def products_and_copies(path: Path) -> None:
    """A good, a misaligned and an unmodelled product, a softmax and copies."""
    bf16 = ["c10::BFloat16", "c10::BFloat16"]
    built = trace(device="AMD Instinct MI300X")
    for _ in range(2):
        built.op("aten::mm", [[4096, 4096], [4096, 4096]], types=bf16).launches("gemm_a", us=260)
        built.op("aten::mm", [[4097, 4096], [4096, 1025]], types=bf16).launches("gemm_b", us=900)
        built.op("aten::topk", [[64, 4096]]).launches("sort_kernel", us=40)
        built.op("aten::_softmax", [[64, 4096]], types=bf16[:1]).launches("softmax_warp", us=5)
    built.write(path)


CASES = {"training-step": training_step, "products-and-copies": products_and_copies}


def texts(root: Path, folder: str = "\0") -> dict[str, str]:
    """The text files of a run by relative path, without what differs from run to run."""

    def stable(path: Path) -> str:
        return VOLATILE.sub(r'\1"..."', path.read_text(encoding="utf-8").replace(folder, ""))

    return {
        str(path.relative_to(root)): stable(path)
        for path in sorted(root.rglob("*"))
        if any(path.match(pattern) for pattern in KEPT)
    }


@pytest.mark.parametrize("case", CASES)
def test_golden_run(case: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    source = tmp_path / "trace.json"
    CASES[case](source)
    analyze(source, output_dir=tmp_path / "run", model_name="Golden model")
    found = texts(tmp_path / "run", f"{tmp_path}/")
    stored = GOLDEN / case
    if request.config.getoption("--update-golden"):
        for old in sorted(stored.rglob("*.*")) if stored.exists() else []:
            old.unlink()
        for name, text in found.items():
            (stored / name).parent.mkdir(parents=True, exist_ok=True)
            (stored / name).write_text(text, encoding="utf-8")
    expected = texts(stored)
    assert set(found) == set(expected)
    changed = [name for name in found if found[name] != expected[name]]
    assert not changed, f"{os.linesep.join(changed)} differ; `make golden` and review the diff"
