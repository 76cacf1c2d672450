"""A good run, made once: findings, copies, communication, an efficiency above the peak."""

import shutil
from pathlib import Path

import pytest

from jarvis.pipeline import analyze
from tests.builders import TraceBuilder, trace

BF16 = ["c10::BFloat16", "c10::BFloat16"]


def eventful_trace() -> TraceBuilder:
    """Two steps that have something to say in every file of a run."""
    built = trace(device="AMD Instinct MI300X")
    for _ in range(2):
        built.op("aten::mm", [[4096, 4096], [4096, 4096]], types=BF16).launches("gemm_a", us=900)
        built.op("aten::mm", [[4096, 4096], [4096, 4096]], types=BF16, strides=[[1, 4096]] * 2)
        built.launches("gemm_b", us=100)  # faster than the peak allows
        built.op("aten::add", [[4096, 8192], [4096, 8192]], types=BF16)
        built.launches("void at::native::vectorized_elementwise_kernel<4>", us=300)
        built.op("aten::topk", [[64, 4096]]).launches("sort_kernel", us=40)
        built.op("aten::item", [[1]])
        built.launches("Memcpy DtoH (Device -> Pageable)", us=30, cat="gpu_memcpy")
        built.op("c10d::allreduce_", [[1024]]).launches("ncclDevKernel_AllReduce", us=700, stream=9)
        built.waits(5000)
    return built


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A good run directory that nobody may change."""
    folder = tmp_path_factory.mktemp("good")
    path = eventful_trace().write(folder / "trace.json")
    analyze(path, model_name="Tiny", output_dir=folder / "run")
    return folder / "run"


@pytest.fixture
def good_run(made_once: Path, tmp_path: Path) -> Path:
    """A copy of the good run, to plant a fault in."""
    unread = shutil.ignore_patterns("*.parquet", "*.xlsx", "*.zip")
    return Path(shutil.copytree(made_once, tmp_path / "run", ignore=unread))
