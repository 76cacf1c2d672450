"""Zip files of run directories for download."""

import io
import shutil
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from jarvis.core.output import ZIP_EPOCH

_BLOCK_BYTES = 1 << 20


def zipped(root: Path, parts: Iterable[Path] | None = None) -> bytes:
    """Return a zip of files or folders in ``root``, by default all; missing parts are skipped."""
    buffer = io.BytesIO()
    write_zip(buffer, root, parts)
    return buffer.getvalue()


def write_zip(out: Path | IO[bytes], root: Path, parts: Iterable[Path] | None = None) -> None:
    """Like ``zipped``, but write to a file with constant memory."""
    chosen = [root] if parts is None else list(parts)
    files = {file for part in chosen for file in _files(part)}
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(files):
            member = zipfile.ZipInfo(str(file.relative_to(root)), ZIP_EPOCH)
            member.compress_type = zipfile.ZIP_DEFLATED
            with file.open("rb") as content, archive.open(member, "w", force_zip64=True) as target:
                shutil.copyfileobj(content, target, _BLOCK_BYTES)


def _files(part: Path) -> Iterable[Path]:
    return [part] if part.is_file() else (p for p in part.rglob("*") if p.is_file())
