"""The guide to Python does what it says."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.requirements.conftest import busy_trace

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "use-from-python.md"


def test_the_example_of_the_guide_to_python_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy_trace().write(tmp_path / "trace.json.gz")
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    found: dict[str, Any] = {}
    exec(example, found)
    assert found["products"]["name"].to_list() == ["aten::mm", "aten::mm"]
    assert found["slowest"]["name"] == "aten::mm"
    assert found["parents"] == ["train.py(3): step", "nn.Module: Block_0"]
    assert [kernel for kernel, _ in found["kernels"]] == ["Cijk_Alik_Bljk_BBS_BH_MT256x128x64"]
    assert [depth for depth, *_ in found["subtree"]] == [1, 2]
