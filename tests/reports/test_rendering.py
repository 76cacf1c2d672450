"""Templates and the cache of their compiled form."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from jarvis.core.workspace import HOME_VARIABLE, compiled_templates_dir
from jarvis.reports import rendering


@pytest.fixture(autouse=True)
def _new_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    rendering._environment.cache_clear()
    yield
    rendering._environment.cache_clear()


def test_a_cache_that_is_removed_costs_no_report() -> None:
    templates = rendering._environment()
    names = sorted(templates.list_templates())
    templates.get_template(names[0])
    assert list(compiled_templates_dir().iterdir())
    shutil.rmtree(compiled_templates_dir())
    assert templates.get_template(names[1])
