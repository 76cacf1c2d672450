"""Every promise of SECURITY.md names tests that exist, and code that exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", TEXT)


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_named_test_exists(file: str, name: str) -> None:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    assert name in {node.name for node in tree.body if isinstance(node, functions)}


def test_every_promise_names_a_test() -> None:
    rows = TEXT.partition("## Promises and tests")[2].partition("\n## ")[0].splitlines()[4:]
    promises = [row for row in rows if row.startswith("|")]
    assert len(promises) > 20
    assert not [row for row in promises if "::test_" not in row]


@pytest.mark.parametrize("path", re.findall(r"`((?:server|cli|core)/[\w/.]+|\w+\.py)`", TEXT))
def test_named_code_exists(path: str) -> None:
    assert (ROOT / "jarvis" / path).exists()
