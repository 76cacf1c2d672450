"""A run that has something in every file: slow operators, copies, communication, idle time."""

import pytest

from jarvis.pipeline import analyze
from tests.builders import TraceBuilder, all_reduce, trace
from tests.reports.conftest import Analyzed

SQUARE = [[4096, 4096], [4096, 4096]]
HALF = ["c10::BFloat16", "c10::BFloat16"]
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4>"
COPIES = {"D2H": 60, "H2D": 12, "D2D": 6}
COPY_NAMES = {
    "D2H": "Memcpy DtoH (Device -> Pageable)",
    "H2D": "Memcpy HtoD (Pageable -> Device)",
    "D2D": "Memcpy DtoD (Device -> Device)",
}
ALL_REDUCE = all_reduce(1 << 20, 8, dtype="BFloat16")
CONVOLUTION = {
    "dims": [[10, 64, 56, 56], [64, 64, 3, 3], [], [], [], [], [], [], []],
    "types": ["c10::BFloat16", "c10::BFloat16", "", *["ScalarList"] * 3, "Scalar", "", "Scalar"],
    "concrete": ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"],
}


def busy_trace() -> TraceBuilder:
    """Two layers of slow work on an MI300X, then what the host and other ranks cost."""
    built = trace(device="AMD Instinct MI300X")
    for layer in range(2):
        built.python("train.py(3): step").python(f"nn.Module: Block_{layer}")
        built.child("aten::mm", SQUARE, types=HALF)
        built.launches("Cijk_Alik_Bljk_BBS_BH_MT256x128x64", us=2000).up()
        built.child(
            "aten::convolution",
            CONVOLUTION["dims"],
            types=CONVOLUTION["types"],
            concrete=CONVOLUTION["concrete"],
        )
        built.launches("batched_transpose_32x16_half", us=300)
        built.launches("igemm_fwd_gtcx3_nhwc_bf16", us=500).up()
        built.child("aten::add", SQUARE, types=HALF).launches(ELEMENTWISE, us=400).up()
        built.up(2)
    for direction, count in COPIES.items():
        built.op("aten::item" if direction == "D2H" else "aten::copy_", [[1024]])
        for _ in range(count):
            built.launches(COPY_NAMES[direction], us=10, cat="gpu_memcpy", bytes=4096)
    built.runtime("hipDeviceSynchronize", us=7000).waits(2000).op("c10d::allreduce_", [[1 << 20]])
    built.launches("ncclDevKernel_Generic", us=3000, stream=9, **ALL_REDUCE)
    built.runtime("hipDeviceSynchronize", us=3000).waits(2000)
    return built.op("aten::add", SQUARE, types=HALF).launches(ELEMENTWISE, us=400)


@pytest.fixture(scope="session")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Analyzed:
    folder = tmp_path_factory.mktemp("busy")
    path = busy_trace().write(folder / "trace.json")
    return Analyzed(analyze(path, model_name="Tiny", output_dir=folder / "run"), folder / "run")
