"""The guide to Python does what it says."""

import re
from pathlib import Path
from typing import Any

import pytest

import jarvis
from jarvis.perf_report.call_tree.trace_tree import CALL_SCHEMA
from tests.requirements.conftest import busy_trace

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "use-from-python.md"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The names that the code of the guide leaves behind, its blocks run one after the other."""
    folder = tmp_path_factory.mktemp("guide")
    busy_trace().write(folder / "trace.json.gz")
    code = "\n".join(re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL))
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        exec(code, names)
    return names


def test_calls_are_found_with_what_is_around_and_below(found: dict[str, Any]) -> None:
    assert found["products"]["name"].to_list() == ["aten::mm", "aten::mm"]
    assert found["products"]["kernel_time_us"].to_list() == [2000.0, 2000.0]
    assert found["around"]["name"].to_list() == ["train.py(3): step", "nn.Module: Block_0"]
    assert found["modules"] == ["nn.Module: Block_0"]
    assert found["below"]["depth"].to_list() == [0, 1, 2]
    assert found["two_levels"].equals(found["below"])
    assert found["launched"].rows() == [("Cijk_Alik_Bljk_BBS_BH_MT256x128x64", 2000.0, 7)]


def test_what_cannot_be_done_is_reported(found: dict[str, Any]) -> None:
    assert "has no call 1000000000" in found["reason"]


def test_the_report_and_the_run_have_the_same_operations(found: dict[str, Any]) -> None:
    assert found["slowest"]["name"] == "aten::mm"
    assert found["calls_of_it"].height == found["slowest"]["operation_count"] == 2
    title, saved_ms = found["findings"][0]
    assert isinstance(title, str)
    assert saved_ms > 0
    assert found["same_run"].manifest == found["run"].manifest


def test_the_guide_names_every_column() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    assert [name for name in CALL_SCHEMA if f"`{name}`" not in text] == []


def test_every_public_name_is_there() -> None:
    assert [name for name in jarvis.__all__ if getattr(jarvis, name, None) is None] == []
    assert set(dir(jarvis)) == set(jarvis.__all__)
    with pytest.raises(AttributeError, match="no attribute 'read_traces'"):
        _ = jarvis.read_traces
