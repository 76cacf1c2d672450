"""Gaps are traced to the Python function, the annotation and the copy behind them."""

from typing import Any

import polars as pl
import pytest

from jarvis.tracelens.report import TraceLensReport
from tests.builders import TraceBuilder, trace

TO_PAGEABLE = "Memcpy DtoH (Device -> Pageable)"
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def report(builder: TraceBuilder) -> TraceLensReport:
    return TraceLensReport(builder.read(), None)


def longest(builder: TraceBuilder) -> dict[str, Any]:
    return report(builder).idle_gaps.sort("dur_ns").row(-1, named=True)


def kernel(builder: TraceBuilder) -> TraceBuilder:
    return builder.child("aten::mul").launches("mul_kernel", us=10).up()


def in_script() -> TraceBuilder:
    return kernel(trace().python("train.py(3): main"))


def test_the_innermost_function_of_at_least_half_a_gap_is_named() -> None:
    builder = in_script().python("data.py(7): prepare").python("data.py(9): tokenize", us=6000)
    builder.up().python("data.py(20): pad", us=3000).up(2)
    gap = longest(kernel(builder))
    assert gap["host_frame"] == "data.py(9): tokenize"


def test_two_halves_are_named_by_the_function_around_them() -> None:
    builder = in_script().python("data.py(7): prepare").python("data.py(9): tokenize", us=4000)
    builder.up().python("data.py(20): pad", us=4200).up().waits(800).up()
    gap = longest(kernel(builder))
    assert gap["host_frame"] == "data.py(7): prepare"


@pytest.mark.parametrize(
    ("inner", "named"),
    [
        ("torch/nn/modules/module.py(1915): __getattr__", "train.py(3): main"),
        ("<built-in method poll of object at 0x7f>", "train.py(3): main"),
        ("model.py(8): wrapper", "train.py(3): main"),
        ("transformers/generation/utils.py(90): sample", None),
    ],
)
def test_the_framework_and_wrappers_give_way_to_their_caller(inner: str, named: str | None) -> None:
    gap = longest(kernel(in_script().python(inner, us=9000).up()))
    assert gap["host_frame"] == (named or inner)


def test_functions_of_another_thread_are_not_named() -> None:
    builder = kernel(trace().thread(1))
    kernel(builder.waits(9000))
    builder.thread(2).python("worker.py(5): collate", us=20_000).up()
    builder.child("aten::empty").runtime("cudaGetDevice").up()
    assert longest(builder)["host_frame"] is None


def test_annotations_around_a_gap_are_named_but_not_steps() -> None:
    builder = kernel(trace().annotation("ProfilerStep#3"))
    builder.annotation("Optimizer.step#SGD.step").waits(3000)
    gap = longest(kernel(builder))
    assert gap["host_annotation"] == "Optimizer.step#SGD.step"
    assert gap["host_frame"] is None
    plain = kernel(kernel(trace().annotation("ProfilerStep#3")).waits(3000))
    assert longest(plain)["host_annotation"] is None


def test_an_annotation_of_less_than_half_a_gap_is_not_named() -> None:
    builder = kernel(kernel(trace()).annotation("## pack ##", us=1000).up().waits(3000))
    assert longest(builder)["host_annotation"] is None


def test_the_loader_is_its_own_annotation() -> None:
    builder = kernel(kernel(trace().python("train.py(3): main")).annotation(LOADER, us=5000).up())
    gap = longest(builder)
    assert gap["host_call"] == LOADER
    assert gap["host_annotation"] is None
    assert gap["host_frame"] == "train.py(3): main"


def read_on_host(builder: TraceBuilder, call: str = "cudaStreamSynchronize") -> TraceBuilder:
    builder.python("train.py(40): log_loss").child("aten::item")
    builder.child("aten::_local_scalar_dense")
    builder.launches(TO_PAGEABLE, us=2, cat="gpu_memcpy", call="cudaMemcpyAsync", bytes=4)
    return builder.runtime(call, us=9000).up(3)


def test_the_function_that_asked_for_a_blocking_read_and_its_copy_are_named() -> None:
    built = report(kernel(read_on_host(in_script()).waits(200)))
    gap = built.idle_gaps.sort("dur_ns").row(-1, named=True)
    assert gap["cause"] == "synchronization"
    assert gap["host_frame"] == "train.py(40): log_loss"
    copies = built.gpu_work.filter(pl.col("uid") == gap["host_copy_uid"])
    assert copies["dst_kind"].to_list() == ["Pageable"]
    assert copies["bytes"].to_list() == [4]


@pytest.mark.parametrize("call", ["cudaDeviceSynchronize", "cudaFree"])
def test_other_blocking_calls_wait_for_no_single_copy(call: str) -> None:
    assert longest(kernel(read_on_host(in_script(), call).waits(200)))["host_copy_uid"] is None


def test_the_edges_of_a_step_are_traced_too() -> None:
    builder = trace().annotation("ProfilerStep#3").python("train.py(3): main")
    kernel(builder.python("data.py(7): prepare", us=9000).up())
    gaps = report(builder).step_gaps
    assert gaps.filter(place="before")["host_frame"].to_list() == ["data.py(7): prepare"]
