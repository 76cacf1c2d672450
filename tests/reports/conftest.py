"""Runs to report on: the sample, and a trace whose every name tries to become markup."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from jarvis.pipeline import analyze
from jarvis.run import Run
from jarvis.sample import write_sample
from tests.builders import trace

HOSTILE = (
    "=evil|`whoami`<img src=x onerror=alert(1)>\r\n# heading\n- [x](http://evil.example) "
    "![i](http://evil.example/i.png) **bold** _it_ $x$ &lt; www.evil.example \x07 <!-- c"
)


@dataclass(frozen=True)
class Analyzed:
    """A run and the directory that holds it."""

    run: Run
    root: Path

    def text(self, name: str) -> str:
        return (self.root / name).read_text(encoding="utf-8")

    def markdown(self) -> dict[str, str]:
        return {
            str(path.relative_to(self.root)): path.read_text(encoding="utf-8")
            for path in sorted(self.root.rglob("*.md"))
        }


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Analyzed:
    folder = tmp_path_factory.mktemp("sample")
    run = analyze(
        write_sample(folder / "sample.json.gz"), model_name="Tiny", output_dir=folder / "r"
    )
    return Analyzed(run, folder / "r")


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Analyzed:
    folder = tmp_path_factory.mktemp("hostile")
    builder = trace(device=HOSTILE).python(f"nn.Module: {HOSTILE}_0")
    for name in ("aten::mm", HOSTILE, f"aten::convolution{HOSTILE}"):
        builder.child(name, [[4096, 4096], [4096, 4096]], types=["c10::BFloat16", HOSTILE])
        builder.launches(HOSTILE, us=90_000.0).up()
    builder.op("c10d::allreduce_", []).launches("ncclDevKernel_AllReduce", us=200_000.0, stream=9)
    builder.op("aten::item")
    for _ in range(60):
        builder.launches("Memcpy DtoH (Device -> Pageable)", us=900.0, cat="gpu_memcpy", bytes=64)
    path = builder.write(folder / "a`b|<i>.json")
    run = analyze(path, platform="MI300X", model_name=HOSTILE, output_dir=folder / "r")
    return Analyzed(run, folder / "r")
