"""The other categories: types, patterns and metrics."""

import pytest

from jarvis.analyses import checks, load_analyses
from jarvis.analyses.advice import TEXTS, values_of
from jarvis.analyses.operations import OperationGroup
from jarvis.text.messages import placeholders, tables
from tests.analyses.rows import category, operation
from tests.worded import in_words

low_efficiency = in_words(checks.low_efficiency)


def column(key: str, name: str, row: dict) -> object:
    return category(key, row).operations[name][0]


def metrics(key: str, *rows: dict) -> dict:
    return load_analyses()[key].measure(category(key, *rows))


@pytest.mark.parametrize(
    ("key", "name", "column_name", "expected"),
    [
        ("reduce", "aten::amax", "reduce_type", "max"),
        ("reduce", "aten::cumprod", "reduce_type", "other"),
        ("batchnorm", "aten::native_batch_norm_backward", "norm_type", "batch_norm"),
        ("batchnorm", "aten::layer_norm", "norm_type", "layer_norm"),
        ("batchnorm", "aiter::rmsnorm", "norm_type", "rms_norm"),
        ("batchnorm", "aten::some_norm", "norm_type", "other_norm"),
    ],
)
def test_types(key: str, name: str, column_name: str, expected: str) -> None:
    row = operation(name, time_us=10.0, op_category="x")
    assert column(key, column_name, row) == expected


@pytest.mark.parametrize("key", [k for k, a in load_analyses().items() if a.claim])
@pytest.mark.parametrize("bound", ["compute", "memory"])
def test_every_category_words_both_bounds(key: str, bound: str) -> None:
    row = operation("aten::thing", time_us=2000.0, pct_roofline=10.0, bound=bound)
    (finding,) = low_efficiency(category(key, row))
    for text in (finding.issue, finding.algorithmic, finding.kernel, finding.verify):
        # Products without a tile and far below the peak have no advice for the model.
        assert text or (key, bound, text is finding.algorithmic) == ("gemm", "compute", True)
        assert "{" not in (text or "")
        assert "None" not in (text or "")


@pytest.mark.parametrize("key", [k for k, a in load_analyses().items() if a.claim])
def test_advice_names_values_that_exist(key: str) -> None:
    rows = category(key, operation("aten::thing", time_us=1.0)).operations
    values = values_of(OperationGroup(rows)).keys()
    for pattern, advice in load_analyses()[key].advice.items():
        for text in filter(None, (getattr(advice, field) for field in TEXTS)):
            assert placeholders(text) <= values, pattern


@pytest.mark.parametrize(
    ("key", "table", "prefix"),
    [
        ("batchnorm", "normalization", ""),
        ("convolution", "convolution_layout", ""),
        ("elementwise", "elementwise", "many."),
        ("elementwise", "tiny_tensors", ""),
        ("gemm", "gemm_shapes", ""),
        ("reduce", "reduce", ""),
    ],
)
def test_messages_that_columns_name_find_their_values(key: str, table: str, prefix: str) -> None:
    rows = category(key, operation("aten::thing", time_us=1.0)).operations
    values = values_of(OperationGroup(rows)).keys()
    for name, text in tables()[table].items():
        if not (prefix and name.startswith(prefix)):
            assert placeholders(text) <= values, name


@pytest.mark.parametrize("key", [k for k, a in load_analyses().items() if a.claim])
def test_details_describe_columns_that_exist(key: str) -> None:
    analysis = load_analyses()[key]
    rows = category(key, operation("aten::thing", time_us=1.0)).operations
    for detail in analysis.details:
        assert detail.name in rows.columns
        assert rows.schema[detail.name] == detail.dtype, detail.name


@pytest.mark.parametrize("key", [k for k, a in load_analyses().items() if a.claim])
def test_panels_name_columns_that_exist(key: str) -> None:
    rows = category(key, operation("aten::thing", time_us=1.0)).operations
    for panel in load_analyses()[key].panels:
        assert {panel.x, panel.y, panel.color} - {None} <= set(rows.columns)
