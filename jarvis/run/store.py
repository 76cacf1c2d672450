"""Run directories on disk: written beside their place, then moved there as a whole."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from jarvis.errors import NotARunError, OutputFolderError, RunVersionError
from jarvis.run.run import RESULTS, Run, read_manifest
from jarvis.workspace import RUN_ENTRIES, RunPaths


def check_output_folder(root: Path, trace_sha256: str) -> None:
    """Refuse a folder that must not be replaced, with OutputFolderError.

    Free, empty, and holding a run of the same trace and nothing else are fine.
    """
    if not root.exists():
        return
    if not root.is_dir():
        raise OutputFolderError(root, "a file")
    entries = {entry.name for entry in root.iterdir()}
    if not entries:
        return
    try:
        manifest = read_manifest(root)
    except RunVersionError:
        raise OutputFolderError(root, "an analysis in another layout") from None
    except NotARunError:
        raise OutputFolderError(root, "files that are no analysis") from None
    if manifest.trace.sha256 != trace_sha256:
        raise OutputFolderError(root, f"the analysis of {manifest.trace.file_name}")
    if foreign := sorted(entries - RUN_ENTRIES):
        raise OutputFolderError(root, f"files beside its analysis ({', '.join(foreign[:3])})")


@contextmanager
def staged(root: Path, trace_sha256: str) -> Iterator[Path]:
    """A folder to write a run into; it takes the place of ``root`` when the block ends well.

    ``root`` is checked before and after. After an error it is what it was.
    """
    check_output_folder(root, trace_sha256)
    root.parent.mkdir(parents=True, exist_ok=True)
    token = uuid4().hex[:8]
    fresh, old = (root.with_name(f".{root.name}.{kind}-{token}") for kind in ("new", "old"))
    fresh.mkdir()
    try:
        yield fresh
        check_output_folder(root, trace_sha256)
        _replace(root, fresh, old)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _replace(root: Path, fresh: Path, old: Path) -> None:
    with suppress(FileNotFoundError):
        root.rename(old)
    try:
        fresh.rename(root)
    except OSError:
        if old.exists():
            old.rename(root)
        raise


def write_run(run: Run, root: Path) -> None:
    """Write manifest, results and tables of a run into ``root``; the manifest comes last."""
    paths = RunPaths(root)
    for name in run.manifest.tables:
        path = paths.table(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        run.table(name).write_parquet(path)
    paths.results.write_bytes(RESULTS.dump_json(dict(run.results), indent=2))
    paths.manifest.write_text(run.manifest.model_dump_json(indent=2), encoding="utf-8")
