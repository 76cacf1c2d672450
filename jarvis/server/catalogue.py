"""The analyses kept under ``JARVIS_HOME``, listed from their manifests."""

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from jarvis.errors import JarvisError, RunError
from jarvis.run import Manifest, read_manifest
from jarvis.workspace import RunPaths, analyses_dir

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class UnknownAnalysisError(JarvisError):
    """No analysis on this server has this id."""

    def __init__(self, analysis_id: str) -> None:
        super().__init__(
            f"No analysis {analysis_id[:64]!r} is kept on this server: it was removed, or the link "
            "comes from another server. Choose another analysis, or analyse the trace again."
        )


@dataclass(frozen=True, slots=True)
class Entry:
    """One kept analysis: its id, its folder and its manifest."""

    id: str
    root: Path
    manifest: Manifest

    @property
    def title(self) -> str:
        """What was analysed, and the GPU."""
        return f"{name_of(self.manifest)} · {self.gpu}"

    @property
    def gpu(self) -> str:
        """The GPU that the trace was judged against, else what the trace calls its own."""
        hardware = self.manifest.hardware
        return hardware.title if hardware else self.manifest.trace.device_name or "GPU not known"


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The readable analyses, newest first, and the ids of folders that cannot be read."""

    entries: tuple[Entry, ...]
    broken: tuple[str, ...]


def name_of(manifest: Manifest) -> str:
    """The model, or where it has no name the trace's file name without its ending."""
    file_name = manifest.trace.file_name
    return manifest.model_name or file_name.rpartition(".json")[0] or file_name


def read_catalogue() -> Catalogue:
    """List what is kept now; folders without a readable manifest do not hide the others."""
    entries: list[Entry] = []
    broken: list[str] = []
    root = analyses_dir()
    for folder in sorted(root.iterdir()) if root.is_dir() else ():
        if not folder.is_dir() or not is_analysis_id(folder.name):
            continue
        manifest = _manifest(folder)
        if manifest is None:
            broken.append(folder.name)
        else:
            entries.append(Entry(folder.name, folder, manifest))
    entries.sort(key=lambda entry: (entry.manifest.created, entry.id), reverse=True)
    return Catalogue(tuple(entries), tuple(broken))


def _manifest(folder: Path) -> Manifest | None:
    """The manifest, None where it cannot be read.

    It is read again only where its file has changed: every run of a page lists all of them.
    """
    try:
        stamp = RunPaths(folder).manifest.stat().st_mtime_ns
    except OSError:
        stamp = 0
    return _read_manifest(folder, stamp)


@lru_cache(maxsize=1024)
def _read_manifest(folder: Path, stamp: int) -> Manifest | None:
    try:
        return read_manifest(folder)
    except RunError:
        return None


def is_analysis_id(text: str) -> bool:
    """Whether an analysis could have this id."""
    return _ID.fullmatch(text) is not None


def analysis_root(analysis_id: str) -> Path:
    """The folder of a kept analysis; UnknownAnalysisError where there is none."""
    root = analyses_dir() / analysis_id
    if not is_analysis_id(analysis_id) or not RunPaths(root).manifest.is_file():
        raise UnknownAnalysisError(analysis_id)
    return root
