"""Analyse a trace and keep the result under its id; what is kept already is not made again."""

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from jarvis.errors import JarvisError, RunError
from jarvis.pipeline import Progress, analyze, chosen_options
from jarvis.run import analysis_id, check_output_folder, read_manifest, staged
from jarvis.workspace import analyses_dir


class CopyError(JarvisError):
    """The analysis is kept, but the output folder could not be written."""

    def __init__(self, folder: Path, error: OSError) -> None:
        super().__init__(
            f"The trace was analysed, but the run could not be written to {folder}: "
            f"{error.strerror or error}. Choose another output folder."
        )


@dataclass(frozen=True, slots=True)
class Submission:
    """What to analyse and how; None for the GPU of the trace, its default preset, no name.

    ``reference`` is the id of a kept analysis, ``copy_to`` a folder that gets the run as well,
    ``extension_file`` a Python file with perf models, which is run.
    """

    trace: Path
    platform: str | None = None
    preset: str | None = None
    model_name: str | None = None
    reference: str | None = None
    copy_to: Path | None = None
    extension_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """A kept analysis; ``is_reused`` where it was there before."""

    id: str
    root: Path
    is_reused: bool


def submit(
    submission: Submission, progress: Progress | None = None, *, again: bool = False
) -> Kept:
    """Analyse and keep; the same trace with the same options is analysed once, unless ``again``.

    Raises what ``analyze`` raises, OutputFolderError where ``copy_to`` is taken, and CopyError
    where it cannot be written.
    """
    sha256 = _sha256(submission.trace)
    if submission.copy_to is not None:
        check_output_folder(submission.copy_to, sha256)
    chosen = {
        "platform": submission.platform,
        "preset": submission.preset,
        "model_name": submission.model_name,
        "reference": submission.reference,
    }
    file = submission.extension_file
    identifier = analysis_id(sha256, chosen_options(**chosen, extension_file=file))
    root = analyses_dir() / identifier
    is_reused = not again and _is_kept(root)
    if not is_reused:
        if root.exists() and not _is_kept(root):
            shutil.rmtree(root)  # of another layout, or damaged: nobody else's, and of no use
        analyze(submission.trace, **chosen, extension_file=file, output_dir=root, progress=progress)
    if submission.copy_to is not None:
        _copy(root, submission.copy_to, sha256)
    return Kept(identifier, root, is_reused)


def _copy(root: Path, target: Path, sha256: str) -> None:
    try:
        with staged(target, sha256) as folder:
            shutil.copytree(root, folder, dirs_exist_ok=True)
    except OSError as error:
        raise CopyError(target, error) from error


def _is_kept(root: Path) -> bool:
    try:
        read_manifest(root)
    except RunError:
        return False
    return True


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
