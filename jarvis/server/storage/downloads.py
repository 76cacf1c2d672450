"""What can be taken home from a run directory, made when it is asked for."""

import io
import shutil
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

EPOCH = (1980, 1, 1, 0, 0, 0)
"""Every member has this date, so that the same files give the same archive."""

_BLOCK_BYTES = 1 << 20


def zipped(root: Path, parts: Iterable[Path] | None = None) -> bytes:
    """A zip of ``parts`` (files or folders in ``root``; default all of it), named from ``root``.

    Parts that the run does not have are left out.
    """
    buffer = io.BytesIO()
    write_zip(buffer, root, parts)
    return buffer.getvalue()


def write_zip(out: Path | IO[bytes], root: Path, parts: Iterable[Path] | None = None) -> None:
    """Write that zip; files of any size take no more memory than a block of them."""
    chosen = [root] if parts is None else list(parts)
    files = {file for part in chosen for file in _files(part)}
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(files):
            member = zipfile.ZipInfo(str(file.relative_to(root)), EPOCH)
            member.compress_type = zipfile.ZIP_DEFLATED
            with file.open("rb") as content, archive.open(member, "w", force_zip64=True) as target:
                shutil.copyfileobj(content, target, _BLOCK_BYTES)


def _files(part: Path) -> Iterable[Path]:
    return [part] if part.is_file() else (p for p in part.rglob("*") if p.is_file())
