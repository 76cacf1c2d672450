"""What can stand where in a command, for shells that complete it."""

import argparse
from collections.abc import Callable, Iterable

from jarvis.core.workspace import analyses_dir


def completed_by(
    action: argparse.Action, complete: Callable[..., Iterable[str]]
) -> argparse.Action:
    """The action, its values completed by a function of the text so far."""
    action.completer = complete  # type: ignore[attr-defined]
    return action


def complete_run(prefix: str, **_: object) -> Iterable[str]:
    """Ids of kept analyses, and files and folders."""
    from argcomplete.completers import FilesCompleter

    return [*complete_stored(prefix), *FilesCompleter()(prefix)]


def complete_stored(prefix: str, **_: object) -> list[str]:
    """Ids of kept analyses."""
    root = analyses_dir()
    kept = (folder.name for folder in root.iterdir()) if root.is_dir() else ()
    return [name for name in kept if name.startswith(prefix) and not name.startswith(".")]


def complete_gpu(prefix: str, **_: object) -> Iterable[str]:
    """Names of the described GPUs."""
    from jarvis.hardware import load_hardware

    return [name for name in load_hardware().names() if name.lower().startswith(prefix.lower())]
