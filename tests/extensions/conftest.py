"""An extension file to write, a trace that it is about, and its report."""

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from jarvis.extensions import Extensions
from jarvis.tracelens.report import TraceLensReport
from tests.builders import TraceBuilder, trace

Write = Callable[[str], Path]


SCAN = """
    from jarvis.perf_models import OpCost

    def register(registry):
        @registry.perf_model("mylib::scan", category="Scan_fwd")
        def scan(op):
            rows, columns = op.input_dims[0]
            size = rows * columns
            return OpCost(3 * size, 4 * size, "vector_bf16", {"rows": rows})
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes an extension file."""

    def written(text: str) -> Path:
        file = tmp_path / "mine.py"
        file.write_text(dedent(text), encoding="utf-8")
        return file

    return written


def scans() -> TraceBuilder:
    builder = trace(device="AMD Instinct MI300X")
    builder.op("mylib::scan", [[64, 128]]).launches("scan_kernel", us=20)
    builder.op("aten::mm", [[8, 4], [4, 2]]).launches("gemm", us=5)
    return builder.op("mylib::peek", [[1]]).launches("peek_kernel", us=1)


def report(extensions: Extensions, builder: TraceBuilder | None = None) -> TraceLensReport:
    return TraceLensReport((builder or scans()).read(), None, registry=extensions.registry)


def output(extensions: Extensions) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return extensions.notes, extensions.failures


class Point:
    """An entry point that gives ``value`` or raises it."""

    def __init__(self, name: str, value: object) -> None:
        self.name, self.value, self._loaded = name, f"theirs:{name}", value

    def load(self) -> object:
        if isinstance(self._loaded, Exception):
            raise self._loaded
        return self._loaded
