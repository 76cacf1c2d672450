"""What can be taken home from a run directory, made when it is asked for."""

import io
import zipfile
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from jarvis.reports import load_reporters
from jarvis.run import Run

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Every member has this date, so that the same files give the same archive."""


def zipped(root: Path, parts: Iterable[Path] | None = None) -> bytes:
    """A zip of ``parts`` (files or folders in ``root``; default all of it), named from ``root``.

    Parts that the run does not have are left out.
    """
    chosen = [root] if parts is None else list(parts)
    files = {file for part in chosen for file in _files(part)}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(files):
            member = zipfile.ZipInfo(str(file.relative_to(root)), _EPOCH)
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, file.read_bytes())
    return buffer.getvalue()


def exported(run: Run, format_name: str) -> bytes:
    """The file that a report format of one file writes."""
    with TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        load_reporters()[format_name].render(run, out)
        return out.read_bytes()


def _files(part: Path) -> Iterable[Path]:
    return [part] if part.is_file() else (p for p in part.rglob("*") if p.is_file())
