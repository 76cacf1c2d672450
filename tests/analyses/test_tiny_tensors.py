"""Tiny tensors: whose they are, and which switch ends handling them one by one."""

import pytest

from jarvis.analyses import checks
from tests.analyses.rows import category, operation
from tests.worded import in_words

low_efficiency = in_words(checks.low_efficiency)

MODULE, NORM = ["DistributedDataParallel_0"], ["DistributedDataParallel_0", "BatchNorm2d_0"]
VECTOR = "((64,), (64,))"


def tiny(name: str, time_us: float = 900.0, **values) -> dict:
    row = {"count": 300, "pct_roofline": 0.1, "bound": "memory", "bytes": 256.0}
    row |= {"roofline_time_us": 0.001, "input_dims": VECTOR, "input_types": "('float', 'float')"}
    return operation(name, time_us=time_us, **(row | values))


def advice(*rows: dict) -> str:
    found = low_efficiency(category("elementwise", *rows))
    return next(iter(found)).algorithmic


def test_copies_of_a_data_parallel_model_name_both_switches() -> None:
    rows = [tiny("aten::copy_", module_path=MODULE), tiny("aten::copy_", 800.0)]
    text = advice(*rows)
    assert "`broadcast_buffers=False`" in text
    assert "`gradient_as_bucket_view=True`" in text
    assert text.index("broadcast_buffers") < text.index("gradient_as_bucket_view")


@pytest.mark.parametrize(("time_us", "is_named"), [(250.0, True), (200.0, False)])
def test_an_owner_of_little_time_is_not_named(time_us: float, is_named: bool) -> None:
    rows = [tiny("aten::copy_", 900.0, module_path=MODULE), tiny("aten::copy_", time_us)]
    assert ("gradient_as_bucket_view" in advice(*rows)) is is_named


def test_gradients_are_averaged_bucket_by_bucket() -> None:
    parallel = tiny("aten::copy_", 100.0, module_path=MODULE)
    assert "communication hook" in advice(tiny("aten::mul"), parallel)


@pytest.mark.parametrize("name", ["aten::copy_", "aten::mul"])
def test_without_data_parallelism_tensors_are_gathered(name: str) -> None:
    text = advice(tiny(name))
    assert text.startswith(f"Collect the tensors that `{name}` processes one by one, such as")
    assert "DistributedDataParallel" not in text


@pytest.mark.parametrize(
    ("values", "is_counter"),
    [
        ({"module_path": NORM, "input_dims": "((), (), ())"}, True),
        ({"module_path": NORM}, False),
        ({"module_path": MODULE, "input_dims": "((), (), ())"}, False),
        ({"input_dims": "((), (), ())"}, False),
    ],
)
def test_batch_counters_are_known_by_their_place(values: dict, is_counter: bool) -> None:
    text = advice(tiny("aten::add_", **values))
    assert ("num_batches_tracked" in text) is is_counter
    assert ("Collect the tensors" in text) is not is_counter


@pytest.mark.parametrize(("time_us", "is_gathered"), [(2000.0, True), (800.0, False)])
def test_what_owners_leave_is_gathered(time_us: float, is_gathered: bool) -> None:
    counters = tiny("aten::add_", module_path=NORM, input_dims="((), (), ())")
    text = advice(counters, tiny("aten::add_", time_us))
    assert "num_batches_tracked" in text
    assert ("Collect the tensors" in text) is is_gathered
