"""The list of kept analyses, which every run of a page asks for."""

from pathlib import Path

import pytest

from jarvis.run import Manifest
from jarvis.server import catalogue
from jarvis.server.catalogue import read_catalogue
from jarvis.workspace import RunPaths, analyses_dir


def test_a_folder_that_cannot_be_read_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path))
    manifest = RunPaths(analyses_dir() / "older").manifest
    manifest.parent.mkdir(parents=True)
    manifest.write_text("{}", encoding="utf-8")
    asked: list[Path] = []
    read = catalogue.read_manifest

    def counted(folder: Path) -> Manifest:
        asked.append(folder)
        return read(folder)

    monkeypatch.setattr(catalogue, "read_manifest", counted)
    for _ in range(3):
        assert read_catalogue().broken == ("older",)
    assert len(asked) == 1
