"""A valid run, made once: findings, copies, communication, an efficiency above the peak."""

import shutil
from pathlib import Path

import pytest

from jarvis.pipeline import analyze
from tests.builders import TraceBuilder, trace

BF16 = ["c10::BFloat16", "c10::BFloat16"]


def eventful_trace() -> TraceBuilder:
    """Return two steps with data for every file of a run."""
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
        built.runtime("hipDeviceSynchronize", us=1500)
        built.op("c10d::allreduce_", [[1024]]).launches("ncclDevKernel_AllReduce", us=700, stream=9)
        built.runtime("hipDeviceSynchronize", us=750).waits(4250)
    return built


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a valid run directory; do not change it."""
    folder = tmp_path_factory.mktemp("good")
    path = eventful_trace().write(folder / "trace.json")
    analyze(path, model_name="Tiny", output_dir=folder / "run")
    return folder / "run"


@pytest.fixture
def good_run(made_once: Path, tmp_path: Path) -> Path:
    """Return a copy of the valid run, to plant a fault in."""
    unread = shutil.ignore_patterns("*.xlsx", "*.zip")
    return Path(shutil.copytree(made_once, tmp_path / "run", ignore=unread))


def compared_trace(*, attention_us: float, norms: int) -> TraceBuilder:
    """Return a trace in which a product scales with the GPUs, and the attention does not."""
    built = trace(device="AMD Instinct MI300X" if norms else "NVIDIA H100 80GB HBM3")
    for _ in range(2):
        built.op("aten::mm", [[4096, 4096], [4096, 4096]], types=BF16).launches("gemm_a", us=250)
        built.op("aten::add", [[4096, 8192], [4096, 8192]], types=BF16)
        built.launches("void at::native::vectorized_elementwise_kernel<4>", us=60)
        built.op("aten::bmm", [[64, 1024, 64], [64, 64, 1024]], types=BF16)
        built.launches("batched_gemm", us=attention_us)
    for _ in range(norms):
        built.op("aten::native_layer_norm", [[4096, 8192]]).launches("norm_kernel", us=400)
    return built


@pytest.fixture(scope="session")
def compared_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a valid run directory with a reference; do not change it."""
    folder = tmp_path_factory.mktemp("compared")
    for name, attention_us, norms in (("reference", 60, 0), ("target", 900, 2)):
        built = compared_trace(attention_us=attention_us, norms=norms)
        path = built.write(folder / f"{name}.json")
        reference = str(folder / "reference_run") if name == "target" else None
        analyze(path, output_dir=folder / f"{name}_run", reference=reference, model_name="Tiny")
    return folder / "target_run"


@pytest.fixture
def compared_run(compared_once: Path, tmp_path: Path) -> Path:
    """Return a copy of it, to plant a fault in."""
    unread = shutil.ignore_patterns("*.xlsx", "*.zip")
    return Path(shutil.copytree(compared_once, tmp_path / "run", ignore=unread))
