"""Communication staging: copies for a collective, by their kernels."""

import pytest

from jarvis.analyses import load_analyses
from jarvis.analyses.checks import low_efficiency
from jarvis.analyses.claims import claim_operations
from jarvis.analyses.operations import staging_ms
from jarvis.perf_report import PerfReport
from tests.analyses.rows import category, operation, operations
from tests.builders import trace
from tests.worded import worded

KEY = "communication_staging"
COPY_OUT = "void split_with_sizes_copy_out_contiguous_no_cast_kernel<8>(char**)"


@pytest.mark.parametrize(
    ("name", "kernel", "expected"),
    [
        ("aten::split_with_sizes_copy", COPY_OUT, KEY),
        ("fsdp::chunk_cat", "void at::native::chunk_cat_cuda_kernel<float, float>(char**)", KEY),
        ("EpDispatch", "EpDispatchCopyToStaging_bf16", KEY),
        ("aten::split_with_sizes_copy", "void split_with_sizes_kernel()", "other"),
        ("aten::cat", "CatArrayBatchedCopy_contig", "other"),
    ],
)
def test_a_copy_belongs_here_by_its_longest_kernel(name: str, kernel: str, expected: str) -> None:
    rows = operations(operation(name, time_us=9.0, kernels=[(kernel, 8.0), ("memset", 1.0)]))
    assert claim_operations(rows, load_analyses().values())["category"].to_list() == [expected]


@pytest.mark.parametrize(
    ("frame", "inner", "expected"),
    [
        ("torch/distributed/fsdp/_flat_param.py(1642): flatten_tensors", None, KEY),
        ("train.py(12): collate", None, "other"),
        ("torch/distributed/fsdp/fully_sharded_data_parallel.py(9): forward", "Block_0", "other"),
    ],
)
def test_a_concatenation_belongs_here_if_fsdp_makes_it(
    frame: str, inner: str | None, expected: str
) -> None:
    built = trace().python("train.py(9): main").python(frame)
    if inner:
        built = built.python(f"nn.Module: {inner}")
    cat = built.python("<built-in method cat>").child("aten::cat", [[8, 4]])
    report = PerfReport(cat.launches("CatArrayBatchedCopy_contig", us=20).read(), None)
    claimed = claim_operations(report.operations, load_analyses().values())
    assert claimed["category"].to_list() == [expected]
    staged = staging_ms(report.gpu_work, report.operations)
    assert staged == (0.02 if expected == KEY else 0.0)


def test_a_staging_kernel_that_is_not_the_longest_does_not_decide() -> None:
    row = operation("aten::cat", time_us=9.0, kernels=[("cat_kernel", 8.0), (COPY_OUT, 1.0)])
    assert claim_operations(operations(row), load_analyses().values())["category"][0] == "other"


def test_staging_is_compute_not_communication() -> None:
    report = PerfReport(trace().op("fsdp::split_copy").launches(COPY_OUT, us=20).read(), None)
    assert (report.totals.compute_time_ms, report.totals.total_comm_time_ms) == (0.02, 0.0)
    claimed = claim_operations(report.operations, load_analyses().values())
    assert claimed["category"].to_list() == [KEY]


def test_advice_of_a_slow_copy() -> None:
    row = operation(
        "aten::split_with_sizes_copy",
        time_us=3000.0,
        count=6,
        pct_roofline=20.0,
        bound="memory",
        kernels=[(COPY_OUT, 3000.0)],
    )
    (finding,) = worded(low_efficiency(category(KEY, row)))
    assert "a collective needs them in one buffer" in finding.issue
